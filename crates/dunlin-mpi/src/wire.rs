//! The header of every ring message: what it is, which context and tag it belongs to, and a length.
//!
//! A header has 16 bytes, two words in little endian: kind, context and tag in the first, a length or position in the
//! second. The source is not in it, because a ring belongs to one pair of ranks. The bytes come from another process,
//! so each field is checked before it is used.

/// The version of what ranks say to each other: of these headers, of the messages while a job assembles, and of which
/// messages each collective sends. Ranks of different versions do not join. It changes with any of these.
pub(crate) const VERSION: u64 = 1;
/// Length of a header in bytes.
pub(crate) const HEADER_BYTES: usize = 16;
/// The longest message in bytes, so that lengths stay far from overflow wherever they are added.
pub(crate) const MESSAGE_BYTES_MAX: u64 = 1 << 40;
/// In a [`Kind::Goodbye`]: no rank is the cause.
pub(crate) const NO_CAUSE: u32 = u32::MAX;

/// What a ring message contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A whole message; the length is that of its payload.
    Whole = 1,
    /// The first piece of a long message; the length is that of the long message.
    First = 2,
    /// A further piece; the length is its position in the long message.
    Piece = 3,
    /// The rank leaves the job. The tag is the lost rank that is the cause, or [`NO_CAUSE`].
    Goodbye = 4,
}

/// Messages match only receives of their own context, so that internal messages never match those of the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Context {
    /// Messages of the user.
    User = 0,
    /// Messages of collectives.
    Collective = 1,
    /// Messages while the job assembles.
    Join = 2,
}

/// A decoded header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    pub(crate) context: Context,
    pub(crate) tag: u32,
    pub(crate) length: u64,
}

/// A violation of the protocol by another rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// A ring message without space for a header.
    #[error("a ring message of {bytes} bytes, shorter than a header")]
    Short {
        /// Its length in bytes.
        bytes: usize,
    },
    /// An unknown kind or context.
    #[error("a header with the unknown kind or context {word:#x}")]
    Kind {
        /// The first half of the header's first word.
        word: u32,
    },
    /// A length that does not agree with the bytes that came.
    #[error("a length or position of {length} where {bytes} bytes came")]
    Length {
        /// The length in the header.
        length: u64,
        /// The number of bytes behind the header.
        bytes: usize,
    },
    /// A piece of a message that has not begun, or a message within another one.
    #[error("a piece out of its order")]
    Order,
}

impl Header {
    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let first = self.kind as u64 | (self.context as u64) << 8 | u64::from(self.tag) << 32;
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&first.to_le_bytes());
        bytes[8..].copy_from_slice(&self.length.to_le_bytes());
        bytes
    }

    /// Decodes the two words of a header in front of `bytes` bytes.
    pub(crate) fn decode(first: u64, length: u64, bytes: usize) -> Result<Self, Fault> {
        let word = first as u32;
        let kind = match word & 0xff {
            1 => Kind::Whole,
            2 => Kind::First,
            3 => Kind::Piece,
            4 => Kind::Goodbye,
            _ => return Err(Fault::Kind { word }),
        };
        let context = match word >> 8 {
            0 => Context::User,
            1 => Context::Collective,
            2 => Context::Join,
            _ => return Err(Fault::Kind { word }),
        };
        let fits = match kind {
            Kind::Whole => length == bytes as u64,
            Kind::First => bytes > 0 && length > bytes as u64 && length <= MESSAGE_BYTES_MAX,
            Kind::Piece => bytes > 0 && length <= MESSAGE_BYTES_MAX,
            Kind::Goodbye => true,
        };
        if !fits {
            return Err(Fault::Length { length, bytes });
        }
        Ok(Self {
            kind,
            context,
            tag: (first >> 32) as u32,
            length,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode(encoded: [u8; HEADER_BYTES], bytes: usize) -> Result<Header, Fault> {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| encoded[at + i]));
        Header::decode(word(0), word(8), bytes)
    }

    #[test]
    fn headers_come_back() {
        for kind in [Kind::Whole, Kind::First, Kind::Piece, Kind::Goodbye] {
            for context in [Context::User, Context::Collective, Context::Join] {
                let header = Header {
                    kind,
                    context,
                    tag: 0xdead_beef,
                    length: if kind == Kind::Whole { 5 } else { 77 },
                };
                assert_eq!(decode(header.encode(), 5), Ok(header));
            }
        }
    }

    proptest! {
        #[test]
        fn what_decodes_is_consistent(first: u64, length: u64, bytes in 0_usize..1 << 20) {
            if let Ok(header) = Header::decode(first, length, bytes) {
                prop_assert_eq!(header.encode()[..8].to_vec(), first.to_le_bytes().to_vec());
                match header.kind {
                    Kind::Whole => prop_assert_eq!(header.length, bytes as u64),
                    Kind::First => prop_assert!(header.length > bytes as u64),
                    Kind::Piece | Kind::Goodbye => {}
                }
            }
        }
    }
}
