//! What can be wrong with a frame.

use crate::prefix::VERSION;

/// Why bytes are not the frame they should be, or a message cannot become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseError {
    /// The magic is not there.
    #[error("it does not begin as Dunlin's frames do")]
    NotDunlin,
    /// The other side speaks another version.
    #[error("it is of version {theirs}, not {VERSION}")]
    Version {
        /// The one it speaks.
        theirs: u16,
    },
    /// The bytes are no message.
    #[error("it holds no such message")]
    Malformed,
    /// There are bytes behind the message.
    #[error("there are bytes behind its end")]
    Trailing,
    /// Something has too many entries.
    #[error("more than {limit} {what}")]
    TooMany {
        /// What.
        what: &'static str,
        /// How many are allowed.
        limit: usize,
    },
    /// A name is empty, longer than [`NAME_BYTES`](crate::wire::NAME_BYTES) or not printable ASCII; a text is too long
    /// or holds control codes.
    #[error("a {what} is empty, too long or not printable")]
    Name {
        /// Of what.
        what: &'static str,
    },
}
