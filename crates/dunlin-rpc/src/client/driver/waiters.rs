//! Awaitable back-pressure: tasks that wait for a place among the calls of futures, served in order, and the places
//! that they hold until they make their calls.

use std::collections::VecDeque;
use std::ops::Deref;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use dunlin_verbs::thread;

use super::calls::{Calls, Holds, Keep};
use crate::client::wait::end_of;
use crate::error::CallError;

/// The calls of futures, which tasks share.
pub(in crate::client) trait SharedCalls {
    type Kept: Keep;
    /// Does something with the calls while no one else does, and then wakes the tasks whose wakers this has set free.
    /// `None`: no call is accepted any more, or this process was forked since.
    fn with<T>(&self, action: impl FnOnce(&mut Calls<Self::Kept>) -> T) -> Option<T>;
    /// Wakes the driver: it may sleep for longer than a task may wait.
    fn wake_driver(&self);
}

/// The wait of one task for a place, and the time that it has for the wait and for its call together.
pub(in crate::client) struct WaitForPlace<C: Deref<Target: SharedCalls>> {
    after: Duration,
    /// The time counts from the first wait on: `None` before, when the clock was not read.
    until: Option<Instant>,
    /// The calls for which it waits, and its ticket in their queue.
    queued: Option<(C, u64)>,
}

/// A place for one call, given back when this is dropped, unless the call has taken it.
pub(in crate::client) struct HeldPlace<C: Deref<Target: SharedCalls>> {
    pub(in crate::client) calls: C,
    /// Whether it is one.
    pub(in crate::client) holds: Holds,
    /// The time left for the call.
    pub(in crate::client) left: Duration,
}

#[derive(Default)]
pub(in crate::client) struct Waiters {
    queue: VecDeque<Waiter>,
    next: u64,
}

struct Waiter {
    ticket: u64,
    until: Instant,
    waker: Waker,
}

impl<C: Deref<Target: SharedCalls> + Clone> WaitForPlace<C> {
    pub(in crate::client) fn new(after: Duration) -> Self {
        Self {
            after,
            until: None,
            queued: None,
        }
    }

    /// Its ticket, if it is in a queue.
    pub(in crate::client) fn ticket(&self) -> Option<u64> {
        self.queued.as_ref().map(|&(_, ticket)| ticket)
    }

    /// The time left.
    ///
    /// # Errors
    /// When there is none: it no longer waits.
    #[inline]
    pub(in crate::client) fn left(&mut self) -> Result<Duration, CallError> {
        let after = self.after;
        let Some(until) = self.until else {
            return Ok(after);
        };
        let left = until.saturating_duration_since(thread::now());
        if left.is_zero() {
            self.leave();
            return Err(CallError::DeadlineExceeded { after });
        }
        Ok(left)
    }

    /// Takes a place among these calls, or queues the task. It takes none when no call is accepted any more.
    #[inline]
    pub(in crate::client) fn poll(
        &mut self,
        calls: &C,
        context: &Context<'_>,
    ) -> Poll<Result<HeldPlace<C>, CallError>> {
        let left = self.left()?;
        let elsewhere = |(others, _): &(C, u64)| !std::ptr::eq(&**others, &**calls);
        if self.queued.as_ref().is_some_and(elsewhere) {
            // Those were replaced by these, which have their own numbering of tickets.
            self.leave();
        }
        let ticket = self.ticket();
        let taken = calls.with(|calls| {
            let is_free = calls.take_place();
            // If it was woken for this place it has already left the queue; otherwise it leaves it now.
            let leaves = ticket.filter(|_| is_free);
            (
                is_free,
                leaves.and_then(|ticket| calls.waiters.remove(ticket)),
            )
        });
        let holds = match taken {
            Some((true, _)) => Holds::Place,
            Some((false, _)) if self.queue(calls, context) => return Poll::Pending,
            _ => Holds::Nothing,
        };
        self.queued = None;
        let calls = calls.clone();
        Poll::Ready(Ok(HeldPlace { calls, holds, left }))
    }

    /// `false`: no call is accepted any more.
    #[cold]
    fn queue(&mut self, calls: &C, context: &Context<'_>) -> bool {
        let (ticket, waker) = (self.ticket(), context.waker().clone());
        let from_now = || end_of(thread::now(), self.after);
        let until = *self.until.get_or_insert_with(from_now);
        let queued = calls.with(|calls| {
            let queued = calls.waiters.stand(ticket, until, waker);
            // Cloning a waker runs foreign code, which may have given a place back.
            calls.offer_place();
            queued
        });
        let Some((ticket, former)) = queued else {
            return false;
        };
        drop(former);
        self.queued = Some((calls.clone(), ticket));
        calls.wake_driver();
        true
    }
}

