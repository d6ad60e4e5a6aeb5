//! The errors of a sort.

use std::io;
use std::path::{Path, PathBuf};

use dunlin::{CallError, ConnectError, ServeError, TransferError};

use crate::plan::TooLittleMemory;
use crate::Summary;

/// A file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// An I/O error.
    #[error("{}: {source}", path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Its length is not a multiple of a record's.
    #[error(
        "the length of {} is {bytes} bytes, not a multiple of the record size of 100 bytes: {} bytes are left over",
        path.display(),
        bytes % 100
    )]
    Shape {
        /// The file.
        path: PathBuf,
        /// Its length.
        bytes: u64,
    },
}

impl FileError {
    pub(crate) fn of(path: &Path, source: io::Error) -> Self {
        Self::System {
            path: path.to_owned(),
            source,
        }
    }
}

/// A sort that was not completed. The output is unchanged, and no other files are left.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SortError {
    /// The input or the output cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// There is not enough memory.
    #[error(transparent)]
    Memory(#[from] TooLittleMemory),
    /// The number of workers is zero or too high.
    #[error("invalid number of workers {0}: it must be from 1 to {max}", max = crate::WORKERS_MAX)]
    Workers(usize),
    /// A worker's process cannot be started.
    #[error("cannot start worker {worker}: {source}")]
    Start {
        /// The worker, from 1 on.
        worker: usize,
        /// The system's error.
        source: io::Error,
    },
    /// A worker's process has ended before its work was done.
    #[error("worker {worker} (process {process}) ended with {status} while workers were {phase}")]
    Died {
        /// The worker, from 1 on.
        worker: usize,
        /// Its process id.
        process: u32,
        /// Its exit status.
        status: String,
        /// The phase.
        phase: crate::Phase,
    },
    /// A worker has been silent for too long.
    #[error(
        "worker {worker} (process {process}) has not responded for {seconds} s while workers were {phase}: it is \
         stuck, or the machine is overloaded"
    )]
    Silent {
        /// The worker, from 1 on.
        worker: usize,
        /// Its process id.
        process: u32,
        /// The time in seconds.
        seconds: u64,
        /// The phase.
        phase: crate::Phase,
    },
    /// A worker has failed.
    #[error("worker {worker} (process {process}): {why}")]
    Failed {
        /// The worker, from 1 on.
        worker: usize,
        /// Its process id.
        process: u32,
        /// Its own error text.
        why: String,
    },
    /// A worker's message is invalid.
    #[error("protocol violation by worker {worker}: {why}")]
    Protocol {
        /// The worker, from 1 on.
        worker: usize,
        /// The problem.
        why: String,
    },
    /// The records that were written are not those of the input in order.
    #[error(
        "the output is not the sorted input: {} records of {}, checksum {:016x} of {:016x}, {} out of order",
        output.records, input.records, output.checksum, input.checksum, output.unordered
    )]
    Wrong {
        /// Summary of the input.
        input: Box<Summary>,
        /// Summary of the output.
        output: Box<Summary>,
    },
    /// The caller has ended the sort.
    #[error("interrupted")]
    Interrupted,
}

/// Why a worker has failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WorkError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("cannot start the server: {0}")]
    Serve(#[from] ServeError),
    #[error("cannot connect to worker {worker}: {source}")]
    Connect { worker: usize, source: ConnectError },
    #[error("no response from worker {worker}: {source}")]
    Call { worker: usize, source: CallError },
    #[error("cannot send to worker {worker}: {source}")]
    Transfer {
        worker: usize,
        source: TransferError,
    },
    #[error("invalid message from worker {worker}: {what}")]
    Nonsense { worker: usize, what: &'static str },
    #[error("cannot spill records: {0}")]
    Spill(String),
    #[error(
        "more than {runs} runs of {bytes} bytes were spilled, too many to merge in this memory: increase it (--memory)"
    )]
    Runs { runs: usize, bytes: usize },
    #[error("invalid order: {0}")]
    Order(String),
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    #[error("a thread of this worker panicked")]
    Panicked,
}

impl WorkError {
    /// The other worker concerned, from 1 on, which may be the cause.
    pub(crate) fn peer(&self) -> Option<usize> {
        match self {
            Self::Connect { worker, .. }
            | Self::Call { worker, .. }
            | Self::Transfer { worker, .. }
            | Self::Nonsense { worker, .. } => Some(*worker),
            _ => None,
        }
    }
}
