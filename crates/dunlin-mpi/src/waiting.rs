//! How a call waits: it polls at once for a while, then sleeps between polls, and asks for signs of life once a second.

use std::time::{Duration, Instant};

use dunlin_verbs::thread;

/// Time of polling without a sleep: some round trips of a network, and little of a time slice.
const POLLING: Duration = Duration::from_micros(500);
/// The shortest and the longest sleep between two polls.
const SLEEPS: std::ops::RangeInclusive<Duration> =
    Duration::from_micros(50)..=Duration::from_millis(1);
/// A sleep is this fraction of the time that the call has waited so far, so it adds little to that.
const SLEEP_FRACTION: u32 = 16;
/// Interval between two probes.
pub(crate) const PROBING: Duration = Duration::from_secs(1);
/// Empty polls between two reads of the clock.
const POLLS_PER_CLOCK: u32 = 32;
/// What a poll of memory lasts at most, for a simulated thread.
const REST: Duration = Duration::from_millis(1);

/// The state of one wait.
#[derive(Debug)]
pub(crate) struct Wait {
    began: Option<Instant>,
    probed: Instant,
    polls: u32,
    until: Option<Instant>,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Poll again.
    Poll,
    /// Probe the connections, then poll again.
    Probe,
    /// The time limit has passed.
    Expired,
}

impl Wait {
    /// Begins a wait, with a time limit or without.
    pub(crate) fn new(until: Option<Instant>) -> Self {
        Self {
            began: None,
            probed: thread::now(),
            polls: 0,
            until,
        }
    }

    /// Something was found: polls eagerly again.
    pub(crate) fn found(&mut self) {
        thread::found();
        self.began = None;
        self.polls = 0;
    }

    /// Waits a little after a poll that found nothing.
    pub(crate) fn idle(&mut self) -> Next {
        self.polls = self.polls.wrapping_add(1);
        if self.began.is_some() && self.polls % POLLS_PER_CLOCK != 0 {
            thread::idle(REST, true);
            return Next::Poll;
        }
        let now = thread::now();
        let waited = now.saturating_duration_since(*self.began.get_or_insert(now));
        if self.until.is_some_and(|until| now >= until) {
            return Next::Expired;
        }
        if waited < POLLING {
            thread::idle(REST, true);
        } else {
            // From now on each poll reads the clock.
            self.polls = POLLS_PER_CLOCK - 1;
            thread::sleep((waited / SLEEP_FRACTION).clamp(*SLEEPS.start(), *SLEEPS.end()));
        }
        if now.saturating_duration_since(self.probed) < PROBING {
            return Next::Poll;
        }
        self.probed = now;
        Next::Probe
    }
}
