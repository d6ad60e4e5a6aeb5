//! The future of a call of one thread.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::{Holder, Inner, LocalReply};
use crate::client::driver::calls::State;
use crate::error::CallError;

/// A future of a call's response. Works under any executor whose tasks stay on a thread, where the
/// [`super::LocalDriver`] is polled. Dropping it cancels the call.
#[must_use = "the call is cancelled when the future is dropped"]
pub struct LocalCall {
    holder: Holder,
    /// The slot of its outcome; [`TAKEN`] once that was taken.
    tag: usize,
}

/// There are never that many calls.
const TAKEN: usize = usize::MAX;

impl LocalCall {
    #[inline]
    pub(super) fn new(holder: Holder, tag: usize) -> Self {
        Self { holder, tag }
    }
}

impl std::fmt::Debug for LocalCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = match self.tag {
            TAKEN => "over",
            _ => "pending",
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
        assert_ne!(
            tag, TAKEN,
            "a call was polled after it had returned its answer"
        );
        let mut inner = self.holder.0.lock();
        if !inner.calls.has_ended(tag) {
            drop(inner);
            return self.wait(context);
        }
        let ended = inner.calls.take(tag);
        drop(inner);
        self.tag = TAKEN;
        Poll::Ready(ended)
    }
}

impl LocalCall {
    /// Registers its task to be woken when it has ended.
    #[inline(never)]
    fn wait(&self, context: &mut Context<'_>) -> Poll<Result<LocalReply, CallError>> {
        let (holder, tag) = (&self.holder, self.tag);
        let inner = holder.0.lock();
        if !inner.is_here() {
            // Its driver belongs to the parent, and wakes nothing here.
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
    #[inline]
    fn drop(&mut self) {
        if self.tag != TAKEN {
            self.give_up();
        }
    }
}

impl LocalCall {
    #[inline(never)]
    fn give_up(&self) {
        let holder = &self.holder;
        let mut inner = holder.0.lock();
        let is_here = inner.is_here();
        let Inner {
            pipeline, calls, ..
        } = &mut *inner;
        let slot = &calls.slots[self.tag];
        if let (State::Out(call), Some(pipeline)) = (&slot.state, pipeline) {
            if is_here {
                pipeline.give_up(*call, slot.on_former());
            }
        }
        let given_up = inner.calls.release(self.tag);
        holder.0.give_back(inner);
        drop(given_up);
    }
}
