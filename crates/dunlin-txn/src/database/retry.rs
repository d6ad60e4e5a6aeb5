//! When a transaction is retried: growing pauses until its deadline.

use std::time::{Duration, Instant};

use dunlin_verbs::thread;

use super::DatabaseError;
use crate::host::Host;

/// Pauses: the first and the longest; each is twice the one before, shortened at random by up to a half.
const PAUSE: (Duration, Duration) = (Duration::from_micros(20), Duration::from_millis(5));

/// The attempts of one transaction.
#[derive(Debug)]
pub(super) struct Retry {
    began: Instant,
    deadline: Duration,
    attempts: u32,
    pause: Duration,
    random: fastrand::Rng,
}

impl Retry {
    pub(super) fn within(deadline: Duration, host: &dyn Host) -> Self {
        Self {
            began: thread::now(),
            deadline,
            attempts: 0,
            pause: PAUSE.0,
            random: fastrand::Rng::with_seed(host.number().unwrap_or(0)),
        }
    }

    /// Returns how long to wait before a transaction that has failed with this error is retried. `replaced`: whether
    /// the database's machines are replaced when they fail.
    ///
    /// # Errors
    /// When it should not be retried: nothing would change, or not within the deadline.
    pub(super) fn pause(
        &mut self,
        failed: DatabaseError,
        replaced: impl FnOnce() -> bool,
    ) -> Result<Duration, DatabaseError> {
        self.attempts += 1;
        let waited = self.pause.mul_f64(0.5 + self.random.f64() / 2.0);
        self.pause = (self.pause * 2).min(PAUSE.1);
        // If machines are replaced when they fail, one that does not answer is replaced soon.
        let unavailable = matches!(failed, DatabaseError::Unavailable { .. });
        let again = failed.is_retryable() || (unavailable && replaced());
        let elapsed = thread::now().duration_since(self.began);
        match again && elapsed + waited < self.deadline {
            true => Ok(waited),
            false => Err(failed.after(self.attempts, elapsed)),
        }
    }
}
