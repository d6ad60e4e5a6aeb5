//! Detects when a queue pair holds no RECEIVE of a shared receive queue any more.
//!
//! A queue pair that has begun to fill a RECEIVE holds it, and completes it some time after it was moved to error. The
//! device reports when that is over (`IBV_EVENT_QP_LAST_WQE_REACHED`). If the queue pair is destroyed or reset earlier,
//! the completion is lost, and with it the entry of the shared queue and its buffer, because nothing tells which entry
//! it was.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long to wait for the device's report: it flushes its requests, which takes microseconds.
const PATIENCE: Duration = Duration::from_millis(100);
/// Interval between two checks.
const LOOK: Duration = Duration::from_micros(50);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct LastReceives {
    /// Queue pairs that may hold a RECEIVE, by address, and whether the device has reported that they do not.
    said: Mutex<HashMap<usize, bool>>,
    /// Set when the device has never sent a report and a wait for one has timed out. It is then assumed to send none,
    /// so that a server is not held up by each connection that ends.
    is_silent: AtomicBool,
    has_said: AtomicBool,
}

impl LastReceives {
    fn lock(&self) -> MutexGuard<'_, HashMap<usize, bool>> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tracks a queue pair, which consumes RECEIVEs from now on.
    pub(crate) fn watch(&self, queue_pair: usize) {
        self.lock().insert(queue_pair, false);
    }

    /// Records the device's report for this queue pair.
    pub(crate) fn say(&self, queue_pair: usize) {
        self.has_said.store(true, Ordering::Relaxed);
        self.is_silent.store(false, Ordering::Relaxed);
        if let Some(said) = self.lock().get_mut(&queue_pair) {
            *said = true;
        }
    }

    /// Waits for the device's report for a queue pair in error that is about to be destroyed or reset. `take_event`:
    /// the caller may itself be the event thread.
    pub(crate) fn wait(&self, queue_pair: usize, mut take_event: impl FnMut() -> bool) {
        let until = Instant::now() + PATIENCE;
        while self.lock().get(&queue_pair) == Some(&false) {
            if self.is_silent.load(Ordering::Relaxed) {
                break;
            }
            if Instant::now() >= until {
                let is_silent = !self.has_said.load(Ordering::Relaxed);
                self.is_silent.store(is_silent, Ordering::Relaxed);
                tracing::warn!(
                    is_silent,
                    "timed out waiting for the device to report that a queue pair holds no more RECEIVEs"
                );
                break;
            }
            if !take_event() {
                std::thread::sleep(LOOK);
            }
        }
        self.lock().remove(&queue_pair);
    }
}
