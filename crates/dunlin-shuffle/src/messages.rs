//! What coordinator and workers say to each other: objects of JSON, one on a line, over a worker's standard input and
//! output.

use std::ops::Range;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::plan::Plan;
use crate::splitters::Splitters;
use crate::Summary;

/// The longest line: the splitters and addresses of the most workers are a few kilobytes.
pub(crate) const LINE_BYTES: usize = 1 << 20;

/// What a worker is to do, as far as it is known at the start.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    /// Its number, from 0 on.
    pub(crate) number: usize,
    pub(crate) input: PathBuf,
    /// The records that it maps.
    pub(crate) records: Range<u64>,
    pub(crate) output: PathBuf,
    /// Folder for what does not fit into memory.
    pub(crate) spill: PathBuf,
    pub(crate) plan: Plan,
    pub(crate) splitters: Splitters,
    pub(crate) workers: usize,
    pub(crate) device: String,
    pub(crate) preset: String,
    /// What all workers prove to each other to know, in hexadecimal.
    pub(crate) secret: String,
    /// How long another worker may leave a question unanswered.
    pub(crate) patience_ms: u64,
}

/// From the coordinator.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    Prepare(Box<Job>),
    /// The workers listen at these addresses.
    Map(Vec<String>),
    /// All is where it belongs. The first record of this worker's partition goes there.
    Merge(u64),
}

/// From a worker.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    Listening(String),
    /// So many records are mapped and written; said at least ten times a second.
    At {
        mapped: u64,
        written: u64,
    },
    /// All records were read and have been sent.
    Mapped(Summary),
    /// All records of the partition are here.
    Received(Received),
    /// They are in the output.
    Written(Summary),
    Failed {
        why: String,
        /// The worker that it is about, from 1 on.
        peer: Option<usize>,
    },
}

/// What came to a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Received {
    pub(crate) records: u64,
    /// Sorted runs that were written to files.
    pub(crate) spilled_runs: u64,
    pub(crate) spilled_bytes: u64,
}
