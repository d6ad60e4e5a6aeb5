//! Why an operation on the file system did not do what was asked.

use dunlin::{CallError, ConnectError};

use crate::types::{Errno, Refused};

/// An operation failed.
#[derive(Debug, thiserror::Error)]
pub enum FsError {
    /// As an operating system refuses: no such file, no space.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// A server could not be reached for as long as the client has patience. What was asked may have been done.
    #[error("no answer of {address} for {seconds} s: {source}")]
    Unreachable {
        /// Which server.
        address: String,
        /// How long it was tried.
        seconds: u64,
        /// The last error.
        #[source]
        source: Box<CallError>,
    },
    /// A server said what this version does not understand.
    #[error("{0} is no server of this version's file system: {1}")]
    Strange(String, String),
    /// No connection at the start.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// A thread could not be started.
    #[error("thread: {0}")]
    Thread(#[source] std::io::Error),
}

impl FsError {
    /// The error number that says it best.
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
