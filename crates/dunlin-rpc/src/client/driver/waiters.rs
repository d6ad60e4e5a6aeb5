//! Tasks that wait for a place among the calls of futures, served in their order.

use std::collections::VecDeque;
use std::task::Waker;

use super::calls::{Calls, Keep};

#[derive(Default)]
pub(in crate::client) struct Waiters {
    queue: VecDeque<(u64, Waker)>,
    next: u64,
}

impl Waiters {
    /// A task waits from now on: at the end of the queue, or where it stood if it has a ticket. Gives its ticket, and
    /// the waker that it had there, for the caller to drop.
    pub(in crate::client) fn stand(
        &mut self,
        ticket: Option<u64>,
        waker: Waker,
    ) -> (u64, Option<Waker>) {
        let Some(ticket) = ticket else {
            let ticket = self.next;
            self.next += 1;
            self.queue.push_back((ticket, waker));
            return (ticket, None);
        };
        let known = self.queue.iter_mut().find(|(other, _)| *other == ticket);
        match known {
            Some((_, former)) => (ticket, Some(std::mem::replace(former, waker))),
            None => {
                // It was woken, and somebody else was faster.
                self.queue.push_front((ticket, waker));
                (ticket, None)
            }
        }
    }

    /// The waker of a task that waits no more; `None`: it has been woken.
    pub(in crate::client) fn remove(&mut self, ticket: u64) -> Option<Waker> {
        let index = self.queue.iter().position(|(other, _)| *other == ticket)?;
        self.queue.remove(index).map(|(_, waker)| waker)
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
        if !self.waiters.queue.is_empty() && self.have_place() {
            let first = self.waiters.queue.pop_front();
            self.woken.extend(first.map(|(_, waker)| waker));
        }
    }

    /// Takes a place; `false`: there is none.
    pub(super) fn take_place(&mut self) -> bool {
        let free = self.have_place();
        self.live += usize::from(free);
        free
    }

    pub(super) fn give_place_back(&mut self) {
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
        self.woken.extend(all.map(|(_, waker)| waker));
    }
}
