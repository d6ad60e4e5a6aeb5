//! The header of a message: its length, and the complement of its length.
//!
//! The complement makes a header that is only half there, on a device that places by smaller steps than a word, differ
//! from every header that is whole; and zero, which is what a reader finds where nothing was written, is no header.

use crate::design::{Design, Layout, TailSync};

/// How a reader knows how long a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Framing {
    /// Each message has a header of eight bytes in front of it.
    Header,
    /// All messages have this many bytes, and no header where the design does not need one.
    Fixed(usize),
}

/// The header of a message: its length and the complement of its length.
pub(crate) const HEADER_BYTES: usize = 8;
/// The header of a message in a list: the header, then the link to the next slot.
const LINKED_HEADER_BYTES: usize = 16;
/// The byte behind a message that is polled.
pub(crate) const VALID: u8 = 1;
/// The header of what is no message: go on at the start of the array.
pub(crate) const SKIP: [u8; HEADER_BYTES] = encode(u32::MAX as usize);
const SKIPPED: u32 = u32::MAX;

/// Bytes in front of a payload.
pub(crate) fn prefix(design: &Design, framing: Framing) -> usize {
    match (design.layout, framing) {
        (Layout::LinkedSlots, _) => LINKED_HEADER_BYTES,
        (_, Framing::Header) => HEADER_BYTES,
        (_, Framing::Fixed(_)) if design.polls_messages() => HEADER_BYTES,
        (_, Framing::Fixed(_)) => 0,
    }
}

/// Bytes behind a payload: the byte that says that all of it is there.
pub(crate) fn suffix(design: &Design) -> usize {
    usize::from(design.tail_sync == TailSync::PollMessage)
}

/// What a header word says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Header {
    /// Nothing was written here, or not all of it yet.
    Nothing,
    /// The rest of the array is skipped.
    Skip,
    /// A message of so many bytes.
    Length(usize),
}

/// The header of a message of `length` bytes, below 2^32.
#[inline(always)]
pub(crate) const fn encode(length: usize) -> [u8; HEADER_BYTES] {
    let length = length as u32;
    (length as u64 | (!length as u64) << 32).to_le_bytes()
}

/// Reads a header word.
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
            // What is missing may have been zeros.
            prop_assume!(half != encode(length as usize));
            prop_assert_eq!(decode(u64::from_le_bytes(half)), Header::Nothing);
        }
    }
}
