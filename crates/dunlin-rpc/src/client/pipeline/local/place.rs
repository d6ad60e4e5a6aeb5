//! Awaitable back-pressure for tasks of one thread: a place for a call, reserved before it is made.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::{Holder, Inner, LocalCall, Shared};
use crate::client::driver::calls::{Holds, Wish};
use crate::client::driver::waiters::Limit;
use crate::error::CallError;
use crate::HandlerId;

/// Waits until one more call may be outstanding or queued, or calls are no longer accepted; returns the time left of
/// the deadline for the call.
pub(super) fn place(shared: &Rc<Shared>, deadline: Duration) -> Place<'_> {
    Place {
        shared,
        limit: Limit::new(deadline),
        ticket: None,
    }
}

/// The future; see [`place`].
pub(super) struct Place<'a> {
    shared: &'a Rc<Shared>,
    limit: Limit,
    /// Its position in the queue.
    ticket: Option<u64>,
}

impl Future for Place<'_> {
    type Output = Result<Duration, CallError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let left = self.limit.left().inspect_err(|_| self.leave())?;
        let shared = self.shared;
        let has_place = |inner: &Inner| inner.pipeline.is_none() || inner.calls.have_place();
        let mut inner = shared.lock();
        if has_place(&inner) {
            let left_queue = match self.ticket.take() {
                Some(ticket) => inner.calls.waiters.remove(ticket),
                None => None,
            };
            drop(inner);
            drop(left_queue);
            return Poll::Ready(Ok(left));
        }
        drop(inner);
        let waker = context.waker().clone();
        let until = self.limit.begin();
        let mut inner = shared.lock();
        let (ticket, former) = inner.calls.waiters.stand(self.ticket, until, waker);
        self.ticket = Some(ticket);
        // Cloning the waker may have given a place back.
        inner.calls.offer_place();
        let driver = inner.driver.take();
        shared.give_back(inner);
        drop(former);
        // The driver may sleep for longer than this task may wait.
        driver.into_iter().for_each(Waker::wake);
        Poll::Pending
    }
}

impl Place<'_> {
    /// Leaves the queue; if it was woken and does not use the place, it wakes the next.
    fn leave(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            let mut inner = self.shared.lock();
            let left = inner.calls.leave_queue(ticket);
            self.shared.give_back(inner);
            drop(left);
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

/// A place for one call of a [`super::LocalClient`], reserved until the call is made or this is dropped. Made by
/// [`super::LocalClient::ready`].
#[must_use = "the place is given back when it is dropped"]
pub struct LocalPermit {
    holder: Holder,
    /// The place was not used yet; there is none if calls are no longer accepted.
    holds: bool,
    deadline: Duration,
}

impl std::fmt::Debug for LocalPermit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalPermit").finish_non_exhaustive()
    }
}

impl LocalPermit {
    /// Takes an available place, unless calls are no longer accepted: then its call ends with the reason.
    pub(super) fn take(holder: &Holder, deadline: Duration) -> Self {
        Self {
            holds: holder.0.lock().calls.take_place(),
            holder: holder.clone(),
            deadline,
        }
    }

    /// As [`super::LocalClient::call_async`], using the reserved place.
    pub fn call(mut self, handler: HandlerId, payload: &[u8]) -> LocalCall {
        let holds = match std::mem::take(&mut self.holds) {
            true => Holds::Place,
            false => Holds::Nothing,
        };
        let wish = Wish::Call(handler, payload);
        self.holder.put(wish, (self.deadline, holds))
    }
}

impl Drop for LocalPermit {
    fn drop(&mut self) {
        if self.holds {
            let mut inner = self.holder.0.lock();
            inner.calls.give_place_back();
            self.holder.0.give_back(inner);
        }
    }
}
