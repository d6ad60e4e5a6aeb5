//! A call as a future: how it is sent, polled and given up.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use dunlin_verbs::process::Owned;

use super::calls::{Slot, Terms, Wish};
use super::{give_back, AsyncLane, Inner};
use crate::call::reply::Reply;
use crate::call::wanted::{RegionKey, Wanted};
use crate::client::wait::end_of;
use crate::client::Core;
use crate::error::CallError;
use crate::HandlerId;

/// Sends a call and returns its future.
/// `held`: the lane that has a place for it already.
pub(in crate::client) fn call(
    core: &Core,
    deadline: Duration,
    handler: HandlerId,
    payload: &[u8],
    held: Option<Arc<Owned<AsyncLane>>>,
) -> CallFuture {
    send(core, deadline, Wish::Call(handler, payload), held)
}

/// Does a one-sided operation and returns its future.
pub(in crate::client) fn operate(
    core: &Core,
    deadline: Duration,
    region: &Arc<RegionKey>,
    offset: u64,
    wanted: Wanted<'_>,
) -> CallFuture {
    send(core, deadline, Wish::OneSided(region, offset, wanted), None)
}

fn send(
    core: &Core,
    deadline: Duration,
    wish: Wish<'_>,
    mut held: Option<Arc<Owned<AsyncLane>>>,
) -> CallFuture {
    let put = put(core, deadline, wish, &mut held);
    // A place on a lane that was replaced meanwhile.
    if let Some(lane) = held.filter(|lane| lane.is_here()) {
        let mut inner = lane.lock();
        inner.calls.give_place_back();
        give_back(inner);
    }
    match put {
        Ok((lane, tag)) => CallFuture(State::Out { lane, tag }),
        Err(error) => CallFuture(State::Failed(Some(error))),
    }
}

/// Puts a call into the client's lane for futures, which is made anew when there is none that can be used.
fn put(
    core: &Core,
    after: Duration,
    wish: Wish<'_>,
    held: &mut Option<Arc<Owned<AsyncLane>>>,
) -> Result<(Arc<Owned<AsyncLane>>, usize), CallError> {
    core.check()?;
    core.recipe.refuse_own_server()?;
    let terms = Terms {
        deadline: end_of(Instant::now(), after),
        after,
        waker: None,
    };
    let mut place = core
        .asynchronous
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    if core.closed.load(Ordering::Acquire) {
        return Err(CallError::Closed);
    }
    if let Some(lane) = place.clone() {
        let mut inner = lane.lock();
        if let Some(held) = held.take_if(|held| Arc::ptr_eq(held, &lane)) {
            // Taken again at once, with the lock held.
            inner.calls.live -= 1;
            drop(held);
        }
        if inner.takes_calls() {
            drop(place);
            let awake = !lane.sleeping.load(Ordering::SeqCst);
            let tag = inner.put(wish, terms, awake);
            give_back(inner);
            lane.rouse();
            return tag.map(|tag| (lane, tag));
        }
        give_back(inner);
        lane.replaced.store(true, Ordering::Release);
        lane.wake();
        *place = None;
    }
    let lane = AsyncLane::new(core.recipe.channel.max_outstanding);
    let lane = Arc::new(Owned::new(lane));
    // Its first call stands there before its driver looks for one.
    let tag = lane.lock().calls.wait(wish, terms)?;
    let (driven, recipe) = (Arc::clone(&lane), Arc::clone(&core.recipe));
    std::thread::Builder::new()
        .name("dunlin-client".into())
        .spawn(move || driven.drive(recipe))
        .map_err(|error| CallError::NoThread {
            why: error.to_string(),
        })?;
    *place = Some(Arc::clone(&lane));
    Ok((lane, tag))
}

/// The answer of a call, when it comes. Works under any executor. Dropping it cancels the call.
#[must_use = "the call is cancelled when the future is dropped"]
pub struct CallFuture(State);

enum State {
    Out {
        lane: Arc<Owned<AsyncLane>>,
        tag: usize,
    },
    Failed(Option<CallError>),
    Over,
}

impl std::fmt::Debug for CallFuture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = match self.0 {
            State::Out { .. } => "out",
            State::Failed(_) => "failed",
            State::Over => "over",
        };
        write!(f, "CallFuture({state})")
    }
}

impl AsyncLane {
    /// Looks for the answer of a call; `None`: it is out, and its waker is known.
    fn poll_call(&self, tag: usize, context: &Context<'_>) -> Option<Slot> {
        let mut inner = self.lock();
        if let Inner {
            lane: Some(lane),
            calls,
            ..
        } = &mut *inner
        {
            if matches!(calls.slots[tag], Slot::Out(..)) {
                // The answer may be there already; a loss is reported through the slot.
                let _ = lane.poll(calls);
            }
        }
        let known = match inner.calls.slots[tag].terms() {
            Some(terms) => terms.waker.as_ref(),
            None => {
                let ended = inner.calls.release(tag);
                give_back(inner);
                return Some(ended);
            }
        };
        if known.is_some_and(|known| known.will_wake(context.waker())) {
            give_back(inner);
            return None;
        }
        give_back(inner);
        let waker = context.waker().clone();
        let mut inner = self.lock();
        let Some(terms) = inner.calls.slots[tag].terms_mut() else {
            // It ended meanwhile.
            let ended = inner.calls.release(tag);
            give_back(inner);
            return Some(ended);
        };
        let former = terms.waker.replace(waker);
        give_back(inner);
        drop(former);
        None
    }
}

impl Future for CallFuture {
    type Output = Result<Reply, CallError>;

    /// # Panics
    /// When polled after it was ready.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut self.0;
        let result = match this {
            State::Failed(error) => Err(error.take().unwrap_or(CallError::Closed)),
            State::Over => panic!("a call was polled after its answer"),
            State::Out { lane, .. } if !lane.is_here() => Err(CallError::Forked),
            State::Out { lane, tag } => match lane.poll_call(*tag, context) {
                None => return Poll::Pending,
                Some(Slot::Done(result)) => result,
                Some(_) => Err(CallError::Closed),
            },
        };
        *this = State::Over;
        Poll::Ready(result)
    }
}

impl Drop for CallFuture {
    fn drop(&mut self) {
        let State::Out { lane, tag } = &self.0 else {
            return;
        };
        if !lane.is_here() {
            return;
        }
        let mut inner = lane.lock();
        let Inner {
            lane: engine,
            calls,
            ..
        } = &mut *inner;
        if let (Slot::Out(call, _), Some(engine)) = (&calls.slots[*tag], engine) {
            engine.abandon(*call);
        }
        let given_up = calls.release(*tag);
        give_back(inner);
        drop(given_up);
    }
}
