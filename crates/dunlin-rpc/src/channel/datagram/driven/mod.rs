//! The client-driven protocol of eRPC (NSDI'19, §5): what makes calls over datagrams survive lost packets.
//!
//! ```text
//! client                                    server
//! RequestPart 0  ------------------------->
//!                <------------------------- CreditReturn 0
//! RequestPart 1 (the last) --------------->  the handler runs
//!                <------------------------- ResponsePart 0
//! ResponseRequest 1 ---------------------->
//!                <------------------------- ResponsePart 1 (the last)
//! ```
//!
//! The client numbers its packets of a call, and each is answered by exactly one of the same place. So the client alone
//! knows what is outstanding ([`client::Driver`]): it has timers, credits and a rate, and after a timeout it goes back
//! to the first packet without an answer. The server ([`server::Answerer`]) has neither timer nor clock; it takes the
//! packets of a call in order, runs the handler once, and keeps the response to send any part of it again. Both are
//! state machines that are handed packets and, at the client, the time.

pub(crate) mod client;
mod pace;
pub(crate) mod server;
#[cfg(all(test, not(loom)))]
mod tests;
mod timely;

/// Packets of a session on their way at once, by default (eRPC §4.3.1).
pub(crate) const CREDITS: usize = 8;
/// The same by default where no NIC makes packets: as many as there are RECEIVEs. In memory there are no queues of a
/// network that they would be for, and through two kernels a round trip is so long that eight carry little (eRPC's
/// choice is the bandwidth-delay product).
pub(crate) const CREDITS_WITHOUT_NIC: usize = crate::channel::datagram::CALLS;
/// Bytes before a piece.
pub(crate) const PART_BYTES: usize = 12;

/// The response is an error, in the words of the wire.
const FAILURE: u32 = 1;
/// The call waited for a worker, so the time until its answer says nothing of the network.
const HELD: u32 = 2;

/// What a piece of a message says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Bytes of the whole message.
    pub(crate) total: u32,
    /// Which of its pieces.
    pub(crate) number: u32,
    flags: u32,
}

impl Part {
    /// The bytes before the piece.
    #[inline]
    pub(crate) fn encode(self) -> [u8; PART_BYTES] {
        let low = u128::from(self.total) | u128::from(self.number) << 32;
        let all = (low | u128::from(self.flags) << 64).to_le_bytes();
        std::array::from_fn(|i| all[i])
    }

    /// Reads what a peer wrote, and what follows it. `piece`: payload of all pieces but the last.
    ///
    /// # Errors
    /// What is wrong, when it is no piece of any message of at most `longest` bytes.
    #[inline]
    pub(crate) fn read(
        payload: &[u8],
        piece: usize,
        longest: usize,
    ) -> Result<(Self, &[u8]), &'static str> {
        let (head, body) = payload
            .split_first_chunk::<PART_BYTES>()
            .ok_or("a piece without a head")?;
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| head[at + i]));
        let part = Self {
            total: word(0),
            number: word(4),
            flags: word(8),
        };
        let total = part.total as usize;
        if total > longest {
            return Err("a message that is longer than its receiver takes");
        }
        let start = (part.number as usize).saturating_mul(piece);
        let rest = total
            .checked_sub(start)
            .ok_or("a piece beyond its message")?;
        let fits = part.number < pieces(total, piece) && body.len() == rest.min(piece);
        fits.then_some((part, body))
            .ok_or("a piece that does not fit its message")
    }
}

/// Pieces of a message of `total` bytes: one at least, also of nothing.
#[inline]
pub(crate) fn pieces(total: usize, piece: usize) -> u32 {
    (total.div_ceil(piece) as u32).max(1)
}

/// The number that a packet without a piece carries.
fn number_in(payload: &[u8]) -> Result<u32, &'static str> {
    let number: [u8; 4] = payload.try_into().map_err(|_| "a number that is none")?;
    Ok(u32::from_le_bytes(number))
}
