//! Live figures of a connection handle and its lanes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::lane::SharedLane;

/// Live figures of a connection handle.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HandleFigures {
    /// One entry for each lane.
    pub lanes: Vec<LaneReport>,
    /// Number of threads, pipelines and futures' lanes that use the handle.
    pub threads: usize,
    /// The lane of each of them, in order of their ids (FLOCK's thread-to-QP map).
    pub assignment: Vec<usize>,
    /// Number of times that the scheduler has moved a thread to another lane.
    pub migrations: u64,
    /// Requests per message written, over the handle's lifetime.
    pub coalescing_degree: f64,
}

/// Live figures of one lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LaneReport {
    /// Whether the server wants requests on it.
    pub active: bool,
    /// Whether it takes calls: it is neither lost nor has the server said goodbye.
    pub open: bool,
    /// Credits left; zero if the server does not count them.
    pub credits: u32,
    /// Number of messages written.
    pub messages: u64,
    /// Number of requests in them.
    pub requests: u64,
    /// Number of threads that had requests in a message, summed over the messages.
    pub threads: u64,
    /// Number of one-sided operations.
    pub operations: u64,
    /// Number of times that some of them were posted together.
    pub lists: u64,
}

impl HandleFigures {
    /// Makes the figures from the lanes, the number of threads, the lane of each, and the number of moves.
    pub(super) fn new<'a>(
        lanes: impl Iterator<Item = &'a Arc<dyn SharedLane>>,
        threads: usize,
        assignment: Vec<usize>,
        migrations: u64,
    ) -> Self {
        let lanes: Vec<LaneReport> = lanes.map(LaneReport::of).collect();
        let messages: u64 = lanes.iter().map(|lane| lane.messages).sum();
        let requests: u64 = lanes.iter().map(|lane| lane.requests).sum();
        Self {
            threads,
            assignment,
            migrations,
            coalescing_degree: requests as f64 / messages.max(1) as f64,
            lanes,
        }
    }
}

impl LaneReport {
    fn of(lane: &Arc<dyn SharedLane>) -> Self {
        let status = lane.status();
        let figures = &status.figures;
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Self {
            active: status.is_active(),
            open: status.is_open(),
            credits: figures.credits.load(Ordering::Relaxed),
            messages: load(&figures.messages),
            requests: load(&figures.requests),
            threads: load(&figures.threads),
            operations: load(&figures.operations),
            lists: load(&figures.lists),
        }
    }
}
