//! A call as a future: how it is sent, polled and cancelled.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::task::{ready, Context, Poll, Waker};
use std::time::Duration;

use dunlin_verbs::process::Owned;
use dunlin_verbs::thread;

use super::calls::{Calls, Holds, State, Wish};
use super::looking::Looked;
use super::ready::LanePlace;
use super::{give_back, AsyncLane, Inner};
use crate::call::reply::Reply;
use crate::call::wanted::{RegionKey, Wanted};
use crate::channel::one_sided::Attached;
use crate::client::region::granted;
use crate::client::Core;
use crate::config::REST;
use crate::error::CallError;
use crate::identity;
use crate::HandlerId;

/// Sends a call and returns its future. `held` is a place that the call already has.
pub(in crate::client) fn call(
    core: &Core,
    deadline: Duration,
    handler: HandlerId,
    payload: &[u8],
    held: Option<LanePlace>,
) -> CallFuture {
    send(core, deadline, Wish::Call(handler, payload), held)
}

/// Requests a region and returns the future of the grant.
pub(in crate::client) fn attach(
    core: &Core,
    deadline: Duration,
    region: &Arc<RegionKey>,
) -> CallFuture {
    send(core, deadline, Wish::Attach(region), None)
}

/// Starts a one-sided operation and returns its future.
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
    mut held: Option<LanePlace>,
) -> CallFuture {
    // A place on a lane that has been replaced is given back when the call is on the other lane, whose lock is free.
    match may_call(core) {
        Ok(()) => put(core, deadline, wish, held.as_mut()),
        Err(error) => CallFuture::failed(core, error),
    }
}

fn may_call(core: &Core) -> Result<(), CallError> {
    core.check()?;
    if identity::polls_here() {
        core.recipe().refuse_own_server_to_futures()?;
    }
    Ok(())
}

/// Puts a call into the client's lane for futures, which is made anew if there is no usable one.
fn put(core: &Core, after: Duration, wish: Wish<'_>, held: Option<&mut LanePlace>) -> CallFuture {
    let mut lanes = thread::lock(&core.asynchronous);
    if core.closed.load(Ordering::Acquire) {
        return CallFuture::failed(core, CallError::Closed);
    }
    if let Some(lane) = lanes.current.clone() {
        let mut inner = lane.lock();
        if inner.takes_calls() {
            drop(lanes);
            let awake = !lane.sleeping.load(Ordering::SeqCst);
            let holds = match held {
                Some(held) if Arc::ptr_eq(&held.calls, &lane) => held.terms().1,
                Some(_) => Holds::PlaceElsewhere,
                None => Holds::Nothing,
            };
            let put = inner.put(wish, (after, holds), awake);
            let tag = put.unwrap_or_else(|error| inner.calls.refuse(error));
            give_back(inner);
            lane.rouse();
            return CallFuture::new(lane, tag);
        }
        give_back(inner);
        lanes.replace();
    }
    match begin(core, |calls| calls.wait(wish, (after, Holds::Nothing))) {
        Ok((lane, tag)) => {
            lanes.current = Some(Arc::clone(&lane));
            CallFuture::new(lane, tag)
        }
        Err(error) => CallFuture::failed(core, error),
    }
}

/// The client's lane for futures with a place reserved on it, if this call has made that lane.
pub(super) fn begin_with_place(core: &Core) -> Result<Option<Arc<Owned<AsyncLane>>>, CallError> {
    let mut lanes = thread::lock(&core.asynchronous);
    if core.closed.load(Ordering::Acquire) {
        return Err(CallError::Closed);
    }
    let current = lanes.current.as_ref();
    if current.is_some_and(|lane| !lane.lock().over) {
        return Ok(None);
    }
    let (lane, _) = begin(core, |calls| Ok(calls.take_place()))?;
    lanes.current = Some(Arc::clone(&lane));
    Ok(Some(lane))
}

/// Makes a lane with its first call or place, and starts the driver that connects it.
fn begin<T>(
    core: &Core,
    first: impl FnOnce(&mut Calls) -> Result<T, CallError>,
) -> Result<(Arc<Owned<AsyncLane>>, T), CallError> {
    let recipe = core.recipe();
    let lane = AsyncLane::new(&core.settings.channel, core.settings.told);
    let lane = Arc::new(Owned::new(lane));
    // They must be in place before the driver looks for them.
    let begun = first(&mut lane.lock().calls)?;
    let (driven, made_by) = (Arc::clone(&lane), Arc::clone(&recipe));
    // The lane that was made to check the address, if it is still unused.
    let spare = match core.settings.is_local {
        true => None,
        false => recipe.spares.take(),
    };
    recipe
        .spawn("dunlin-client", move || driven.drive(made_by, spare))
        .map_err(|error| CallError::NoThread {
            why: error.to_string(),
        })?;
    Ok((lane, begun))
}

/// A future of a call's response. Works under any executor. Dropping it cancels the call.
// Fits into a pair of registers: a value returned through memory, and moved by wider loads than the stores that wrote
// it, waits there for all earlier stores, which here include stores to lines that the server holds.
#[must_use = "the call is cancelled when the future is dropped"]
pub struct CallFuture {
    /// The lane that holds or will hold the outcome; `None` once it was taken.
    lane: Option<Arc<Owned<AsyncLane>>>,
    place: Place,
}

