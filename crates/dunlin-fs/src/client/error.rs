//! The errors of operations on the file system.

use dunlin::{CallError, ConnectError};

use crate::types::{Errno, Refused};

/// An operation failed.
#[derive(Debug, thiserror::Error)]
pub enum FsError {
    /// Refused, as by an operating system: no such file, no space.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// A server could not be reached within the client's patience. The operation may have been executed.
    #[error("no response from {address} for {seconds} s: {source}")]
    Unreachable {
        /// The server's address.
        address: String,
        /// Time spent trying, in seconds.
        seconds: u64,
        /// The last error.
        #[source]
        source: Box<CallError>,
    },
    /// A server's answer is not understood by this version.
    #[error("{0} is not a server of this version's file system: {1}")]
    Strange(String, String),
    /// Connecting failed.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// A thread could not be started.
    #[error("thread: {0}")]
    Thread(#[source] std::io::Error),
}

impl FsError {
    /// The error number that fits best.
    pub fn errno(&self) -> Errno {
        match self {
            Self::Refused(Refused(errno)) => *errno,
            _ => Errno::IO,
        }
    }
}

impl From<Errno> for FsError {
    fn from(errno: Errno) -> Self {
        Self::Refused(Refused(errno))
    }
}

impl From<FsError> for std::io::Error {
    fn from(error: FsError) -> Self {
        match error {
            FsError::Refused(Refused(errno)) => Self::from_raw_os_error(i32::from(errno.0)),
            other => Self::other(other),
        }
    }
}
