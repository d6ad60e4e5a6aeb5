//! When a queue pair holds no RECEIVE of a shared receive queue any more.
//!
//! One that has begun to fill a RECEIVE holds it, and completes it some time after the queue pair was moved to error.
//! The device says when that is over (`IBV_EVENT_QP_LAST_WQE_REACHED`). Who destroys or resets the queue pair sooner
//! loses the completion, and with it the entry of the shared queue and its buffer: nobody can tell which of them it
//! was.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long the device may take to say it: it flushes what it has, which are microseconds.
const PATIENCE: Duration = Duration::from_millis(100);
/// Between two looks.
const LOOK: Duration = Duration::from_micros(50);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct LastReceives {
    /// Queue pairs that may hold a RECEIVE, by their addresses, and whether the device has said that they do not.
    said: Mutex<HashMap<usize, bool>>,
    /// It has said it of none, and was waited for in vain. Then it does not at all, and a server is not held up by each
    /// connection that ends.
    is_silent: AtomicBool,
    has_said: AtomicBool,
}

impl LastReceives {
    fn lock(&self) -> MutexGuard<'_, HashMap<usize, bool>> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on this queue pair takes RECEIVEs.
    pub(crate) fn watch(&self, queue_pair: usize) {
        self.lock().insert(queue_pair, false);
    }

    /// The device says it of this queue pair.
    pub(crate) fn say(&self, queue_pair: usize) {
        self.has_said.store(true, Ordering::Relaxed);
        self.is_silent.store(false, Ordering::Relaxed);
        if let Some(said) = self.lock().get_mut(&queue_pair) {
            *said = true;
        }
    }

    /// Waits until the device has said it of a queue pair in error, which is to end now. `take_event`: the thread of
    /// events may be the one that waits.
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
                    "the device did not say in time that a queue pair holds no RECEIVE any more"
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
