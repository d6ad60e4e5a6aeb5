//! Returns memory of ended connections to the system.
//!
//! A connection's heap objects are small and lie between those of others, so the allocator keeps the pages when
//! thousands of connections end: a server kept 40 KiB for each connection of its historical peak.

use std::time::{Duration, Instant};

/// Number of ended queue pairs that is worth the work, which takes some ten milliseconds for thousands.
const MANY: usize = 64;
/// Delay after the last of them: its other objects end after it, and more may follow.
const AFTER: Duration = Duration::from_millis(100);

/// Returns memory some time after many queue pairs have ended. Driven by the control thread.
#[derive(Debug, Default)]
pub(crate) struct Trim {
    ended: usize,
    at: Option<Instant>,
}

impl Trim {
    /// Records that a queue pair has ended.
    pub(crate) fn queue_pair_ended(&mut self) {
        self.ended += 1;
        if self.ended >= MANY {
            self.at = Some(Instant::now() + AFTER);
        }
    }

    /// When [`Trim::expire`] has something to do.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.at
    }

    /// Returns free memory, if it is time.
    pub(crate) fn expire(&mut self, now: Instant) {
        if self.at.is_some_and(|at| at <= now) {
            *self = Self::default();
            trim();
        }
    }
}

#[cfg(all(target_env = "gnu", not(miri)))]
fn trim() {
    // SAFETY: thread-safe, and touches only pages that the allocator has free.
    unsafe { libc::malloc_trim(0) };
}

/// Other allocators have their own mechanisms.
#[cfg(not(all(target_env = "gnu", not(miri))))]
fn trim() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_until_many_have_ended_and_a_while_longer() {
        let mut trim = Trim::default();
        for _ in 1..MANY {
            trim.queue_pair_ended();
        }
        assert_eq!(trim.deadline(), None);
        trim.queue_pair_ended();
        let at = trim.deadline().unwrap();
        trim.expire(at - AFTER / 2);
        assert_eq!(trim.deadline(), Some(at));
        trim.expire(at);
        assert_eq!((trim.deadline(), trim.ended), (None, 0));
    }
}
