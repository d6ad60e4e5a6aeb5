//! State shared by requesting threads and the measuring code: number and times of completed requests.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Completed requests.
#[derive(Debug, Default)]
pub struct Done {
    /// Number of completed requests.
    pub count: AtomicU64,
    /// Whether the time of each is recorded.
    timing: AtomicBool,
    times_ns: Mutex<Vec<u64>>,
    enough: AtomicBool,
}

impl Done {
    /// Records the time of each from now on.
    pub fn time(&self) {
        self.timing.store(true, Ordering::Relaxed);
    }

    /// The times recorded since the last call, sorted.
    pub fn take(&self) -> Vec<u64> {
        let mut times = self.times_ns.lock().unwrap_or_else(PoisonError::into_inner);
        let mut times = std::mem::take(&mut *times);
        times.sort_unstable();
        times
    }

    /// Ends the threads that count here.
    pub fn end(&self) {
        self.enough.store(true, Ordering::Relaxed);
    }

    pub(super) fn are_enough(&self) -> bool {
        self.enough.load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, count: u64) {
        self.count.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn time_of(&self, took_ns: u64) {
        if self.timing.load(Ordering::Relaxed) {
            let mut times = self.times_ns.lock().unwrap_or_else(PoisonError::into_inner);
            times.push(took_ns);
        }
    }
}
