//! A place for a call of one thread's futures, reserved before the call is made.

use std::future::poll_fn;
use std::ops::Deref;
use std::task::Waker;
use std::time::Duration;

use super::{CountedReply, Holder, LocalCall, Shared};
use crate::client::driver::calls::{Calls, Wish};
use crate::client::driver::waiters::{HeldPlace, SharedCalls, WaitForPlace};
use crate::error::CallError;
use crate::HandlerId;

impl SharedCalls for Shared {
    type Kept = CountedReply;

    #[inline]
    fn with<T>(&self, action: impl FnOnce(&mut Calls<CountedReply>) -> T) -> Option<T> {
        let mut inner = self.lock();
        inner.pipeline.as_ref()?;
        let done = action(&mut inner.calls);
        self.give_back(inner);
        Some(done)
    }

    #[cold]
    fn wake_driver(&self) {
        let driver = self.lock().driver.take();
        driver.into_iter().for_each(Waker::wake);
    }
}

/// Waits until one more call may be outstanding or queued, and takes the place for it. When calls are no longer
/// accepted there is none: the call ends with the reason.
#[inline]
pub(super) async fn place<C: Deref<Target = Shared> + Clone>(
    calls: C,
    deadline: Duration,
) -> Result<HeldPlace<C>, CallError> {
    let mut wait = WaitForPlace::new(deadline);
    poll_fn(|context| wait.poll(&calls, context)).await
}

/// A place for one call of a [`super::LocalClient`], reserved until the call is made or this is dropped. Made by
/// [`super::LocalClient::ready`].
#[must_use = "the place is given back when it is dropped"]
pub struct LocalPermit(pub(super) HeldPlace<Holder>);

impl std::fmt::Debug for LocalPermit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalPermit").finish_non_exhaustive()
    }
}

impl LocalPermit {
    /// As [`super::LocalClient::call_async`], using the reserved place.
    pub fn call(mut self, handler: HandlerId, payload: &[u8]) -> LocalCall {
        let terms = self.0.terms();
        self.0.calls.put(Wish::Call(handler, payload), terms)
    }
}
