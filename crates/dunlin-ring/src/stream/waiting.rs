//! How one direction of a stream waits: it is polled again immediately for a short time, then announces its sleep to
//! the peer, and then sleeps until the peer wakes it. Meanwhile it periodically probes whether the peer is alive.

use std::task::Context;
use std::time::{Duration, Instant};

use super::reactor::{self, Sleeper};
use crate::link::Sleeps;

/// How long a waiting task is polled again immediately: longer than an answer from another core takes, but too short to
/// matter.
const SPIN: Duration = Duration::from_micros(50);
/// How long it keeps polling after the peer is known to have received the announcement: longer than a store takes to
/// become visible. The peer publishes its message and then reads the sleep word; this side writes the sleep word and
/// then looks for messages. No fence orders the two across separate memories.
const GRACE: Duration = Duration::from_micros(20);
/// How often a silent peer is probed: a waiting end has nothing outstanding, so nothing else would reveal that the
/// peer's process was killed. The same interval as in the RPC.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// Number of polls between two reads of the clock.
const STRIDE: u32 = 32;

/// The waiting state of one direction of a stream.
#[derive(Debug)]
pub(super) struct Waiting {
    sleeper: Sleeper,
    /// Start of the wait, or time of the last probe.
    since: Option<Instant>,
    polls: u32,
    /// Whether spinning is over until there is progress.
    patient: bool,
    /// Since when the peer is known to have received the announcement.
    announced: Option<Instant>,
}

impl Waiting {
    pub(super) fn new() -> Self {
        Self {
            sleeper: Sleeper::new(),
            since: None,
            polls: 0,
            patient: false,
            announced: None,
        }
    }

    /// Records progress: the next wait starts from the beginning.
    #[inline]
    pub(super) fn progress(&mut self) {
        self.since = None;
        self.polls = 0;
        self.patient = false;
        self.announced = None;
    }

    /// Ensures that the task is polled again. It has just polled and found nothing.
    pub(super) fn wait(&mut self, context: &mut Context<'_>, end: &mut impl Sleeps) {
        if !self.patient {
            self.polls += 1;
            if self.polls % STRIDE == 0 {
                let since = *self.since.get_or_insert_with(Instant::now);
                self.patient = since.elapsed() >= SPIN;
                // The peer may need this core.
                std::thread::yield_now();
            }
            std::hint::spin_loop();
            context.waker().wake_by_ref();
            return;
        }
        self.probe_at_intervals(end);
        if self.may_sleep(end) {
            let waker = context.waker().clone();
            if end
                .event()
                .is_some_and(|event| reactor::enter(self.sleeper, event, waker))
            {
                return;
            }
        }
        // Not yet asleep: the peer has not received the announcement, for which a device may need this core.
        std::thread::yield_now();
        context.waker().wake_by_ref();
    }

    fn probe_at_intervals(&mut self, end: &mut impl Sleeps) {
        let now = Instant::now();
        let since = self.since.get_or_insert(now);
        if now.duration_since(*since) >= PROBE_INTERVAL {
            *since = now;
            // A failure is reported by the next poll.
            let _ = end.probe();
        }
    }

    fn may_sleep(&mut self, end: &mut impl Sleeps) -> bool {
        // A failure is reported by the next poll.
        if !end.prepare_sleep().unwrap_or(false) {
            self.announced = None;
            return false;
        }
        let announced = *self.announced.get_or_insert_with(Instant::now);
        announced.elapsed() >= GRACE
    }
}
