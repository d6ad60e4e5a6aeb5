//! How a direction of a stream waits: polled again at once for a short time, then announced to the peer, and then
//! asleep until the peer's wake-up. Now and then it probes whether there is a peer.

use std::task::Context;
use std::time::{Duration, Instant};

use dunlin_verbs::Device;

use super::reactor::{self, Sleeper};
use crate::error::RingError;
use crate::link::Event;
use crate::{Consumer, Producer};

/// How long a wait is polled again at once: longer than an answer from another core takes, shorter than anyone minds.
const SPIN: Duration = Duration::from_micros(50);
/// How long it is polled on after the peer is known to have heard of the sleep: longer than a store takes to become
/// visible. The peer tells of its message and then looks at the sleep word; we write the sleep word and then look for
/// messages. No fence orders the two across memories.
const GRACE: Duration = Duration::from_micros(20);
/// How often a peer is probed of which nothing is heard: whoever waits has nothing outstanding, so nothing else would
/// tell that the peer's process was killed. As often as in the RPC.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// Polls between two looks at the clock.
const STRIDE: u32 = 32;

/// An end of a ring that can be woken by its peer.
pub(super) trait Sleeps {
    /// `true` when the peer knows that we sleep and the event is armed.
    fn prepare_sleep(&mut self) -> Result<bool, RingError>;
    /// What to sleep on.
    fn event(&self) -> Option<Box<dyn Event>>;
    /// Asks whether there is a peer.
    fn probe(&mut self) -> Result<(), RingError>;
}

impl<D: Device> Sleeps for Producer<D> {
    fn prepare_sleep(&mut self) -> Result<bool, RingError> {
        Producer::prepare_sleep(self)
    }

    fn event(&self) -> Option<Box<dyn Event>> {
        Producer::event(self)
    }

    fn probe(&mut self) -> Result<(), RingError> {
        Producer::probe(self)
    }
}

impl<D: Device> Sleeps for Consumer<D> {
    fn prepare_sleep(&mut self) -> Result<bool, RingError> {
        Consumer::prepare_sleep(self)
    }

    fn event(&self) -> Option<Box<dyn Event>> {
        Consumer::event(self)
    }

    fn probe(&mut self) -> Result<(), RingError> {
        Consumer::probe(self)
    }
}

/// The waiting of one direction of a stream.
#[derive(Debug)]
pub(super) struct Waiting {
    sleeper: Sleeper,
    /// Since when it waits, or the last probe.
    since: Option<Instant>,
    polls: u32,
    /// The spin is over until there is progress.
    patient: bool,
    /// Since when the peer is known to have heard of the sleep.
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

    /// Something was done: the next wait begins anew.
    #[inline]
    pub(super) fn progress(&mut self) {
        self.since = None;
        self.polls = 0;
        self.patient = false;
        self.announced = None;
    }

    /// Sees to it that the task is polled again. It has just looked and found nothing.
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
        // Not yet: the peer has not heard of it, for which a device may need this core.
        std::thread::yield_now();
        context.waker().wake_by_ref();
    }

    fn probe_at_intervals(&mut self, end: &mut impl Sleeps) {
        let now = Instant::now();
        let since = self.since.get_or_insert(now);
        if now.duration_since(*since) >= PROBE_INTERVAL {
            *since = now;
            // A failure is told by the next look.
            let _ = end.probe();
        }
    }

    fn may_sleep(&mut self, end: &mut impl Sleeps) -> bool {
        // A failure is told by the next look.
        if !end.prepare_sleep().unwrap_or(false) {
            self.announced = None;
            return false;
        }
        let announced = *self.announced.get_or_insert_with(Instant::now);
        announced.elapsed() >= GRACE
    }
}
