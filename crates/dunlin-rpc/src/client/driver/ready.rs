//! A place for a call of the client's futures, reserved before the call is made.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{ready, Context, Poll};
use std::time::Duration;

use dunlin_verbs::process::Owned;
use dunlin_verbs::thread;

use super::calls::{Calls, Holds};
use super::future::{begin_with_place, call, CallFuture};
use super::waiters::{HeldPlace, SharedCalls, WaitForPlace};
use super::{give_back, AsyncLane};
use crate::call::reply::Reply;
use crate::client::Core;
use crate::error::CallError;
use crate::HandlerId;

/// A place on a lane of the client's futures.
pub(super) type LanePlace = HeldPlace<Arc<Owned<AsyncLane>>>;

impl SharedCalls for Owned<AsyncLane> {
    type Kept = Reply;

    fn with<T>(&self, action: impl FnOnce(&mut Calls) -> T) -> Option<T> {
        // After a fork, the holder of the lock may be a thread of the parent, which cannot release it here.
        if !self.is_here() {
            return None;
        }
        let mut inner = self.lock();
        // `action` may own a waker, which is foreign code: it is dropped after the lock is released.
        if inner.over {
            give_back(inner);
            return None;
        }
        let done = action(&mut inner.calls);
        give_back(inner);
        Some(done)
    }

    fn wake_driver(&self) {
        self.rouse();
    }
}

/// A future of a place for one more call among the client's futures. Made by [`crate::Client::ready`].
#[must_use = "futures do nothing unless polled"]
pub struct Ready {
    core: Arc<Core>,
    wait: WaitForPlace<Arc<Owned<AsyncLane>>>,
}

impl std::fmt::Debug for Ready {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ready")
            .field("waiting", &self.wait.ticket())
            .finish()
    }
}

impl Ready {
    pub(in crate::client) fn new(core: &Arc<Core>, deadline: Duration) -> Self {
        Self {
            core: Arc::clone(core),
            wait: WaitForPlace::new(deadline),
        }
    }
}

impl Future for Ready {
    type Output = Result<Permit, CallError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { core, wait } = self.get_mut();
        core.check()?;
        if core.is_closed() {
            return Poll::Ready(Err(CallError::Closed));
        }
        let current = || thread::lock(&core.asynchronous).current.clone();
        let mut lane = current();
        if lane.as_ref().is_none_or(|lane| lane.lock().over) {
            // Nobody gives a place back there any more.
            wait.leave();
            let left = wait.left()?;
            if let Some(calls) = begin_with_place(core)? {
                let holds = Holds::Place;
                let place = HeldPlace { calls, holds, left };
                return Poll::Ready(Ok(Permit::new(core, place)));
            }
            // Another task was faster.
            lane = current();
        }
        let Some(lane) = lane else {
            return Poll::Ready(Err(CallError::Closed));
        };
        let place = ready!(wait.poll(&lane, context))?;
        if place.holds == Holds::Nothing {
            // The lane has just ended: the next poll makes another.
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(Ok(Permit::new(core, place)))
    }
}

/// A place for one call, reserved until the call is made or this is dropped.
#[must_use = "it holds a place for a call"]
pub struct Permit {
    core: Arc<Core>,
    place: LanePlace,
}

impl std::fmt::Debug for Permit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Permit").finish_non_exhaustive()
    }
}

impl Permit {
    fn new(core: &Arc<Core>, place: LanePlace) -> Self {
        let core = Arc::clone(core);
        Self { core, place }
    }

    /// As [`crate::Client::call_async`], using the reserved place.
    pub fn call(self, handler: HandlerId, payload: &[u8]) -> CallFuture {
        let Self { core, place } = self;
        call(&core, place.left, handler, payload, Some(place))
    }
}
