//! Async handlers: a future that answers its call when it is ready, and is dropped when the answer is no longer wanted.

use std::fmt;
use std::future::Future;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::deferred::OwnedResponder;
use super::handler::HandlerFuture;

/// The task that an executor runs for an async handler: it answers the call, and ends.
pub type HandlerTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The function that runs async handlers.
#[derive(Clone)]
pub(super) struct Executor(pub(super) Arc<dyn Fn(HandlerTask) + Send + Sync>);

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Executor")
    }
}

/// See the module.
pub(super) struct Answering {
    /// Dropped before the responder, so that what it holds is released before the caller gets its answer.
    future: Option<HandlerFuture>,
    responder: Option<OwnedResponder>,
}

impl Answering {
    pub(super) fn new(future: HandlerFuture, responder: OwnedResponder) -> Self {
        Self {
            future: Some(future),
            responder: Some(responder),
        }
    }

    /// Drops the future. Its drop code is the user's: a panic there ends neither the thread nor the answer.
    fn end(&mut self) {
        let future = self.future.take();
        if catch_unwind(AssertUnwindSafe(|| drop(future))).is_err() {
            tracing::error!("the state of an async handler panicked while being dropped");
        }
    }

    /// Discards it, since nothing can run it: the caller of this function answers the call.
    pub(super) fn discard(mut self) {
        if let Some(responder) = self.responder.take() {
            responder.discard();
        }
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.end();
    }
}

impl Future for Answering {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let (Some(future), Some(responder)) = (&mut this.future, &this.responder) else {
            return Poll::Ready(());
        };
        if responder.poll_cancelled(context).is_ready() {
            this.end();
            if let Some(responder) = this.responder.take() {
                responder.expire(true);
            }
            return Poll::Ready(());
        }
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context)));
        if matches!(polled, Ok(Poll::Pending)) {
            return Poll::Pending;
        }
        this.end();
        if let Some(responder) = this.responder.take() {
            match polled {
                Ok(Poll::Ready(Ok(bytes))) => responder.reply(bytes),
                Ok(Poll::Ready(Err(error))) => responder.fail(error),
                _ => responder.panicked(),
            }
        }
        Poll::Ready(())
    }
}
