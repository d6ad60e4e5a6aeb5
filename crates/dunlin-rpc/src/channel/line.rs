//! The wire format of the ring: 64-byte lines, each with 56 bytes of body and a tag word at its end.
//!
//! ```text
//! line 0:  | header 16 B | payload 40 B | tag 8 B |      tag = lap (low 32 bits) | lines consumed by the writer (high 32 bits)
//! line i:  | payload 56 B               | tag 8 B |
//! ```
//!
//! The tag stands at a fixed place in each line and nothing else is ever written there, so old payload can never pass for a
//! tag, and nothing needs to be cleared after reading. A lap number is one more than the number of times that the ring has wrapped:
//! memory starts as zeros, which is no lap. It asks of the device only that the last 8 bytes of a line become visible
//! after the rest of that line (`Placement::InOrder`). The upper half of the tag carries the flow control: how many lines of the other
//! ring the writer of this one has consumed, so that a request-response exchange needs no WRITE for it.

/// Bytes of a line: a cache line.
pub(crate) const LINE_BYTES: usize = 64;
/// Bytes of a line that carry a message.
pub(crate) const BODY_BYTES: usize = 56;
/// Bytes of a message header, at the start of its first line.
pub(crate) const HEADER_BYTES: usize = 16;
/// Bytes of the payload that stands for a long message: where to READ it.
pub(crate) const DESCRIPTOR_BYTES: usize = 24;

/// Lines that a message with `payload` bytes takes.
#[inline]
pub(crate) fn lines_for(payload: usize) -> usize {
    (HEADER_BYTES + payload).div_ceil(BODY_BYTES)
}

/// The tag of a line in lap `lap` by a writer that has consumed `consumed` lines.
#[inline]
pub(crate) fn tag(lap: u32, consumed: u64) -> u64 {
    u64::from(lap) | (consumed & 0xffff_ffff) << 32
}

/// The lap in which line number `position` (counted from the start of the connection) is written, in a ring of 2^`shift` lines.
#[inline]
pub(crate) fn lap(position: u64, shift: u32) -> u32 {
    ((position >> shift) as u32).wrapping_add(1)
}

/// Where in the first line of a batch the number of lines stands that follow in the same batch. A hint for prefetching: the first line
/// is written last, so when it is seen they are there. Zero elsewhere; what a hostile peer writes costs a few prefetches.
pub(crate) const FOLLOWING_AT: usize = 7;

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A call; the payload is the request.
    Request = 1,
    /// An answer; the payload is the response.
    Response = 2,
    /// An answer that is an error; the payload is a [`crate::error::WireFailure`].
    Failure = 3,
    /// A call; the payload is a [`Descriptor`] of the request in the caller's memory.
    LongRequest = 4,
    /// An answer; the payload is a [`Descriptor`] of the response in the server's memory.
    LongResponse = 5,
    /// The receiver of a long response has read it.
    Release = 6,
    /// The caller is not interested in the answer any more.
    Cancel = 7,
    /// The server takes no new calls.
    Goodbye = 8,
}

impl Kind {
    fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Request,
            2 => Self::Response,
            3 => Self::Failure,
            4 => Self::LongRequest,
            5 => Self::LongResponse,
            6 => Self::Release,
            7 => Self::Cancel,
            8 => Self::Goodbye,
            _ => return None,
        })
    }
}

/// The head of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// Bytes of payload in the ring.
    pub(crate) length: u32,
    /// Handler of a request, otherwise zero.
    pub(crate) handler: u16,
    /// What it is.
    pub(crate) kind: Kind,
    /// The caller's name for the call; echoed in the answer.
    pub(crate) call: u64,
}

impl Header {
    /// The bytes in the ring.
    #[inline]
    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let low = u64::from(self.length)
            | u64::from(self.handler) << 32
            | u64::from(self.kind as u8) << 48;
        (u128::from(low) | u128::from(self.call) << 64).to_le_bytes()
    }

    /// Reads the first line's body; `None` when it does not begin with a header.
    #[inline]
    pub(crate) fn read(body: &[u8; BODY_BYTES]) -> Option<Self> {
        let (low, rest) = body.split_first_chunk::<8>()?;
        let (call, _) = rest.split_first_chunk::<8>()?;
        Self::decode(u64::from_le_bytes(*low), u64::from_le_bytes(*call))
    }

    /// Reads what a peer wrote; `None` when it is not a header.
    #[inline]
    fn decode(low: u64, call: u64) -> Option<Self> {
        Some(Self {
            length: low as u32,
            handler: (low >> 32) as u16,
            kind: Kind::from_number((low >> 48) as u8)?,
            call,
        })
    }
}

/// Where a long payload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptor {
    /// Address in the sender's memory.
    pub(crate) address: u64,
    /// Bytes.
    pub(crate) length: u64,
    /// The sender's remote key.
    pub(crate) key: u32,
}

impl Descriptor {
    /// The bytes in the ring.
    pub(crate) fn encode(&self) -> [u8; DESCRIPTOR_BYTES] {
        let mut bytes = [0; DESCRIPTOR_BYTES];
        bytes[..8].copy_from_slice(&self.address.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.length.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.key.to_le_bytes());
        bytes
    }

    /// Reads what a peer wrote; `None` when it has another size.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; DESCRIPTOR_BYTES] = bytes.try_into().ok()?;
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(word)
        };
        Some(Self {
            address: word(0),
            length: word(8),
            key: word(16) as u32,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_a_header_that_round_trips_or_none(low: u64, call: u64) {
            if let Some(header) = Header::decode(low, call) {
                let bytes = u128::from_le_bytes(header.encode());
                let without_hint = low & !(0xff << (8 * FOLLOWING_AT));
                prop_assert_eq!((bytes as u64, (bytes >> 64) as u64), (without_hint, call));
            }
        }

        #[test]
        fn descriptors_round_trip(address: u64, length: u64, key: u32) {
            let descriptor = Descriptor { address, length, key };
            prop_assert_eq!(Descriptor::decode(&descriptor.encode()), Some(descriptor));
        }
    }

    #[test]
    fn lines_count_header_and_payload() {
        assert_eq!(lines_for(0), 1);
        assert_eq!(lines_for(40), 1);
        assert_eq!(lines_for(41), 2);
        assert_eq!(lines_for(64), 2);
        assert_eq!(lines_for(96), 2);
        assert_eq!(lines_for(97), 3);
    }
}