/// The slot of a call, and whether its future has been polled.
#[derive(Clone, Copy)]
struct Place(usize);

impl Place {
    fn tag(self) -> usize {
        self.0 >> 1
    }

    /// Marks it; returns whether it was marked before.
    fn mark_polled(&mut self) -> bool {
        let before = self.0 & 1 == 1;
        self.0 |= 1;
        before
    }
}

impl CallFuture {
    fn new(lane: Arc<Owned<AsyncLane>>, tag: usize) -> Self {
        Self {
            lane: Some(lane),
            place: Place(tag << 1),
        }
    }

    /// A call that was never sent.
    #[cold]
    fn failed(core: &Core, error: CallError) -> Self {
        let lane = AsyncLane::new(&core.settings.channel, core.settings.told);
        let tag = lane.lock().calls.refuse(error);
        Self::new(Arc::new(Owned::new(lane)), tag)
    }
}

impl std::fmt::Debug for CallFuture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = match self.lane {
            Some(_) => "pending",
            None => "over",
        };
        write!(f, "CallFuture({state})")
    }
}

impl AsyncLane {
    /// Polls for the response of a call; while the call is outstanding its task will be woken. `waker` is the task's,
    /// if the call does not have it yet. When the call has ended, the lock is returned and the outcome is to be taken
    /// under it.
    fn poll_call(
        &self,
        tag: usize,
        context: &Context<'_>,
        mut waker: Option<Waker>,
    ) -> Option<MutexGuard<'_, Inner>> {
        let mut inner = self.lock();
        let looked = match inner.calls.slots[tag].terms() {
            Some(_) => inner.look_as_task(tag, self.wait),
            None => Looked::Wait,
        };
        let leads = matches!(looked, Looked::Lead(_));
        loop {
            let Some(terms) = inner.calls.slots[tag].terms_mut() else {
                return Some(inner);
            };
            // The leading task wakes itself.
            let known = terms.waker.as_ref();
            if leads || known.is_some_and(|known| known.will_wake(context.waker())) {
                break;
            }
            if let Some(waker) = waker.take() {
                let former = terms.waker.replace(waker);
                inner.calls.last_asked = tag;
                give_back(inner);
                drop(former);
                self.after(&looked);
                return None;
            }
            give_back(inner);
            waker = Some(context.waker().clone());
            inner = self.lock();
        }
        inner.calls.last_asked = tag;
        give_back(inner);
        if leads {
            // Two simultaneous stores may lose a count: the driver only checks whether there were any.
            let looks = self.task_looks.load(Ordering::Relaxed);
            self.task_looks.store(looks + 1, Ordering::Relaxed);
            match looked {
                // On a core that the server needs, too, the server goes first.
                Looked::Lead(true) => thread::idle(REST, false),
                _ => thread::found(),
            }
            context.waker().wake_by_ref();
        } else {
            self.after(&looked);
        }
        None
    }

    /// To be called after a poll without success, when the lock has been released.
    fn after(&self, looked: &Looked) {
        if matches!(looked, Looked::Leave) {
            self.hand_over();
        }
    }
}

impl Future for CallFuture {
    type Output = Result<Reply, CallError>;

    /// # Panics
    /// When polled after it was ready.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { lane, place } = &mut *self;
        let Some(here) = lane else {
            panic!("a call was polled after it had returned its answer");
        };
        if !here.is_here() {
            *lane = None;
            return Poll::Ready(Err(CallError::Forked));
        }
        // Most calls are polled twice, with a wait in between: the waker is cloned outside the lock.
        let waker = (!place.mark_polled()).then(|| context.waker().clone());
        let Some(mut inner) = here.poll_call(place.tag(), context, waker) else {
            return Poll::Pending;
        };
        let ended = inner.take(place.tag());
        give_back(inner);
        *lane = None;
        Poll::Ready(ended)
    }
}

impl CallFuture {
    /// Takes what the server has granted, for the lane that carried the call if it is still there: another lane
    /// requests the region again with its first operation.
    pub(in crate::client) fn poll_attached(
        &mut self,
        context: &mut Context<'_>,
        region: &RegionKey,
    ) -> Poll<Result<Attached, CallError>> {
        let over = self.lane.clone();
        let attached = granted(region, ready!(Pin::new(self).poll(context)))?;
        // After a fork, the holder of the lock may be a thread of the parent, which cannot release it here.
        if let Some(over) = over.filter(|over| over.is_here()) {
            let mut inner = over.lock();
            if let Some(lane) = &mut inner.lane {
                lane.set_attached(region.number, attached);
            }
            give_back(inner);
        }
        Poll::Ready(Ok(attached))
    }
}

impl Drop for CallFuture {
    fn drop(&mut self) {
        let Some(lane) = self.lane.take().filter(|lane| lane.is_here()) else {
            return;
        };
        let tag = self.place.tag();
        let mut inner = lane.lock();
        let Inner {
            lane: engine,
            calls,
            ..
        } = &mut *inner;
        if let (State::Out(call), Some(engine)) = (&calls.slots[tag].state, engine) {
            engine.abandon(*call);
        }
        let given_up = inner.release(tag);
        give_back(inner);
        drop(given_up);
    }
}
