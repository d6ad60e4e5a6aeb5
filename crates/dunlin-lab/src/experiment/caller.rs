//! A client thread of an experiment: a closed loop, with or without think time, or an open loop.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dunlin::{CallError, Pipeline};
use dunlin_verbs::thread;

use super::model::{Arrivals, Clients};
use crate::dice::Dice;

/// Maximum rest of a thread that has answers to take, when others may take them for it.
const REST: Duration = Duration::from_micros(1);
/// Maximum rest of a thread without answers to take; the end must not wait for a call that is due much later.
const LONGEST_REST: Duration = Duration::from_millis(1);
/// Interval at which a thread checks whether the load begins.
const STANDING_BY: Duration = Duration::from_micros(5);
/// Interval between two calls of a paced thread.
const PACE: Duration = Duration::from_micros(250);

/// State shared by the threads of a group and the measuring code.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) calls: AtomicU64,
    pub(super) failed: AtomicU64,
    /// Bytes of requests and responses of answered calls.
    pub(super) bytes: AtomicU64,
    latencies_ns: Mutex<Vec<u64>>,
}

impl Seen {
    /// The latencies since the last call.
    pub(super) fn take(&self) -> Vec<u64> {
        let latencies = self.latencies_ns.lock();
        std::mem::take(&mut *latencies.unwrap_or_else(PoisonError::into_inner))
    }

    fn answered(&self, took: Duration, bytes: usize) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        let all = self.latencies_ns.lock();
        let mut all = all.unwrap_or_else(PoisonError::into_inner);
        all.push(took.as_nanos() as u64);
    }
}

/// Signals to all threads.
#[derive(Debug, Default)]
pub(super) struct Signals {
    pub(super) begun: AtomicBool,
    /// Whether threads make only one call now and then, so that schedulers learn who sends what.
    pub(super) paced: AtomicBool,
    pub(super) stopping: AtomicBool,
}

/// Arguments of a thread.
pub(super) struct Start {
    pub(super) pipeline: Pipeline,
    pub(super) handler: u16,
    pub(super) request: Vec<u8>,
    pub(super) dice: Dice,
    pub(super) seen: Arc<Seen>,
    pub(super) signals: Arc<Signals>,
}

/// State of a thread.
struct Caller {
    pipeline: Pipeline,
    handler: u16,
    request: Vec<u8>,
    slots: Slots,
    schedule: Option<Schedule>,
    /// Whether calls that are due together are sent together.
    together: bool,
}

/// Calls outstanding, and slots for further ones.
struct Slots {
    begun: Vec<Instant>,
    /// Free slots, in order of the time from which on they may be used.
    free: VecDeque<(u64, Instant)>,
    think: Duration,
    request_bytes: usize,
    response_bytes: usize,
    seen: Arc<Seen>,
}

/// Times at which the calls of an open loop are due.
struct Schedule {
    arrivals: Arrivals,
    dice: Dice,
    next: Instant,
}

/// What a thread waits for after it has made all calls that are due.
enum Waits {
    /// Answers only: all calls are outstanding, or the lane has no room.
    ForAnswers,
    /// The time at which a call is due, and answers meanwhile.
    Until(Duration),
}

/// Runs until it is told to stop and has all answers, or its connection is lost.
pub(super) fn run(start: Start, group: &Clients) {
    let signals = Arc::clone(&start.signals);
    while !signals.begun.load(Ordering::Relaxed) {
        thread::sleep(STANDING_BY);
    }
    let mut caller = Caller::new(start, group);
    if caller.call(&signals).is_err() {
        // Outstanding calls will not be answered.
        let out = caller.slots.begun.len() - caller.slots.free.len();
        let failed = &caller.slots.seen.failed;
        failed.fetch_add(out as u64, Ordering::Relaxed);
    }
}

