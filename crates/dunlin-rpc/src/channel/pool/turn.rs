//! What a server reports about a client's turn with every response, and what a client announces in its endpoint entry.

/// The state of a turn, encoded in one word: number, place, flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Turn {
    /// The number of the turn. Turns of a client are counted from one; zero is for static mapping, where the turn never
    /// ends.
    pub(super) number: u32,
    /// The zone of the pools it takes place in. In what clients write this is the number of their outstanding calls.
    pub(super) place: u16,
    /// The turn is over (ScaleRPC's context_switch_event).
    pub(super) over: bool,
    /// The server takes no new calls.
    pub(super) leaving: bool,
}

const OVER: u64 = 1 << 48;
const LEAVING: u64 = 1 << 49;

impl Turn {
    /// Encodes it.
    #[inline]
    pub(super) fn encode(self) -> u64 {
        let over = if self.over { OVER } else { 0 };
        let leaving = if self.leaving { LEAVING } else { 0 };
        u64::from(self.number) | u64::from(self.place) << 32 | over | leaving
    }

    /// Decodes what a server wrote.
    #[inline]
    pub(super) fn decode(word: u64) -> Self {
        Self {
            number: word as u32,
            place: (word >> 32) as u16,
            over: word & OVER != 0,
            leaving: word & LEAVING != 0,
        }
    }
}

/// An endpoint entry (ScaleRPC §3.3's `<req_addr, batch_size>`), encoded in one word: a client's requests are in blocks
/// of its own memory, so their numbers give the addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Another number for each word written; never zero, which means no entry.
    pub(super) serial: u16,
    /// Number of cache lines of the longest message. [`Entry::GOODBYE`]: the client has left.
    pub(super) lines: u16,
    /// The blocks that hold messages.
    pub(super) blocks: u32,
}

impl Entry {
    /// Used in place of a length.
    pub(super) const GOODBYE: u16 = u16::MAX;

    /// Encodes it.
    pub(super) fn encode(self) -> u64 {
        u64::from(self.blocks) | u64::from(self.lines) << 32 | u64::from(self.serial) << 48
    }

    /// Decodes what a client wrote.
    #[inline]
    pub(super) fn decode(word: u64) -> Self {
        Self {
            serial: (word >> 48) as u16,
            lines: (word >> 32) as u16,
            blocks: word as u32,
        }
    }

    /// The serial after this one.
    pub(super) fn after(serial: u16) -> u16 {
        serial.checked_add(1).unwrap_or(1)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn words_round_trip(number: u32, place: u16, over: bool, leaving: bool, serial: u16, lines: u16, blocks: u32, any: u64) {
            let turn = Turn { number, place, over, leaving };
            prop_assert_eq!(Turn::decode(turn.encode()), turn);
            let entry = Entry { serial, lines, blocks };
            prop_assert_eq!(Entry::decode(entry.encode()), entry);
            prop_assert_eq!(Entry::decode(any).encode(), any);
        }

        #[test]
        fn serials_go_on_and_are_never_zero(serial: u16) {
            let next = Entry::after(serial);
            prop_assert!(next != 0 && next != serial);
        }
    }
}
