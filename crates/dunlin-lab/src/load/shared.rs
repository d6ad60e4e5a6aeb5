//! State shared by the threads of an RPC load and the measuring code.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::Mutex;

use dunlin::CallError;
use dunlin_sim::Cluster;

/// State shared by the threads and the measuring code.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Whether threads make only one call now and then, so that schedulers learn who sends what.
    pub(super) paced: AtomicBool,
    pub(super) measuring: AtomicBool,
    pub(super) stopping: AtomicBool,
    pub(super) calls: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) wrong: AtomicU64,
    pub(super) running: AtomicUsize,
    pub(super) latencies_ns: Mutex<Vec<u64>>,
    /// Longest time until a failed call was reported.
    pub(super) told_ns: AtomicU64,
}

impl Shared {
    /// Counts an answer that is an error or not what `is_right` wants; only others count as calls with a latency.
    pub(super) fn is_right(
        &self,
        answer: Result<&[u8], CallError>,
        is_right: impl FnOnce(&[u8]) -> bool,
    ) -> bool {
        let counter = match answer {
            Ok(bytes) if is_right(bytes) => return true,
            Ok(_) => &self.wrong,
            Err(_) => &self.failed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        false
    }

    /// Number of calls that failed, and of those with wrong answers.
    pub(super) fn failed(&self) -> (u64, u64) {
        (
            self.failed.load(Ordering::Relaxed),
            self.wrong.load(Ordering::Relaxed),
        )
    }

    /// Ends the threads: each waits for the end of what it has begun.
    ///
    /// # Panics
    /// When a thread does not end within `most_ms` virtual milliseconds.
    pub(super) fn stop(&self, cluster: &Cluster, most_ms: usize) {
        self.stopping.store(true, Ordering::Relaxed);
        for _ in 0..most_ms {
            if self.running.load(Ordering::Relaxed) == 0 {
                break;
            }
            cluster.run_for(1_000_000);
        }
        let running = self.running.load(Ordering::Relaxed);
        assert_eq!(running, 0, "threads that do not end");
    }
}