impl Caller {
    fn new(start: Start, group: &Clients) -> Self {
        let Start {
            pipeline,
            handler,
            request,
            mut dice,
            seen,
            ..
        } = start;
        let begin = thread::now();
        // Threads that think are not synchronized with each other.
        let think_ns = group.think.as_nanos() as u64;
        let mut first: Vec<Instant> = (0..group.outstanding)
            .map(|_| begin + Duration::from_nanos(dice.between(0, think_ns)))
            .collect();
        first.sort_unstable();
        let free = first.into_iter().enumerate();
        let slots = Slots {
            begun: vec![begin; group.outstanding],
            free: free.map(|(tag, at)| (tag as u64, at)).collect(),
            think: group.think,
            request_bytes: request.len(),
            response_bytes: group.response_bytes,
            seen,
        };
        let schedule = group.arrivals.map(|arrivals| {
            // Nor are those of an open loop.
            let first = dice.between(0, arrivals.gap_ns as u64);
            Schedule {
                arrivals,
                next: begin + Duration::from_nanos(first),
                dice,
            }
        });
        Self {
            pipeline,
            handler,
            request,
            slots,
            schedule,
            together: group.together,
        }
    }

    fn call(&mut self, signals: &Signals) -> Result<(), CallError> {
        loop {
            let stopping = signals.stopping.load(Ordering::Relaxed);
            if stopping && self.pipeline.outstanding() == 0 {
                return Ok(());
            }
            let paced = signals.paced.load(Ordering::Relaxed) && !stopping;
            let waits = match stopping {
                true => Waits::ForAnswers,
                false => self.submit_due(paced, signals)?,
            };
            let slots = &mut self.slots;
            let answer = |tag: u64, answer: Result<&[u8], CallError>| slots.take(tag, answer);
            let (taken, rest) = match waits {
                Waits::ForAnswers => (self.pipeline.wait(answer)?, REST),
                Waits::Until(due) => (self.pipeline.poll(answer)?, due),
            };
            if taken == 0 {
                // With nothing outstanding there is nothing to take either.
                let out = self.pipeline.outstanding() > 0;
                thread::idle(rest.min(if out { REST } else { LONGEST_REST }), false);
            }
            if paced {
                thread::sleep(PACE);
            }
        }
    }

    /// Makes the calls that are due; a paced thread makes one. Those sent together leave with the next poll.
    fn submit_due(&mut self, paced: bool, signals: &Signals) -> Result<Waits, CallError> {
        let slots = &mut self.slots;
        while let Some(&(tag, ready)) = slots.free.front() {
            // A thread that is answered as fast as it calls never has all calls outstanding, and would not notice the
            // end.
            let stopping = signals.stopping.load(Ordering::Relaxed);
            if stopping || paced && self.pipeline.outstanding() > 0 {
                break;
            }
            let now = thread::now();
            let when = self
                .schedule
                .as_ref()
                .map_or(ready, |schedule| schedule.next);
            if when > now {
                return Ok(Waits::Until(when - now));
            }
            // In a closed loop a call begins when it is made, in an open loop when it was due.
            slots.begun[tag as usize] =
                self.schedule.as_ref().map_or(now, |schedule| schedule.next);
            if !self.pipeline.submit(self.handler, &self.request, tag)? {
                break;
            }
            slots.free.pop_front();
            if let Some(schedule) = &mut self.schedule {
                schedule.advance();
            }
            if !self.together {
                self.pipeline.poll(|tag, answer| slots.take(tag, answer))?;
            }
        }
        Ok(Waits::ForAnswers)
    }
}

impl Slots {
    fn take(&mut self, tag: u64, answer: Result<&[u8], CallError>) {
        let now = thread::now();
        self.free.push_back((tag, now + self.think));
        if answer.is_ok_and(|bytes| bytes.len() == self.response_bytes) {
            let begun = self.begun[tag as usize];
            let bytes = self.request_bytes + self.response_bytes;
            self.seen
                .answered(now.saturating_duration_since(begun), bytes);
        } else {
            self.seen.failed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Schedule {
    fn advance(&mut self) {
        let gap = match self.arrivals.random {
            // The inverse of the exponential distribution; the share is above zero.
            true => {
                let share = (self.dice.between(1, 1 << 40) as f64) / (1u64 << 40) as f64;
                -share.ln() * self.arrivals.gap_ns
            }
            false => self.arrivals.gap_ns,
        };
        self.next += Duration::from_nanos(gap.round() as u64);
    }
}
