//! Tasks that wait for a place among the calls of futures, served in order.

use std::collections::VecDeque;
use std::task::Waker;
use std::time::{Duration, Instant};

use dunlin_verbs::thread;

use super::calls::{Calls, Keep};
use crate::client::wait::end_of;
use crate::error::CallError;

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

/// The time that a task has for the wait and for its call together.
#[derive(Clone, Copy, Debug)]
pub(in crate::client) struct Limit {
    after: Duration,
    /// `None`: it has not waited yet, and the clock was not read.
    until: Option<Instant>,
}

impl Limit {
    pub(in crate::client) fn new(after: Duration) -> Self {
        Self { after, until: None }
    }

    /// The time counts from the first wait on.
    pub(in crate::client) fn begin(&mut self) -> Instant {
        let after = self.after;
        *self
            .until
            .get_or_insert_with(|| end_of(thread::now(), after))
    }

    /// The time left.
    ///
    /// # Errors
    /// When there is none.
    pub(in crate::client) fn left(&self) -> Result<Duration, CallError> {
        let Some(until) = self.until else {
            return Ok(self.after);
        };
        let left = until.saturating_duration_since(thread::now());
        match left.is_zero() {
            true => Err(CallError::DeadlineExceeded { after: self.after }),
            false => Ok(left),
        }
    }
}

impl Waiters {
    /// Queues a task that waits from now on, at most until `until`: at the end of the queue, or at its former position
    /// if it has a ticket. Returns its ticket, and its former waker, for the caller to drop.
    pub(in crate::client) fn stand(
        &mut self,
        ticket: Option<u64>,
        until: Instant,
        waker: Waker,
    ) -> (u64, Option<Waker>) {
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
    pub(in crate::client) fn remove(&mut self, ticket: u64) -> Option<Waker> {
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
    pub(in crate::client) fn have_place(&self) -> bool {
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
    pub(in crate::client) fn take_place(&mut self) -> bool {
        let free = self.have_place();
        self.live += usize::from(free);
        free
    }

    pub(in crate::client) fn give_place_back(&mut self) {
        self.live -= 1;
        self.offer_place();
    }

    /// A task no longer waits for a place; if it was woken and does not use the place, the next is woken. The waker is
    /// for the caller to drop.
    pub(in crate::client) fn leave_queue(&mut self, ticket: u64) -> Option<Waker> {
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
