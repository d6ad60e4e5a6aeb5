//! Awaitable back-pressure: a place for a call of the client's futures, reserved before the call is made.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use dunlin_verbs::process::Owned;
use dunlin_verbs::thread;

use super::future::{begin_with_place, call, CallFuture};
use super::waiters::Limit;
use super::{give_back, AsyncLane};
use crate::client::Core;
use crate::error::CallError;
use crate::HandlerId;

/// A future of a place for one more call among the client's futures. Made by [`crate::Client::ready`].
#[must_use = "futures do nothing unless polled"]
pub struct Ready {
    core: Arc<Core>,
    limit: Limit,
    /// Its position in the queue of a lane.
    waiting: Option<(Arc<Owned<AsyncLane>>, u64)>,
}

impl std::fmt::Debug for Ready {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ticket = self.waiting.as_ref().map(|(_, ticket)| ticket);
        f.debug_struct("Ready").field("waiting", &ticket).finish()
    }
}

impl Ready {
    pub(in crate::client) fn new(core: &Arc<Core>, deadline: Duration) -> Self {
        Self {
            core: Arc::clone(core),
            limit: Limit::new(deadline),
            waiting: None,
        }
    }

    /// Leaves the queue; if it was woken and does not use the place, it wakes the next.
    fn leave(&mut self) {
        let Some((lane, ticket)) = self.waiting.take() else {
            return;
        };
        if !lane.is_here() {
            return;
        }
        let mut inner = lane.lock();
        let left = inner.calls.leave_queue(ticket);
        give_back(inner);
        drop(left);
    }
}

impl Future for Ready {
    type Output = Result<Permit, CallError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        this.core.check()?;
        if this.core.is_closed() {
            return Poll::Ready(Err(CallError::Closed));
        }
        let left = this.limit.left().inspect_err(|_| this.leave())?;
        let permit = |core: &Arc<Core>, lane| Permit {
            core: Arc::clone(core),
            deadline: left,
            lane: Some(lane),
        };
        let mut lane = thread::lock(&this.core.asynchronous).current.clone();
        if lane.as_ref().is_none_or(|lane| lane.lock().over) {
            this.leave();
            if let Some(begun) = begin_with_place(&this.core)? {
                return Poll::Ready(Ok(permit(&this.core, begun)));
            }
            // Another task was faster.
            lane = thread::lock(&this.core.asynchronous).current.clone();
        }
        let stands_elsewhere = |(queue, _): &(Arc<Owned<AsyncLane>>, u64)| {
            lane.as_ref().is_none_or(|lane| !Arc::ptr_eq(queue, lane))
        };
        if this.waiting.as_ref().is_some_and(stands_elsewhere) {
            // That lane was replaced by another, which has its own numbering of tickets.
            this.leave();
        }
        let Some(lane) = lane else {
            return Poll::Ready(Err(CallError::Closed));
        };
        let waker = context.waker().clone();
        let mut inner = lane.lock();
        if inner.over {
            // It has just ended.
            give_back(inner);
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        if inner.calls.take_place() {
            let permit = permit(&this.core, Arc::clone(&lane));
            give_back(inner);
            // If it was woken for this place it has already left the queue; otherwise it leaves it now.
            if let Some((_, ticket)) = this.waiting.take() {
                let mut inner = lane.lock();
                let left = inner.calls.waiters.remove(ticket);
                give_back(inner);
                drop(left);
            }
            return Poll::Ready(Ok(permit));
        }
        let ticket = this.waiting.take().map(|(_, ticket)| ticket);
        let until = this.limit.begin();
        let (ticket, former) = inner.calls.waiters.stand(ticket, until, waker);
        this.waiting = Some((Arc::clone(&lane), ticket));
        give_back(inner);
        drop(former);
        // The driver may sleep for longer than this task may wait.
        lane.rouse();
        Poll::Pending
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        self.leave();
    }
}

/// A place for one call, reserved until the call is made or this is dropped.
#[must_use = "it holds a place for a call"]
pub struct Permit {
    core: Arc<Core>,
    deadline: Duration,
    lane: Option<Arc<Owned<AsyncLane>>>,
}

impl std::fmt::Debug for Permit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Permit").finish_non_exhaustive()
    }
}

impl Permit {
    /// As [`crate::Client::call_async`], using the reserved place.
    pub fn call(mut self, handler: HandlerId, payload: &[u8]) -> CallFuture {
        let lane = self.lane.take();
        call(&self.core, self.deadline, handler, payload, lane)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(lane) = self.lane.take().filter(|lane| lane.is_here()) {
            let mut inner = lane.lock();
            inner.calls.give_place_back();
            give_back(inner);
        }
    }
}