impl<C: Deref<Target: SharedCalls>> WaitForPlace<C> {
    /// Leaves the queue; if it was woken and does not use the place, it wakes the next.
    pub(in crate::client) fn leave(&mut self) {
        if let Some((calls, ticket)) = self.queued.take() {
            let left = calls.with(|calls| calls.leave_queue(ticket));
            drop(left);
        }
    }
}

impl<C: Deref<Target: SharedCalls>> Drop for WaitForPlace<C> {
    #[inline]
    fn drop(&mut self) {
        self.leave();
    }
}

impl<C: Deref<Target: SharedCalls>> HeldPlace<C> {
    /// The terms of the call that is made now, to which the place passes.
    #[inline]
    pub(in crate::client) fn terms(&mut self) -> (Duration, Holds) {
        (
            self.left,
            std::mem::replace(&mut self.holds, Holds::Nothing),
        )
    }
}

impl<C: Deref<Target: SharedCalls>> Drop for HeldPlace<C> {
    #[inline]
    fn drop(&mut self) {
        if self.holds == Holds::Place {
            self.calls.with(Calls::give_place_back);
        }
    }
}

impl Waiters {
    /// Queues a task that waits from now on, at most until `until`: at the end of the queue, or at its former position
    /// if it has a ticket. Returns its ticket, and its former waker, for the caller to drop.
    fn stand(&mut self, ticket: Option<u64>, until: Instant, waker: Waker) -> (u64, Option<Waker>) {
        let Some(ticket) = ticket else {
            let ticket = self.next;
            self.next += 1;
            self.queue.push_back(Waiter {
                ticket,
                until,
                waker,
            });
            return (ticket, None);
        };
        let known = self.queue.iter_mut().find(|other| other.ticket == ticket);
        match known {
            Some(known) => (ticket, Some(std::mem::replace(&mut known.waker, waker))),
            None => {
                // It was woken, but another task was faster.
                self.queue.push_front(Waiter {
                    ticket,
                    until,
                    waker,
                });
                (ticket, None)
            }
        }
    }

    /// Removes a task from the queue and returns its waker; `None`: it has been woken.
    fn remove(&mut self, ticket: u64) -> Option<Waker> {
        let index = self.queue.iter().position(|other| other.ticket == ticket)?;
        self.queue.remove(index).map(|waiter| waiter.waker)
    }

    /// The first deadline.
    pub(super) fn first_deadline(&self) -> Option<Instant> {
        self.queue.iter().map(|waiter| waiter.until).min()
    }
}

impl<K: Keep> Calls<K> {
    /// Whether one more call may be outstanding or queued.
    fn have_place(&self) -> bool {
        self.live < self.limit
    }

    /// A place has become free, or the task that was woken for it does not want it any more: wakes the first waiting
    /// task.
    #[inline]
    pub(in crate::client) fn offer_place(&mut self) {
        if !self.waiters.queue.is_empty() {
            self.offer_place_to_first();
        }
    }

    #[inline(never)]
    fn offer_place_to_first(&mut self) {
        if self.have_place() {
            let first = self.waiters.queue.pop_front();
            self.woken.extend(first.map(|waiter| waiter.waker));
        }
    }

    /// Takes a place; `false`: there is none.
    pub(super) fn take_place(&mut self) -> bool {
        let free = self.have_place();
        self.live += usize::from(free);
        free
    }

    fn give_place_back(&mut self) {
        self.live -= 1;
        self.offer_place();
    }

    /// A task no longer waits for a place; if it was woken and does not use the place, the next is woken. The waker is
    /// for the caller to drop.
    fn leave_queue(&mut self, ticket: u64) -> Option<Waker> {
        let left = self.waiters.remove(ticket);
        if left.is_none() {
            self.offer_place();
        }
        left
    }

    /// Wakes all waiting tasks, because the lane has ended.
    pub(super) fn wake_waiters(&mut self) {
        let all = self.waiters.queue.drain(..);
        self.woken.extend(all.map(|waiter| waiter.waker));
    }

    /// Wakes those whose deadlines have passed, which then find that out.
    pub(super) fn wake_expired_waiters(&mut self, now: Instant) {
        let first = self.waiters.first_deadline();
        if first.is_none_or(|first| first > now) {
            return;
        }
        let all = std::mem::take(&mut self.waiters.queue);
        let (left, expired): (VecDeque<_>, VecDeque<_>) =
            all.into_iter().partition(|waiter| waiter.until > now);
        self.waiters.queue = left;
        self.woken
            .extend(expired.into_iter().map(|waiter| waiter.waker));
    }
}
