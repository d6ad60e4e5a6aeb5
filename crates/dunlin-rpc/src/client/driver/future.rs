//! A call as a future: how it is sent, polled and given up.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use dunlin_verbs::process::Owned;
use dunlin_verbs::thread;

use super::calls::{Slot, Terms, Wish};
use super::looking::Looked;
use super::{give_back, AsyncLane, Inner};
use crate::call::reply::Reply;
use crate::call::wanted::{RegionKey, Wanted};
use crate::channel::one_sided::Attached;
use crate::client::region::granted_on;
use crate::client::Core;
use crate::config::REST;
use crate::error::CallError;
use crate::server::identity;
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

/// Asks for a region and returns the future of the grant.
pub(in crate::client) fn attach(
    core: &Core,
    deadline: Duration,
    region: &Arc<RegionKey>,
) -> CallFuture {
    send(core, deadline, Wish::Attach(region), None)
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
        Ok((lane, tag)) => CallFuture(State::Out {
            lane,
            tag,
            asked: false,
        }),
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
    if identity::polls_here() {
        core.recipe().refuse_own_server()?;
    }
    let terms = Terms::new(after, core.settings.told);
    let mut place = thread::lock(&core.asynchronous);
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
        lane.replace();
        *place = None;
    }
    let recipe = core.recipe();
    let lane = AsyncLane::new(&core.settings.channel);
    let lane = Arc::new(Owned::new(lane));
    // Its first call stands there before its driver looks for one.
    let tag = lane.lock().calls.wait(wish, terms)?;
    let (driven, made_by) = (Arc::clone(&lane), Arc::clone(&recipe));
    // The lane that proved the address, if nobody has taken it.
    let spare = match core.settings.is_local {
        true => None,
        false => recipe.spares.take(),
    };
    recipe
        .spawn("dunlin-client", move || driven.drive(made_by, spare))
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
        /// It was polled.
        asked: bool,
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
    /// Looks for the answer of a call; while it is out its task is woken. `waker`: the task's, if the call does not have
    /// it yet.
    fn poll_call(
        &self,
        tag: usize,
        context: &Context<'_>,
        mut waker: Option<Waker>,
    ) -> Poll<Result<Reply, CallError>> {
        let mut inner = self.lock();
        let looked = match inner.calls.slots[tag].terms() {
            Some(_) => inner.look_as_task(tag, self.wait),
            None => Looked::Wait,
        };
        let leads = matches!(looked, Looked::Lead(_));
        loop {
            let Some(terms) = inner.calls.slots[tag].terms_mut() else {
                let ended = match inner.release(tag) {
                    Slot::Done(result) => result,
                    _ => Err(CallError::Closed),
                };
                give_back(inner);
                return Poll::Ready(ended);
            };
            // Who leads is woken by itself.
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
                return Poll::Pending;
            }
            give_back(inner);
            waker = Some(context.waker().clone());
            inner = self.lock();
        }
        inner.calls.last_asked = tag;
        give_back(inner);
        if leads {
            // Two stores that meet may count one look: the driver asks only whether there were any.
            let looks = self.task_looks.load(Ordering::Relaxed);
            self.task_looks.store(looks + 1, Ordering::Relaxed);
            match looked {
                // On a core that the server wants, too, it goes first.
                Looked::Lead(true) => thread::idle(REST, false),
                _ => thread::found(),
            }
            context.waker().wake_by_ref();
        } else {
            self.after(&looked);
        }
        Poll::Pending
    }

    /// The lock is given back after a look in vain.
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
        let this = &mut self.0;
        let result = match this {
            State::Failed(error) => Err(error.take().unwrap_or(CallError::Closed)),
            State::Over => panic!("a call was polled after its answer"),
            State::Out { lane, .. } if !lane.is_here() => Err(CallError::Forked),
            State::Out { lane, tag, asked } => {
                // Most calls are polled twice, and wait in between: the waker is cloned outside of the lock.
                let waker = (!*asked).then(|| context.waker().clone());
                *asked = true;
                let polled = lane.poll_call(*tag, context, waker);
                if polled.is_ready() {
                    *this = State::Over;
                }
                return polled;
            }
        };
        *this = State::Over;
        Poll::Ready(result)
    }
}

impl CallFuture {
    /// Takes what the server has granted to the lane that the call went over.
    pub(in crate::client) fn poll_attached(
        &mut self,
        context: &mut Context<'_>,
        region: &RegionKey,
    ) -> Poll<Result<Attached, CallError>> {
        let over = match &self.0 {
            State::Out { lane, .. } => Some(Arc::clone(lane)),
            _ => None,
        };
        let Poll::Ready(answer) = Pin::new(self).poll(context) else {
            return Poll::Pending;
        };
        let Some(over) = over else {
            return Poll::Ready(answer.and(Err(CallError::Closed)));
        };
        let mut inner = over.lock();
        let attached = match &mut inner.lane {
            Some(lane) => granted_on(lane.as_mut(), region, answer),
            None => answer.and(Err(CallError::Closed)),
        };
        give_back(inner);
        Poll::Ready(attached)
    }
}

impl Drop for CallFuture {
    fn drop(&mut self) {
        let State::Out { lane, tag, .. } = &self.0 else {
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
        let given_up = inner.release(*tag);
        give_back(inner);
        drop(given_up);
    }
}
