//! What threads that request and who measures them share: how much was done, and how long it took.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Requests that are done.
#[derive(Debug, Default)]
pub struct Done {
    /// How many.
    pub count: AtomicU64,
    /// Whether the time of each is kept.
    timing: AtomicBool,
    times_ns: Mutex<Vec<u64>>,
    enough: AtomicBool,
}

impl Done {
    /// From now on the time of each is kept.
    pub fn time(&self) {
        self.timing.store(true, Ordering::Relaxed);
    }

    /// The times, sorted, that have been kept since it was last asked.
    pub fn take(&self) -> Vec<u64> {
        let mut times = self.times_ns.lock().unwrap_or_else(PoisonError::into_inner);
        let mut times = std::mem::take(&mut *times);
        times.sort_unstable();
        times
    }

    /// Threads that count here end.
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
