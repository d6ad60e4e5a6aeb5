//! A call of one thread: its future, and the wait for a place to make it.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::{Holder, Inner, LocalReply, Shared};
use crate::client::driver::calls::Slot;
use crate::client::driver::waiters::Limit;
use crate::error::CallError;

/// The answer of a call, when it comes. Works under any executor whose tasks stay on a thread, where the
/// [`super::LocalDriver`] is polled. Dropping it cancels the call.
#[must_use = "the call is cancelled when the future is dropped"]
pub struct LocalCall {
    /// Where its outcome will be, or is; `None` when that was taken.
    holder: Option<Holder>,
    tag: usize,
}

impl LocalCall {
    #[inline]
    pub(super) fn new(holder: Holder, tag: usize) -> Self {
        Self {
            holder: Some(holder),
            tag,
        }
    }
}

impl std::fmt::Debug for LocalCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = match self.holder {
            Some(_) => "pending",
            None => "over",
        };
        write!(f, "LocalCall({state})")
    }
}

impl Future for LocalCall {
    type Output = Result<LocalReply, CallError>;

    /// # Panics
    /// When polled after it was ready.
    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let tag = self.tag;
        let Some(holder) = &self.holder else {
            panic!("a call was polled after its answer");
        };
        let mut inner = holder.0.lock();
        if let Some(ended) = inner.calls.take(tag) {
            drop(inner);
            self.holder = None;
            return Poll::Ready(ended);
        }
        if !inner.is_here() {
            // Its driver is the parent's, and wakes nobody here.
            drop(inner);
            return Poll::Ready(Err(CallError::Forked));
        }
        let terms = inner.calls.slots[tag].terms();
        let known = terms.and_then(|terms| terms.waker.as_ref());
        if known.is_some_and(|known| known.will_wake(context.waker())) {
            return Poll::Pending;
        }
        drop(inner);
        let waker = context.waker().clone();
        let mut inner = holder.0.lock();
        match inner.calls.slots[tag].terms_mut() {
            Some(terms) => {
                let former = terms.waker.replace(waker);
                drop(inner);
                drop(former);
            }
            // It ended while the waker was cloned.
            None => {
                drop(inner);
                waker.wake();
            }
        }
        Poll::Pending
    }
}

impl Drop for LocalCall {
    fn drop(&mut self) {
        let Some(holder) = self.holder.take() else {
            return;
        };
        let mut inner = holder.0.lock();
        let is_here = inner.is_here();
        let Inner {
            pipeline, calls, ..
        } = &mut *inner;
        if let (Slot::Out(call, _), Some(pipeline)) = (&calls.slots[self.tag], pipeline) {
            if is_here {
                pipeline.lane.abandon(*call);
            }
        }
        let given_up = inner.calls.release(self.tag);
        holder.0.give_back(inner);
        drop(given_up);
    }
}

/// Waits until one more call may be out or wait, or no call is taken any more; says how much of the deadline is left for
/// the call.
pub(super) fn place(shared: &Rc<Shared>, deadline: Duration) -> Place<'_> {
    Place {
        shared,
        limit: Limit::new(deadline),
        ticket: None,
    }
}

/// See [`place`].
pub(super) struct Place<'a> {
    shared: &'a Rc<Shared>,
    limit: Limit,
    /// Where it stands in the queue.
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
        let driver = inner.driver.take();
        drop(inner);
        drop(former);
        // It may sleep for longer than this may wait.
        driver.into_iter().for_each(Waker::wake);
        Poll::Pending
    }
}

impl Place<'_> {
    /// Leaves the queue; who was woken and does not come tells the next.
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
