//! Why something could not be done with a volume.

use dunlin::CallError;

use crate::types::{ShapeError, BLOCK_BYTES};
use crate::wire::code;

/// It could not be done.
#[derive(Clone, Debug, thiserror::Error)]
pub enum VolumeError {
    /// No volume can be so.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// Bytes that are no multiple of a block.
    #[error("{0} bytes are no multiple of {BLOCK_BYTES}, a block")]
    Unaligned(u64),
    /// Bytes that the volume has not, or none.
    #[error("{length} bytes at {offset}: the volume has {bytes}")]
    Range {
        /// Where.
        offset: u64,
        /// How many.
        length: u64,
        /// Bytes of the volume.
        bytes: u64,
    },
    /// Bytes that are too many for one request.
    #[error("{length} bytes in one request: at most {longest}")]
    TooLong {
        /// How many.
        length: u64,
        /// How many there may be.
        longest: u64,
    },
    /// There is no such volume on any server that answers.
    #[error("no volume '{0}' on these servers: `dunlin volume create` makes one")]
    Unknown(String),
    /// There is a volume of this name.
    #[error("there is a volume '{name}' at {address}")]
    Exists {
        /// The name.
        name: String,
        /// Where.
        address: String,
    },
    /// The servers were not given as when the volume was made.
    #[error("{0}: give the servers in the order in which the volume was made")]
    Order(String),
    /// Too few copies can be had. What was asked before may have been done.
    #[error("{have} of {want} copies that are needed can be had: {why}")]
    TooFew {
        /// Copies that have lost nothing and answer.
        have: u32,
        /// How many are needed.
        want: u32,
        /// Why one more does not.
        why: String,
    },
    /// Somebody else has opened the volume since, and this one does nothing any more.
    #[error("the volume was opened anew elsewhere: this client may not use it any more")]
    Replaced,
    /// All copies of a block are damaged.
    #[error("block {0} cannot be read from any copy")]
    Damaged(u64),
    /// The volume was opened as often as it may be, or written as often in one open.
    #[error("no more {0}")]
    Exhausted(&'static str),
    /// A server refused, or did not answer.
    #[error("{address}: {source}")]
    Server {
        /// Which.
        address: String,
        /// What it said.
        source: CallError,
    },
    /// A server said what this version does not understand.
    #[error("{0} does not speak this version's protocol")]
    Strange(String),
    /// The system.
    #[error("the system: {0}")]
    System(String),
}

impl VolumeError {
    pub(super) fn system(error: &std::io::Error) -> Self {
        Self::System(error.to_string())
    }

    /// What a server has said to a call.
    pub(super) fn of_call(address: &str, error: CallError) -> Self {
        match error {
            CallError::Handler {
                code: code::REPLACED,
                ..
            } => Self::Replaced,
            source => Self::Server {
                address: address.to_owned(),
                source,
            },
        }
    }

    /// Whether the server said that it has no such volume.
    pub(super) fn is_unknown(&self) -> bool {
        let Self::Server { source, .. } = self else {
            return false;
        };
        matches!(
            source,
            CallError::Handler {
                code: code::UNKNOWN,
                ..
            }
        )
    }
}
