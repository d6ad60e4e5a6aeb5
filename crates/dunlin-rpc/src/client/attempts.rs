//! Attempts to make a new lane for a thread or pipeline that already has one: it keeps the present lane until there is
//! another, and neither its calls nor the server should bear the cost of every attempt.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use dunlin_verbs::thread;

use super::recipe::{Recipe, Successor};

/// A first attempt may take the call's time divided by this: the rest is left to execute the call on the former lane.
const SHARE: u32 = 2;
/// Maximum duration of a first attempt, however much time the call has.
const FIRST: Duration = Duration::from_secs(1);
/// Pause before the next attempt after the first failure, which doubles with each failure, and its maximum.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Consecutive failures to change to another lane.
#[derive(Default)]
pub(super) struct Attempts {
    pause: Duration,
    /// The time that the last failed attempt was allowed to take.
    allowed: Duration,
    failed: Option<Failed>,
}

/// The last failure.
struct Failed {
    /// The recipe that was to make the lane.
    recipe: Weak<Recipe>,
    /// When that may be tried again.
    again: Instant,
}

impl Attempts {
    /// Filters out another lane while it is too early to try again. `current` returns the recipe that would make it
    /// now.
    #[inline]
    pub(super) fn but_failed(
        &self,
        successor: Option<Successor>,
        current: impl FnOnce() -> Option<Arc<Recipe>>,
    ) -> Option<Successor> {
        match (successor, &self.failed) {
            (Some(Successor::Another), Some(failed)) => {
                successor.filter(|_| failed.is_over(current))
            }
            _ => successor,
        }
    }

    /// The time that the next attempt may take, for a call with the deadline `limit`: twice that of the last failed
    /// one, up to three quarters of `limit`, so that a slow handshake eventually succeeds. A pipeline's calls have its
    /// client's deadline.
    pub(super) fn allowed(&self, limit: Duration) -> Duration {
        let first = (limit / SHARE).min(FIRST);
        first.max(self.allowed.saturating_mul(2)).min(limit / 4 * 3)
    }

    /// Records the failure of an attempt that began at `began` and was allowed to take `allowed`.
    pub(super) fn failed(&mut self, recipe: &Arc<Recipe>, (began, allowed): (Instant, Duration)) {
        let now = thread::now();
        // A failure that came at once does not show that the next attempt needs more time.
        if now.duration_since(began) >= allowed {
            self.allowed = allowed;
        }
        self.pause = (2 * self.pause).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        self.failed = Some(Failed {
            recipe: Arc::downgrade(recipe),
            // At least half of the time is for calls.
            again: now + self.pause.max(now.duration_since(began)),
        });
    }
}

impl Failed {
    /// Whether the failure no longer matters: some time has passed, or there is another recipe, which may have made
    /// lanes in advance.
    #[cold]
    fn is_over(&self, current: impl FnOnce() -> Option<Arc<Recipe>>) -> bool {
        let is_same = |now: Arc<Recipe>| std::ptr::eq(Arc::as_ptr(&now), self.recipe.as_ptr());
        thread::now() >= self.again || !current().is_some_and(is_same)
    }
}
