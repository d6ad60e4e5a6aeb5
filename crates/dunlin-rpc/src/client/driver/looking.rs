//! Who polls the lane of the futures: one of the waiting tasks, as long as the executor polls it, otherwise the driver.
//!
//! This is FLOCK's leader and followers, with tasks in place of threads: the first task that finds no response becomes
//! the *leader*. It asks its executor to be polled again, behind all other ready tasks, and with each poll sends what
//! they have submitted and takes what has arrived for all of them. So no response crosses to another core, the lock is
//! uncontended, and requests of many tasks are sent together. A leader whose response has arrived names the next; one
//! that finds nothing for as long as a thread would spin ([`WaitMode`]) leaves the lane to the driver, which sleeps
//! until something arrives. The driver monitors leaders: one that is not polled for a while, because its executor's
//! thread is held up or its future is kept without being polled, is replaced.

use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::{Duration, Instant};

use dunlin_verbs::thread;

use super::calls::{Calls, Slot};
use super::{give_back, AsyncLane, Inner, DEADLINE_STEP};
use crate::call::lane::Lane;
use crate::call::reply::Reply;
use crate::config::WaitMode;
use crate::error::CallError;

/// Number of a leader's polls between two reads of the clock.
const LOOKS_PER_CLOCK: u32 = 32;
/// Interval at which the driver checks whether a leader is still polled.
const WATCH: Duration = Duration::from_millis(1);

/// The task that polls the lane.
#[derive(Default)]
pub(super) struct Leader {
    /// Its call, while there is one.
    tag: Option<usize>,
    idle_since: Option<Instant>,
}

/// What a task does after polling.
pub(super) enum Looked {
    /// Wait to be woken: another task or the driver polls.
    Wait,
    /// Lead, and request to be polled again; with whether its poll was without success.
    Lead(bool),
    /// Stop leading: the driver takes over.
    Leave,
}

impl Inner {
    /// Whether a task polls the lane soon, and sends what was submitted.
    pub(super) fn is_led(&self) -> bool {
        self.leader.tag.is_some()
    }

    /// Polls for a task whose call has not ended: it leads, unless another does.
    pub(super) fn look_as_task(&mut self, tag: usize, wait: WaitMode) -> Looked {
        match self.leader.tag {
            Some(leader) if leader != tag => return Looked::Wait,
            Some(_) => {}
            None => {
                self.leader = Leader {
                    tag: Some(tag),
                    ..Leader::default()
                };
            }
        }
        let Self { lane, calls, .. } = self;
        let Some(lane) = lane else {
            self.leader.tag = None;
            return Looked::Wait;
        };
        let in_vain = match turn(lane.as_mut(), calls) {
            Ok(taken) => taken == 0,
            // The driver reports it to the others.
            Err(_) => return self.leave(),
        };
        if !in_vain {
            self.leader.idle_since = None;
        }
        // Counted over all leaders: each may lead for a single poll.
        self.looks = self.looks.wrapping_add(1);
        if self.looks % LOOKS_PER_CLOCK != 0 {
            return Looked::Lead(in_vain);
        }
        let now = thread::now();
        if !in_vain {
            self.expire(now);
            return Looked::Lead(false);
        }
        // The driver handles the failure.
        if self.attend(now).is_err() {
            return self.leave();
        }
        let since = *self.leader.idle_since.get_or_insert(now);
        match wait {
            WaitMode::Doze { spin } if now.duration_since(since) >= spin => self.leave(),
            _ => Looked::Lead(true),
        }
    }

    fn leave(&mut self) -> Looked {
        self.leader.tag = None;
        Looked::Leave
    }

    /// Ends calls whose deadlines have passed. Where responses may have arrived that were not taken yet, failures are
    /// not checked: a peer that has answered and gone has answered.
    pub(super) fn expire(&mut self, now: Instant) {
        let Self { lane, calls, .. } = self;
        if now >= self.next_expiry {
            calls.expire(now, |call, _| {
                if let Some(lane) = lane {
                    lane.abandon(call);
                }
            });
        }
    }

    /// Work triggered by the clock after a poll without success: ends calls whose deadlines have passed, and checks the
    /// lane for failures.
    pub(super) fn attend(&mut self, now: Instant) -> Result<(), CallError> {
        let Self { lane, calls, .. } = self;
        let Some(lane) = lane.as_mut().filter(|_| now >= self.next_expiry) else {
            return Ok(());
        };
        self.next_expiry = now + DEADLINE_STEP;
        calls.expire(now, |call, _| lane.abandon(call));
        lane.check(calls)
    }

    /// As [`Calls::take`]; if it was the leader's call, another waiting task is woken to poll.
    #[inline(always)]
    pub(super) fn take(&mut self, tag: usize) -> Result<Reply, CallError> {
        self.leave_lead_of(tag);
        self.calls.take(tag)
    }

    /// As [`Calls::release`], and as for [`Inner::take`].
    pub(super) fn release(&mut self, tag: usize) -> Option<Waker> {
        self.leave_lead_of(tag);
        self.calls.release(tag)
    }

    #[inline]
    fn leave_lead_of(&mut self, tag: usize) {
        if self.leader.tag == Some(tag) {
            self.leader.tag = None;
            self.calls.wake_one_that_is_out(tag);
        }
    }

    /// From now on the driver polls, whatever task leads.
    pub(super) fn depose(&mut self) {
        self.leader.tag = None;
    }
}

/// Sends what was submitted and takes what has arrived; returns the number of messages.
pub(super) fn turn(lane: &mut (dyn Lane + 'static), calls: &mut Calls) -> Result<usize, CallError> {
    let taken = lane.turn(calls, true)?;
    if !calls.waiting.is_empty() && calls.send_waiting(lane) {
        lane.flush(calls)?;
    }
    Ok(taken)
}

impl Calls {
    /// Wakes the task of one outstanding call other than `tag`; that task then requests again to be woken.
    fn wake_one_that_is_out(&mut self, tag: usize) {
        let asked = |slot: &mut Slot<Reply>| -> Option<Waker> { slot.terms_mut()?.waker.take() };
        let last = self.last_asked;
        let mut waker = match last == tag {
            true => None,
            false => self.slots.get_mut(last).and_then(asked),
        };
        // Nearly always the call that was last to ask is still outstanding, or none is.
        if waker.is_none() && self.live > 1 {
            let mut others = self.slots.iter_mut().enumerate();
            waker = others.find_map(|(other, slot)| match other == tag {
                true => None,
                false => asked(slot),
            });
        }
        self.woken.extend(waker);
    }
}

impl AsyncLane {
    /// Whether tasks poll the lane: then the driver only has to check that they continue.
    pub(super) fn is_looked_at(&self, seen: &mut u64) -> bool {
        let looks = self.task_looks.load(Ordering::Relaxed);
        std::mem::replace(seen, looks) != looks
    }

    /// The driver's pause while tasks look.
    pub(super) fn watch(&self) {
        thread::park(WATCH);
    }

    /// Work triggered by the clock while tasks poll, however rarely.
    pub(super) fn attend_beside(&self) {
        if let Ok(mut inner) = self.inner.try_lock() {
            inner.expire(thread::now());
            give_back(inner);
        }
    }

    /// A task has led, and found nothing for a while: the driver takes over at once.
    pub(super) fn hand_over(&self) {
        self.handed_over.store(true, Ordering::Release);
        if let Some(driver) = self.driver.get() {
            driver.wake_by_ref();
        }
    }
}
