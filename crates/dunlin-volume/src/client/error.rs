//! The errors of operations on volumes.

use dunlin::CallError;

use crate::types::{ShapeError, BLOCK_BYTES};
use crate::wire::code;

/// The error of an operation on a volume.
#[derive(Clone, Debug, thiserror::Error)]
pub enum VolumeError {
    /// The shape is invalid.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// An offset or length that is not a multiple of a block.
    #[error("{0} bytes are not a multiple of the block size, {BLOCK_BYTES} bytes")]
    Unaligned(u64),
    /// A range that is empty or not within the volume.
    #[error("{length} bytes at offset {offset} exceed the volume of {bytes} bytes")]
    Range {
        /// The offset.
        offset: u64,
        /// The length.
        length: u64,
        /// Length of the volume in bytes.
        bytes: u64,
    },
    /// A range that is too long for one request.
    #[error("request too long: {length} bytes, the limit is {longest}")]
    TooLong {
        /// The length.
        length: u64,
        /// The maximum.
        longest: u64,
    },
    /// No server that answers has such a volume.
    #[error("no volume '{0}' on these servers: create it with `dunlin volume create`")]
    Unknown(String),
    /// There is already a volume of this name.
    #[error("the volume '{name}' already exists at {address}")]
    Exists {
        /// The name.
        name: String,
        /// The server's address.
        address: String,
    },
    /// The servers are not in the order in which the volume was created.
    #[error("{0}: specify the servers in the order in which the volume was created")]
    Order(String),
    /// Too few copies are available. The operation may have been executed.
    #[error("only {have} of {want} required copies are available: {why}")]
    TooFew {
        /// Number of copies that answer and have lost nothing.
        have: u32,
        /// Number of copies needed.
        want: u32,
        /// Why another one is not available.
        why: String,
    },
    /// Another client has opened the volume since, and this one can no longer be used.
    #[error("the volume was opened again elsewhere: this client can no longer use it")]
    Replaced,
    /// All copies of a block are damaged.
    #[error("cannot read block {0} from any copy")]
    Damaged(u64),
    /// The maximum number of opens of the volume, or of writes in one open, is reached.
    #[error("out of {0}")]
    Exhausted(&'static str),
    /// A server refused, or did not answer.
    #[error("{address}: {source}")]
    Server {
        /// Its address.
        address: String,
        /// Its error.
        source: CallError,
    },
    /// A server's answer is not understood by this version.
    #[error("{0} does not support this version's protocol")]
    Strange(String),
    /// A system error.
    #[error("system error: {0}")]
    System(String),
}

impl VolumeError {
    pub(super) fn system(error: &std::io::Error) -> Self {
        Self::System(error.to_string())
    }

    /// Converts the error of a call to a server.
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

    /// Whether the server has no such volume.
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
