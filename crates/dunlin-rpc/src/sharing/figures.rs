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
    /// Threads, pipelines and futures' lanes that use the handle.
    pub threads: usize,
    /// The lane of each of them, in order of their ids (FLOCK's thread-to-QP map).
    pub assignment: Vec<usize>,
    /// Threads that the scheduler has moved to another lane so far.
    pub migrations: u64,
    /// Requests for each message that was written, over the handle's life.
    pub coalescing_degree: f64,
}

/// Live figures of one lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LaneReport {
    /// The server wants requests on it.
    pub active: bool,
    /// It takes calls: neither lost nor left by the server.
    pub open: bool,
    /// Credits left; zero when the server does not count.
    pub credits: u32,
    /// Messages written.
    pub messages: u64,
    /// Requests in them.
    pub requests: u64,
    /// Threads that had requests in them, summed over the messages.
    pub threads: u64,
    /// One-sided operations.
    pub operations: u64,
    /// How often some of them were posted together.
    pub lists: u64,
}

impl HandleFigures {
    /// Of these lanes, threads, the lane of each, and moves.
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
        let (status, figures) = (lane.status(), lane.figures());
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
