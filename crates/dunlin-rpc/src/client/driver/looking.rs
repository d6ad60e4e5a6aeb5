//! Who looks at the lane of the futures: one of the tasks that wait, as long as the executor comes back to it, else the
//! driver.
//!
//! FLOCK's leader among followers, with tasks for threads: the first task that finds no answer becomes the *leader*. It
//! asks its executor to be polled again, behind all others that are ready, and with each poll sends what they have
//! submitted and takes what has come for all of them. So nobody crosses to another core for an answer, the lock has no
//! rivals, and requests of many tasks leave together. A leader whose answer has come names the next; one that finds
//! nothing for as long as a thread would spin ([`WaitMode`]) leaves the lane to the driver, which sleeps until
//! something comes. The driver keeps watch over leaders: one that is not polled for a while, because its executor's
//! thread is held up or its future is kept without being polled, is one no more.

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

/// A leader's looks between two looks at the clock.
const LOOKS_PER_CLOCK: u32 = 32;
/// How often the driver looks whether a leader is still polled.
const WATCH: Duration = Duration::from_millis(1);

/// The task that looks at the lane.
#[derive(Default)]
pub(super) struct Leader {
    /// Its call, while there is one.
    tag: Option<usize>,
    idle_since: Option<Instant>,
}

/// What a task does after its look.
pub(super) enum Looked {
    /// It waits to be woken: somebody else looks.
    Wait,
    /// It leads, and wants to be polled again; whether its look was in vain.
    Lead(bool),
    /// It has led, and the driver takes over.
    Leave,
}

impl Inner {
    /// Whether a task looks at the lane soon, and sends what was submitted.
    pub(super) fn is_led(&self) -> bool {
        self.leader.tag.is_some()
    }

    /// A task looks, whose call has not ended: it leads, unless another does.
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
            // The driver says so to the others.
            Err(_) => return self.leave(),
        };
        if !in_vain {
            self.leader.idle_since = None;
        }
        // Of all leaders: each may lead for one look.
        self.looks = self.looks.wrapping_add(1);
        if self.looks % LOOKS_PER_CLOCK != 0 {
            return Looked::Lead(in_vain);
        }
        let now = thread::now();
        if !in_vain {
            self.expire(now);
            return Looked::Lead(false);
        }
        // The driver ends what has failed.
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

    /// Calls end whose time is up. Where answers may be there that nobody has taken yet nothing else is asked: a peer
    /// that has answered and gone has answered.
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

    /// What the clock asks for after a look in vain: calls end whose time is up, and the lane is looked at for
    /// failures.
    pub(super) fn attend(&mut self, now: Instant) -> Result<(), CallError> {
        let Self { lane, calls, .. } = self;
        let Some(lane) = lane.as_mut().filter(|_| now >= self.next_expiry) else {
            return Ok(());
        };
        self.next_expiry = now + DEADLINE_STEP;
        calls.expire(now, |call, _| lane.abandon(call));
        lane.check(calls)
    }

    /// As [`Calls::take`]; if it was the leader's call, another that waits is to look.
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

    /// The driver looks from now on, whatever a task has promised.
    pub(super) fn depose(&mut self) {
        self.leader.tag = None;
    }
}

/// Sends what was submitted and takes what has come; says how many answers.
pub(super) fn turn(lane: &mut (dyn Lane + 'static), calls: &mut Calls) -> Result<usize, CallError> {
    let taken = lane.turn(calls, true)?;
    if !calls.waiting.is_empty() && calls.send_waiting(lane) {
        lane.flush(calls)?;
    }
    Ok(taken)
}

impl Calls {
    /// Wakes the task of one call that is out, other than `tag`; whoever it is asks again to be woken.
    fn wake_one_that_is_out(&mut self, tag: usize) {
        let asked = |slot: &mut Slot<Reply>| -> Option<Waker> { slot.terms_mut()?.waker.take() };
        let last = self.last_asked;
        let mut waker = match last == tag {
            true => None,
            false => self.slots.get_mut(last).and_then(asked),
        };
        // By far most often the last that asked is still out, or nobody is.
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
    /// Whether tasks look at the lane: then the driver has nothing to do but to watch that they go on.
    pub(super) fn is_looked_at(&self, seen: &mut u64) -> bool {
        let looks = self.task_looks.load(Ordering::Relaxed);
        std::mem::replace(seen, looks) != looks
    }

    /// The driver's pause while tasks look.
    pub(super) fn watch(&self) {
        thread::park(WATCH);
    }

    /// What the clock asks for while tasks look, however seldom they are polled.
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
