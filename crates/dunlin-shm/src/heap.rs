//! Memory of connections that have ended, back to the system.
//!
//! What a connection has on the heap is small and lies between what others have, so the allocator keeps its pages when
//! thousands of connections end: a server held 40 KiB for each connection that it ever had at once.

use std::time::{Duration, Instant};

/// So many queue pairs are worth the work: some ten milliseconds for thousands.
const MANY: usize = 64;
/// How long after the last of them: its other objects end after it, and more may follow.
const AFTER: Duration = Duration::from_millis(100);

/// Gives memory back some time after many queue pairs have ended. The control thread asks.
#[derive(Debug, Default)]
pub(crate) struct Trim {
    ended: usize,
    at: Option<Instant>,
}

impl Trim {
    /// A queue pair has ended.
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

    /// Gives back what is free, if it is time.
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

/// Other allocators have ways of their own.
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
