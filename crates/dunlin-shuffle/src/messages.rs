//! The messages between coordinator and workers: JSON objects, one per line, over a worker's standard input and output.

use std::ops::Range;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::plan::Plan;
use crate::splitters::Splitters;
use crate::Summary;

/// Maximum length of a line: the splitters and addresses of the maximum number of workers are a few kilobytes.
pub(crate) const LINE_BYTES: usize = 1 << 20;

/// A worker's job, as far as it is known at the start.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    /// The worker's number, from 0 on.
    pub(crate) number: usize,
    pub(crate) input: PathBuf,
    /// The records that it maps.
    pub(crate) records: Range<u64>,
    pub(crate) output: PathBuf,
    /// Folder for spilled files.
    pub(crate) spill: PathBuf,
    pub(crate) plan: Plan,
    pub(crate) splitters: Splitters,
    pub(crate) workers: usize,
    pub(crate) device: String,
    pub(crate) preset: String,
    /// The secret of all workers, in hexadecimal.
    pub(crate) secret: String,
    /// Time that another worker may leave a request unanswered.
    pub(crate) patience_ms: u64,
}

/// An order of the coordinator.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    Prepare(Box<Job>),
    /// Map and send; the workers listen at these addresses.
    Map(Vec<String>),
    /// All records are in their partitions: merge. The first record of this worker's partition goes to this position.
    Merge(u64),
}

/// A message of a worker.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    Listening(String),
    /// Number of records mapped and written so far; sent at least ten times a second.
    At {
        mapped: u64,
        written: u64,
    },
    /// All records have been read and sent.
    Mapped(Summary),
    /// All records of the partition have been received.
    Received(Received),
    /// All are in the output.
    Written(Summary),
    Failed {
        why: String,
        /// The other worker concerned, from 1 on.
        peer: Option<usize>,
    },
}

/// What a worker has received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Received {
    pub(crate) records: u64,
    /// Number of sorted runs that were written to files.
    pub(crate) spilled_runs: u64,
    pub(crate) spilled_bytes: u64,
}
