//! The client-driven protocol of eRPC (NSDI'19, §5): makes calls over datagrams survive packet loss.
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
//! The client numbers its packets of a call, and each is answered by exactly one packet of the same position. So only
//! the client knows what is outstanding ([`client::Driver`]): it has timers, credits and a rate, and after a timeout it
//! goes back to the first unanswered packet. The server ([`server::Answerer`]) has neither timer nor clock; it accepts
//! the packets of a call in order, runs the handler once, and keeps the response to resend any part of it. Both are
//! state machines whose inputs are packets and, at the client, the time.

pub(crate) mod client;
mod pace;
pub(crate) mod server;
#[cfg(all(test, not(loom)))]
mod tests;
mod timely;

/// Default number of packets of a session in flight (eRPC §4.3.1).
pub(crate) const CREDITS: usize = 8;
/// The default where no NIC makes packets: as many as there are RECEIVEs. In memory there are no network queues for the
/// credits to limit, and through two kernels a round trip is so long that eight carry little (eRPC's choice is the
/// bandwidth-delay product).
pub(crate) const CREDITS_WITHOUT_NIC: usize = crate::channel::datagram::CALLS;
/// Size of the header of a piece, in bytes.
pub(crate) const PART_BYTES: usize = 12;

/// The response is an encoded error.
const FAILURE: u32 = 1;
/// The call waited for a worker, so the time until its response does not reflect the network.
const HELD: u32 = 2;

/// The header of a piece of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Length of the whole message in bytes.
    pub(crate) total: u32,
    /// The number of the piece.
    pub(crate) number: u32,
    flags: u32,
}

impl Part {
    /// Encodes the header.
    #[inline]
    pub(crate) fn encode(self) -> [u8; PART_BYTES] {
        let low = u128::from(self.total) | u128::from(self.number) << 32;
        let all = (low | u128::from(self.flags) << 64).to_le_bytes();
        std::array::from_fn(|i| all[i])
    }

    /// Decodes what a peer wrote, and returns what follows it. `piece` is the payload of all pieces but the last.
    ///
    /// # Errors
    /// What is wrong, when it is not a piece of a message of at most `longest` bytes.
    #[inline]
    pub(crate) fn read(
        payload: &[u8],
        piece: usize,
        longest: usize,
    ) -> Result<(Self, &[u8]), &'static str> {
        let (head, body) = payload
            .split_first_chunk::<PART_BYTES>()
            .ok_or("a piece without a header")?;
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| head[at + i]));
        let part = Self {
            total: word(0),
            number: word(4),
            flags: word(8),
        };
        let total = part.total as usize;
        if total > longest {
            return Err("a message longer than its receiver accepts");
        }
        let start = (part.number as usize).saturating_mul(piece);
        let rest = total
            .checked_sub(start)
            .ok_or("a piece beyond the end of its message")?;
        let fits = part.number < pieces(total, piece) && body.len() == rest.min(piece);
        fits.then_some((part, body))
            .ok_or("a piece that does not fit its message")
    }
}

/// Number of pieces of a message of `total` bytes: at least one, even if it is empty.
#[inline]
pub(crate) fn pieces(total: usize, piece: usize) -> u32 {
    (total.div_ceil(piece) as u32).max(1)
}

/// The number in a packet without a piece.
fn number_in(payload: &[u8]) -> Result<u32, &'static str> {
    let number: [u8; 4] = payload.try_into().map_err(|_| "a malformed number")?;
    Ok(u32::from_le_bytes(number))
}
