//! What can go wrong, in words for people.

use std::io;
use std::path::{Path, PathBuf};

use dunlin::{CallError, ConnectError, ServeError, TransferError};

use crate::plan::TooLittleMemory;
use crate::Summary;

/// A file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The system refuses.
    #[error("{}: {source}", path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// Its length is no multiple of a record's.
    #[error(
        "{} has {bytes} bytes, which are no whole records of 100 bytes: {} are left over",
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

/// A sort that did not come to its end. The output is as it was before, and nothing else is left.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SortError {
    /// The input or the output cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// There is too little memory.
    #[error(transparent)]
    Memory(#[from] TooLittleMemory),
    /// There are no workers, or too many.
    #[error("{0} workers: from 1 to {max}", max = crate::WORKERS_MAX)]
    Workers(usize),
    /// A worker's process cannot be started.
    #[error("worker {worker} cannot be started: {source}")]
    Start {
        /// Which, from 1 on.
        worker: usize,
        /// What the system said.
        source: io::Error,
    },
    /// A worker's process has ended before its work.
    #[error("worker {worker} (process {process}) ended with {status} while workers were {phase}")]
    Died {
        /// Which, from 1 on.
        worker: usize,
        /// Its number at the system.
        process: u32,
        /// How it ended.
        status: String,
        /// What was being done.
        phase: crate::Phase,
    },
    /// A worker has said nothing for too long.
    #[error(
        "worker {worker} (process {process}) has said nothing for {seconds} s while workers were {phase}: \
         it stands still, or the machine is overloaded"
    )]
    Silent {
        /// Which, from 1 on.
        worker: usize,
        /// Its number at the system.
        process: u32,
        /// For so long.
        seconds: u64,
        /// What was being done.
        phase: crate::Phase,
    },
    /// A worker could not do its part.
    #[error("worker {worker} (process {process}): {why}")]
    Failed {
        /// Which, from 1 on.
        worker: usize,
        /// Its number at the system.
        process: u32,
        /// Its own words.
        why: String,
    },
    /// A worker says what makes no sense.
    #[error("worker {worker} does not speak as a worker does: {why}")]
    Protocol {
        /// Which, from 1 on.
        worker: usize,
        /// What is wrong.
        why: String,
    },
    /// The records that were written are not those of the input in order.
    #[error(
        "the output is not the input in order: {} records of {}, checksum {:016x} of {:016x}, {} out of order",
        output.records, input.records, output.checksum, input.checksum, output.unordered
    )]
    Wrong {
        /// What was read.
        input: Box<Summary>,
        /// What was written.
        output: Box<Summary>,
    },
    /// Whoever asked for it does not want it any more.
    #[error("interrupted before the end")]
    Interrupted,
}

/// Why a worker cannot do its part.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WorkError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("no server: {0}")]
    Serve(#[from] ServeError),
    #[error("no connection to worker {worker}: {source}")]
    Connect { worker: usize, source: ConnectError },
    #[error("no answer from worker {worker}: {source}")]
    Call { worker: usize, source: CallError },
    #[error("sending to worker {worker}: {source}")]
    Transfer {
        worker: usize,
        source: TransferError,
    },
    #[error("worker {worker} says what makes no sense: {what}")]
    Nonsense { worker: usize, what: &'static str },
    #[error("records cannot be spilled: {0}")]
    Spill(String),
    #[error(
        "more than {runs} runs of {bytes} bytes were spilled, which the memory is too small to merge: \
         give more (--memory)"
    )]
    Runs { runs: usize, bytes: usize },
    #[error("told what makes no sense: {0}")]
    Order(String),
    #[error("a thread: {0}")]
    Thread(io::Error),
    #[error("a thread of this worker has ended, and said no more")]
    Panicked,
}

impl WorkError {
    /// The other worker that it is about, from 1 on: that one may be the cause.
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
