//! Message headers: the length, and the complement of the length.
//!
//! Because of the complement, a header of which only a part has arrived, on a device that places less than a word at a
//! time, differs from every complete header. Zero, which a reader finds where nothing was written, is not a valid
//! header.

use crate::design::{Design, Layout, TailSync};

/// How the reader learns the length of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Framing {
    /// Each message is preceded by a header of eight bytes.
    Header,
    /// All messages have this many bytes, and no header unless the design needs one.
    Fixed(usize),
}

/// Length of a message header: the length and the complement of the length.
pub(crate) const HEADER_BYTES: usize = 8;
/// Length of a message header in a list: the header, then the link to the next slot.
const LINKED_HEADER_BYTES: usize = 16;
/// The byte behind a message that is detected by polling.
pub(crate) const VALID: u8 = 1;
/// A header that is not a message: the reader continues at the start of the array.
pub(crate) const SKIP: [u8; HEADER_BYTES] = encode(u32::MAX as usize);
const SKIPPED: u32 = u32::MAX;

/// Number of bytes in front of a payload.
pub(crate) fn prefix(design: &Design, framing: Framing) -> usize {
    match (design.layout, framing) {
        (Layout::LinkedSlots, _) => LINKED_HEADER_BYTES,
        (_, Framing::Header) => HEADER_BYTES,
        (_, Framing::Fixed(_)) if design.polls_messages() => HEADER_BYTES,
        (_, Framing::Fixed(_)) => 0,
    }
}

/// Number of bytes behind a payload: the byte that shows that all of it has arrived.
pub(crate) fn suffix(design: &Design) -> usize {
    usize::from(design.tail_sync == TailSync::PollMessage)
}

/// The meaning of a header word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Header {
    /// Nothing, or not all of the header, has been written here yet.
    Nothing,
    /// The rest of the array is skipped.
    Skip,
    /// A message of this length.
    Length(usize),
}

/// Encodes the header of a message of `length` bytes, less than 2^32.
#[inline(always)]
pub(crate) const fn encode(length: usize) -> [u8; HEADER_BYTES] {
    let length = length as u32;
    (length as u64 | (!length as u64) << 32).to_le_bytes()
}

/// Decodes a header word.
#[inline(always)]
pub(crate) fn decode(word: u64) -> Header {
    let length = word as u32;
    if (word >> 32) as u32 != !length {
        return Header::Nothing;
    }
    if length == SKIPPED {
        return Header::Skip;
    }
    Header::Length(length as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn zero_is_nothing_and_skip_is_skip() {
        assert_eq!(decode(0), Header::Nothing);
        assert_eq!(decode(u64::from_le_bytes(SKIP)), Header::Skip);
    }

    proptest! {
        #[test]
        fn lengths_come_back(length in 0..u32::MAX) {
            let word = u64::from_le_bytes(encode(length as usize));
            prop_assert_eq!(decode(word), Header::Length(length as usize));
        }

        #[test]
        fn half_a_header_is_nothing(length in 0..u32::MAX, bytes in 0usize..8) {
            let mut half = encode(length as usize);
            half[bytes..].fill(0);
            // The missing bytes may be zero in the complete header, too.
            prop_assume!(half != encode(length as usize));
            prop_assert_eq!(decode(u64::from_le_bytes(half)), Header::Nothing);
        }
    }
}
