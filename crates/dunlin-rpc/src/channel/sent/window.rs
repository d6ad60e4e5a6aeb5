//! The number of messages that may be in flight: X-RDMA's window of sequence numbers and acknowledgements, as values.
//!
//! A SEND needs a RECEIVE at the peer. Each message states how many of the peer's messages have released their
//! RECEIVEs, so the peer knows how many more it may send; if there is no other message, one without contents states it.

use crate::channel::ChannelError;

/// Number of messages of the window reserved for window updates, so that these are not blocked by the window
/// themselves.
const KEPT: u64 = 2;

/// The window; see the module.
#[derive(Clone, Debug)]
pub(super) struct Window {
    /// Number of RECEIVEs of the peer, and ours.
    theirs: u64,
    ours: u64,
    /// Total number of messages made, and of those whose RECEIVEs have been released.
    made: u64,
    freed: u64,
    /// Number of the peer's messages whose RECEIVEs were released here, and how many of them the peer was told.
    taken: u64,
    told: u64,
}

impl Window {
    /// Minimum number of RECEIVEs of a side.
    pub(super) const LEAST: usize = 8;

    /// With these numbers of RECEIVEs at the peer and here.
    pub(super) fn new(theirs: usize, ours: usize) -> Self {
        Self {
            theirs: theirs as u64,
            ours: ours as u64,
            made: 0,
            freed: 0,
            taken: 0,
            told: 0,
        }
    }

    /// Whether a message with contents may be made.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.made - self.freed < self.theirs - KEPT
    }

    /// Whether any message may be made.
    #[inline]
    pub(super) fn has_room_for_word(&self) -> bool {
        self.made - self.freed < self.theirs
    }

    /// Total number of messages made.
    #[inline]
    pub(super) fn made(&self) -> u64 {
        self.made
    }

    /// To be called when a message is made, for which there was room.
    #[inline]
    pub(super) fn make(&mut self) {
        self.made += 1;
    }

    /// The count to send with the next message.
    #[inline]
    pub(super) fn tell(&mut self) -> u32 {
        self.told = self.taken;
        self.taken as u32
    }

    /// To be called when a RECEIVE was released.
    #[inline]
    pub(super) fn take(&mut self) {
        self.taken += 1;
    }

    /// Whether a separate window update is due: once per quarter of our RECEIVEs.
    #[inline]
    pub(super) fn owes_word(&self) -> bool {
        self.taken - self.told >= self.ours / 4
    }

    /// The peer states how many of our messages have released their RECEIVEs.
    ///
    /// # Errors
    /// When it states more than there were.
    #[inline]
    pub(super) fn hear(&mut self, told: u32) -> Result<(), ChannelError> {
        let more = u64::from(told.wrapping_sub(self.freed as u32));
        if more > self.made - self.freed {
            return Err(ChannelError::violation(
                "it claims to have received messages that were never sent",
            ));
        }
        self.freed += more;
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    /// One end, and the messages in flight to it: the count in each, and whether it has contents.
    struct End {
        window: Window,
        coming: VecDeque<(u32, bool)>,
        to_send: usize,
        taken: usize,
    }

    impl End {
        fn new(theirs: usize, ours: usize, to_send: usize) -> Self {
            Self {
                window: Window::new(theirs, ours),
                coming: VecDeque::new(),
                to_send,
                taken: 0,
            }
        }

        /// Returns what it sends, if anything.
        fn send(&mut self) -> Option<(u32, bool)> {
            let carries = self.to_send > 0 && self.window.has_room();
            let word = self.window.owes_word() && self.window.has_room_for_word();
            if !carries && !word {
                return None;
            }
            self.window.make();
            self.to_send -= usize::from(carries);
            Some((self.window.tell(), carries))
        }

        fn take(&mut self) -> bool {
            let Some((told, carries)) = self.coming.pop_front() else {
                return false;
            };
            self.window.hear(told).unwrap();
            self.window.take();
            self.taken += usize::from(carries);
            true
        }
    }

    proptest! {
        /// Whatever the order of turns, no message arrives without a RECEIVE for it, and in the end all have arrived.
        #[test]
        fn all_messages_come_and_each_finds_a_receive(
            receives in prop::array::uniform2(Window::LEAST..40),
            messages in prop::array::uniform2(0_usize..300),
            turns in prop::collection::vec(0_u8..4, 0..400),
        ) {
            let mut ends = [
                End::new(receives[1], receives[0], messages[0]),
                End::new(receives[0], receives[1], messages[1]),
            ];
            let act = |turn: u8, ends: &mut [End; 2]| {
                let side = usize::from(turn & 1);
                if turn & 2 != 0 {
                    return ends[side].take();
                }
                let Some(message) = ends[side].send() else {
                    return false;
                };
                let other = &mut ends[1 - side];
                other.coming.push_back(message);
                assert!(other.coming.len() <= receives[1 - side]);
                true
            };
            for turn in turns {
                act(turn, &mut ends);
            }
            while (0..4).any(|turn| act(turn, &mut ends)) {}
            prop_assert_eq!([ends[1].taken, ends[0].taken], messages);
        }
    }

    #[test]
    fn a_peer_cannot_have_taken_what_was_not_sent() {
        let mut window = Window::new(8, 8);
        window.make();
        window.hear(1).unwrap();
        window.hear(1).unwrap();
        assert!(window.hear(2).unwrap_err().is_violation());
        assert!(window.hear(0).unwrap_err().is_violation());
    }
}
