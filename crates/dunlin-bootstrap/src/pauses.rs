//! The pauses between two attempts at a busy server.

use std::thread;
use std::time::{Duration, Instant};

use dunlin_verbs::random;

/// The first pause, and the longest; each is twice the one before.
const FIRST: Duration = Duration::from_millis(5);
const LAST: Duration = Duration::from_millis(160);

/// Pauses until a deadline, each up to twice as long as the previous one. Each is chosen at random between half of its
/// length and the full length, so that clients that were refused together do not retry together.
#[derive(Debug)]
pub(crate) struct Pauses {
    deadline: Instant,
    next: Duration,
}

impl Pauses {
    pub(crate) fn new(deadline: Instant) -> Self {
        Self {
            deadline,
            next: FIRST,
        }
    }

    /// Sleeps. Returns `false` if there is no time left.
    pub(crate) fn pause(&mut self) -> bool {
        // Without random numbers all clients retry together, which is not an error.
        let share = random::number().unwrap_or(u64::MAX);
        let half = self.next / 2;
        let pause = half + half.mul_f64(share as f64 / u64::MAX as f64);
        self.next = (self.next * 2).min(LAST);
        if Instant::now() + pause >= self.deadline {
            return false;
        }
        thread::sleep(pause);
        true
    }
}
