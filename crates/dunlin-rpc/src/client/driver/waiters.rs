//! Tasks that wait for a place among the calls of futures, served in their order.

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

/// How long a task has for the wait and for its call together.
#[derive(Clone, Copy, Debug)]
pub(in crate::client) struct Limit {
    after: Duration,
    /// `None`: it has not waited yet, and the clock was not looked at.
    until: Option<Instant>,
}

impl Limit {
    pub(in crate::client) fn new(after: Duration) -> Self {
        Self { after, until: None }
    }

    /// It counts from the first wait on.
    pub(in crate::client) fn begin(&mut self) -> Instant {
        let after = self.after;
        *self
            .until
            .get_or_insert_with(|| end_of(thread::now(), after))
    }

    /// What is left of it.
    ///
    /// # Errors
    /// When nothing is.
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
    /// A task waits from now on, until then at most: at the end of the queue, or where it stood if it has a ticket.
    /// Gives its ticket, and the waker that it had there, for the caller to drop.
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
                // It was woken, and somebody else was faster.
                self.queue.push_front(Waiter {
                    ticket,
                    until,
                    waker,
                });
                (ticket, None)
            }
        }
    }

    /// The waker of a task that waits no more; `None`: it has been woken.
    pub(in crate::client) fn remove(&mut self, ticket: u64) -> Option<Waker> {
        let index = self.queue.iter().position(|other| other.ticket == ticket)?;
        self.queue.remove(index).map(|waiter| waiter.waker)
    }

    /// When the time of the first of them is over.
    pub(super) fn first_deadline(&self) -> Option<Instant> {
        self.queue.iter().map(|waiter| waiter.until).min()
    }
}

impl<K: Keep> Calls<K> {
    /// Whether one more call may be out or wait.
    pub(in crate::client) fn have_place(&self) -> bool {
        self.live < self.limit
    }

    /// A place has become free, or who was told of one does not want it any more: the first that waits is woken.
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

    /// A task waits for no place any more; one that was woken and does not come tells the next. The waker is for the
    /// caller to drop.
    pub(in crate::client) fn leave_queue(&mut self, ticket: u64) -> Option<Waker> {
        let left = self.waiters.remove(ticket);
        if left.is_none() {
            self.offer_place();
        }
        left
    }

    /// All that wait look again: the lane has ended.
    pub(super) fn wake_waiters(&mut self) {
        let all = self.waiters.queue.drain(..);
        self.woken.extend(all.map(|waiter| waiter.waker));
    }

    /// Those whose time is up look again, and find that.
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
