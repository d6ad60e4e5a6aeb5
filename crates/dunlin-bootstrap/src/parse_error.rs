//! The problems that a frame can have.

use crate::prefix::VERSION;

/// Why bytes are not a valid frame, or a message cannot be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseError {
    /// The magic is missing.
    #[error("not a Dunlin frame")]
    NotDunlin,
    /// The other side uses another version.
    #[error("unsupported version {theirs}: this side supports version {VERSION}")]
    Version {
        /// The other side's version.
        theirs: u16,
    },
    /// The bytes are not a valid message.
    #[error("unknown message")]
    Malformed,
    /// There are bytes after the message.
    #[error("trailing bytes after the message")]
    Trailing,
    /// A list has too many entries.
    #[error("too many {what}: the limit is {limit}")]
    TooMany {
        /// The list.
        what: &'static str,
        /// The maximum.
        limit: usize,
    },
    /// A name is empty, longer than [`NAME_BYTES`](crate::wire::NAME_BYTES) or not printable ASCII; or a text is too
    /// long or contains control characters.
    #[error("a {what} is empty, too long or not printable")]
    Name {
        /// The kind of name or text.
        what: &'static str,
    },
}
