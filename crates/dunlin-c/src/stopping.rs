//! A server that is being stopped by a separate thread, and waiting for that.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A server that another thread stops.
#[derive(Debug, Default)]
pub(crate) struct Stopping {
    /// Whether everything was answered; set when it has stopped.
    drained: Mutex<Option<bool>>,
    changed: Condvar,
}

impl Stopping {
    /// Reports that it has stopped.
    pub(crate) fn ended(&self, drained: bool) {
        self.drained
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert(drained);
        self.changed.notify_all();
    }

    /// Returns whether everything was answered, after waiting for at most `within`, or without a limit if that is
    /// `None`. Returns `None` if the time has run out.
    pub(crate) fn wait(&self, within: Option<Duration>) -> Option<bool> {
        let began = Instant::now();
        let mut drained = self.drained.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if drained.is_some() {
                return *drained;
            }
            drained = match within {
                None => self
                    .changed
                    .wait(drained)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(within) => {
                    let left = within.checked_sub(began.elapsed())?;
                    let waited = self.changed.wait_timeout(drained, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}
