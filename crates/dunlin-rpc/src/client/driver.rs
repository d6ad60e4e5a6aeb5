//! Calls as futures: one lane for all of a client's futures, and a thread that polls it while any of them is out.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use dunlin_verbs::thread;

use super::lane::{Answer, Body, CallId, Lane, Sink, Sleeper, Submitted};
use super::region::{attach_by, RegionKey, Wanted};
use super::reply::Reply;
use super::Core;
use crate::config::{WaitMode, REST, UNHEARD_PAUSE};
use crate::error::CallError;
use crate::fabric::Owner;
use crate::HandlerId;

/// Polls between two looks at the clock.
const POLLS_PER_CLOCK: u32 = 64;
/// How exactly deadlines are kept.
const DEADLINE_STEP: Duration = Duration::from_millis(1);
/// How long to go on looking after sleep was announced.
const GRACE: Duration = Duration::from_micros(20);
/// Longest sleep: the deadlines of calls that are out, and the harm of a wake-up lost after all.
const LONGEST_SLEEP: Duration = Duration::from_millis(20);

/// The lane of a client's futures.
pub(super) struct AsyncLane {
    inner: Mutex<Inner>,
    sleeper: Box<dyn Sleeper>,
    /// Whether the driver is about to sleep or asleep.
    sleeping: AtomicBool,
    /// The client was closed.
    ending: AtomicBool,
    /// A new lane has taken its place: what is out is finished, and then the driver ends.
    replaced: AtomicBool,
}

struct Inner {
    lane: Box<dyn Lane>,
    calls: Calls,
    /// The driver has ended: a call that is sent now would never be answered.
    over: bool,
}

/// What became of the calls, by tag.
#[derive(Default)]
struct Calls {
    slots: Vec<Slot>,
    free: Vec<usize>,
}

#[derive(Default)]
enum Slot {
    #[default]
    Free,
    Out {
        call: CallId,
        deadline: Instant,
        after: Duration,
        waker: Option<Waker>,
    },
    Done(Result<Reply, CallError>),
}

impl Calls {
    fn reserve(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::Free);
            self.slots.len() - 1
        })
    }

    fn release(&mut self, tag: usize) -> Slot {
        self.free.push(tag);
        std::mem::take(&mut self.slots[tag])
    }
}

impl Sink for Calls {
    fn complete(&mut self, tag: u64, result: Result<Answer<'_>, CallError>) {
        let Some(slot @ Slot::Out { .. }) = self.slots.get_mut(tag as usize) else {
            return;
        };
        let done = Slot::Done(result.map(Reply::new));
        if let Slot::Out {
            waker: Some(waker), ..
        } = std::mem::replace(slot, done)
        {
            waker.wake();
        }
    }
}

impl AsyncLane {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn close(&self) {
        self.ending.store(true, Ordering::Release);
        self.sleeper.wake();
    }

    fn rouse(&self) {
        if self.sleeping.load(Ordering::SeqCst) {
            self.sleeper.wake();
        }
    }

    /// The driver: its loop, and the mark of its end.
    fn drive(&self, wait: WaitMode) {
        let mut inner = self.drive_until_end(wait);
        inner.over = true;
    }

    /// Ends with the lock held, so that no call comes in between.
    fn drive_until_end(&self, wait: WaitMode) -> MutexGuard<'_, Inner> {
        let mut polls = 0u32;
        let mut idle_since: Option<Instant> = None;
        let mut next_expiry = Instant::now();
        loop {
            let ending = self.ending.load(Ordering::Acquire);
            let mut inner = self.lock();
            let Inner { lane, calls, .. } = &mut *inner;
            // What tasks have submitted since the last look leaves here, with one doorbell (FaSST's master coroutine).
            let polled = lane.turn(calls, true);
            if ending || polled.is_err() {
                let error = polled.err().unwrap_or(CallError::Closed);
                calls.end(&error);
                return inner;
            }
            if self.replaced.load(Ordering::Acquire) && lane.outstanding() == 0 {
                return inner;
            }
            if matches!(polled, Ok(taken) if taken > 0) {
                idle_since = None;
                thread::found();
                continue;
            }
            polls = polls.wrapping_add(1);
            if polls % POLLS_PER_CLOCK != 0 {
                drop(inner);
                thread::idle(REST, false);
                continue;
            }
            let now = Instant::now();
            if now >= next_expiry {
                next_expiry = now + DEADLINE_STEP;
                calls.expire(now, lane.as_mut());
                if lane.check(calls).is_err() {
                    return inner;
                }
            }
            let since = *idle_since.get_or_insert(now);
            let spin = match wait {
                WaitMode::Doze { spin } => spin,
                // Latency mode polls while calls are out, and only then.
                WaitMode::Spin if lane.outstanding() > 0 => continue,
                WaitMode::Spin => Duration::from_millis(1),
            };
            if now.duration_since(since) >= spin {
                self.sleep(inner);
                idle_since = None;
            } else {
                drop(inner);
                thread::give_way();
            }
        }
    }

    fn sleep(&self, mut inner: MutexGuard<'_, Inner>) {
        self.sleeping.store(true, Ordering::SeqCst);
        let Inner { lane, calls, .. } = &mut *inner;
        let announced = lane.prepare_sleep(calls);
        let before = lane.outstanding();
        let started = Instant::now();
        let mut quiet = matches!(announced, Ok(true));
        while quiet && started.elapsed() < GRACE {
            quiet = matches!(lane.poll(calls), Ok(0));
        }
        quiet = quiet && lane.check(calls).is_ok() && lane.outstanding() == before;
        let timeout = if before > 0 {
            LONGEST_SLEEP
        } else {
            5 * LONGEST_SLEEP
        };
        drop(inner);
        if matches!(announced, Ok(false)) {
            std::thread::sleep(UNHEARD_PAUSE);
        }
        if quiet && !self.ending.load(Ordering::Acquire) && self.sleeper.sleep(timeout).is_err() {
            std::thread::sleep(DEADLINE_STEP);
        }
        self.sleeping.store(false, Ordering::SeqCst);
    }
}

impl Calls {
    fn end(&mut self, error: &CallError) {
        for tag in 0..self.slots.len() {
            if matches!(self.slots[tag], Slot::Out { .. }) {
                self.complete(tag as u64, Err(error.clone()));
            }
        }
    }

    fn expire(&mut self, now: Instant, lane: &mut dyn Lane) {
        for tag in 0..self.slots.len() {
            if let Slot::Out {
                call,
                deadline,
                after,
                ..
            } = self.slots[tag]
            {
                if deadline <= now {
                    lane.abandon(call);
                    self.complete(tag as u64, Err(CallError::DeadlineExceeded { after }));
                }
            }
        }
    }
}

/// The client's lane for futures, made anew when there is none that can be used.
fn lane_of(core: &Arc<Core>) -> Result<Arc<AsyncLane>, CallError> {
    let mut place = core
        .asynchronous
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    if core.closed.load(Ordering::Acquire) {
        return Err(CallError::Closed);
    }
    if let Some(lane) = &*place {
        let mut inner = lane.lock();
        if inner.lane.is_usable() && !inner.over {
            return Ok(Arc::clone(lane));
        }
        drop(inner);
        lane.replaced.store(true, Ordering::Release);
        lane.sleeper.wake();
        *place = None;
    }
    let connect = |error| CallError::Connect(Arc::new(error));
    let (lane, _) = core.recipe.open(Owner::Alone).map_err(connect)?;
    let lane = Arc::new(AsyncLane {
        sleeper: lane.sleeper(),
        inner: Mutex::new(Inner {
            lane,
            calls: Calls::default(),
            over: false,
        }),
        sleeping: AtomicBool::new(false),
        ending: AtomicBool::new(false),
        replaced: AtomicBool::new(false),
    });
    let driven = Arc::clone(&lane);
    let wait = core.recipe.channel.wait;
    std::thread::Builder::new()
        .name("dunlin-client".into())
        .spawn(move || driven.drive(wait))
        .map_err(|error| CallError::ConnectionLost {
            why: format!("no thread: {error}"),
        })?;
    *place = Some(Arc::clone(&lane));
    Ok(lane)
}

/// Sends a call and returns its future.
pub(super) fn call(core: &Arc<Core>, handler: HandlerId, payload: &[u8]) -> CallFuture {
    let submit = |inner: &mut Inner, tag: usize, limit: Duration, awake: bool| {
        submit(inner, handler, payload, tag, limit, awake)
    };
    match send(core, &submit) {
        Ok((lane, tag)) => CallFuture(State::Out { lane, tag }),
        Err(error) => CallFuture(State::Failed(Some(error))),
    }
}

/// Does a one-sided operation and returns its future.
pub(super) fn operate(
    core: &Arc<Core>,
    region: &RegionKey,
    offset: u64,
    wanted: &Wanted<'_>,
) -> CallFuture {
    let submit = |inner: &mut Inner, tag: usize, limit: Duration, _: bool| {
        submit_one_sided(inner, region, offset, wanted, tag, limit)
    };
    match send(core, &submit) {
        Ok((lane, tag)) => CallFuture(State::Out { lane, tag }),
        Err(error) => CallFuture(State::Failed(Some(error))),
    }
}

/// Puts a call into the lane: where it is, its place, its deadline, and whether the driver is awake.
type Submit<'a> = dyn Fn(&mut Inner, usize, Duration, bool) -> Result<CallId, CallError> + 'a;

fn send(core: &Arc<Core>, submit: &Submit<'_>) -> Result<(Arc<AsyncLane>, usize), CallError> {
    let deadline = core.recipe.deadline;
    let lane = lane_of(core)?;
    let mut inner = lane.lock();
    if lane.ending.load(Ordering::Acquire) {
        return Err(CallError::Closed);
    }
    if inner.over {
        // It was lost after we got it; the call was not sent.
        drop(inner);
        return send(core, submit);
    }
    let tag = inner.calls.reserve();
    let awake = !lane.sleeping.load(Ordering::SeqCst);
    // It is out before it is named: it may end while it is sent.
    inner.calls.slots[tag] = Slot::Out {
        call: CallId::MAX,
        deadline: Instant::now() + deadline,
        after: deadline,
        waker: None,
    };
    match submit(&mut inner, tag, deadline, awake) {
        Ok(name) => {
            if let Slot::Out { call, .. } = &mut inner.calls.slots[tag] {
                *call = name;
            }
        }
        Err(error) => {
            inner.calls.release(tag);
            return Err(error);
        }
    }
    drop(inner);
    lane.rouse();
    Ok((lane, tag))
}

/// Submits, making room by polling when the ring is full. `awake`: the driver looks at the lane soon.
fn submit(
    inner: &mut Inner,
    handler: HandlerId,
    payload: &[u8],
    tag: usize,
    limit: Duration,
    awake: bool,
) -> Result<CallId, CallError> {
    let started = Instant::now();
    loop {
        let Inner { lane, calls, .. } = &mut *inner;
        if let Some(call) = lane.submit(handler, &mut Body::Bytes(payload), tag as u64)? {
            if !awake || !lane.gathers() {
                lane.flush(calls)?;
            }
            return Ok(call);
        }
        if started.elapsed() > limit {
            return Err(CallError::DeadlineExceeded { after: limit });
        }
        if lane.turn(calls, true)? == 0 {
            lane.check(calls)?;
            std::thread::yield_now();
        }
    }
}

/// Submits a one-sided operation, after it has attached the region if need be.
fn submit_one_sided(
    inner: &mut Inner,
    region: &RegionKey,
    offset: u64,
    wanted: &Wanted<'_>,
    tag: usize,
    limit: Duration,
) -> Result<CallId, CallError> {
    let started = Instant::now();
    loop {
        let Inner { lane, calls, .. } = &mut *inner;
        match lane.submit_one_sided(region, offset, wanted, tag as u64)? {
            Submitted::Call(call) => {
                lane.flush(calls)?;
                return Ok(call);
            }
            Submitted::Unattached => attach(inner, region, limit)?,
            Submitted::Full => {
                if started.elapsed() > limit {
                    return Err(CallError::DeadlineExceeded { after: limit });
                }
                if lane.turn(calls, true)? == 0 {
                    lane.check(calls)?;
                    std::thread::yield_now();
                }
            }
        }
    }
}

fn attach(inner: &mut Inner, region: &RegionKey, limit: Duration) -> Result<(), CallError> {
    let Inner { lane, calls, .. } = inner;
    let place = calls.reserve();
    calls.slots[place] = Slot::Out {
        // The lane is polled here alone until this has ended.
        call: CallId::MAX,
        deadline: Instant::now() + limit,
        after: limit,
        waker: None,
    };
    let attached =
        attach_by(
            lane.as_mut(),
            calls,
            region,
            place as u64,
            limit,
            |calls| match &mut calls.slots[place] {
                Slot::Out { .. } => None,
                other => match std::mem::take(other) {
                    Slot::Done(result) => Some(result),
                    _ => Some(Err(CallError::Closed)),
                },
            },
        );
    calls.release(place);
    attached.map(drop)
}

/// The answer of a call, when it comes. Works under any executor. Dropping it cancels the call.
#[must_use = "the call is cancelled when the future is dropped"]
pub struct CallFuture(State);

enum State {
    Out { lane: Arc<AsyncLane>, tag: usize },
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

impl Future for CallFuture {
    type Output = Result<Reply, CallError>;

    /// # Panics
    /// When polled after it was ready.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut self.0;
        match this {
            State::Failed(error) => {
                let error = error.take();
                *this = State::Over;
                Poll::Ready(Err(error.unwrap_or(CallError::Closed)))
            }
            State::Over => panic!("a call was polled after its answer"),
            State::Out { lane, tag } => {
                let lane = Arc::clone(lane);
                let tag = *tag;
                let mut inner = lane.lock();
                let Inner {
                    lane: engine,
                    calls,
                    ..
                } = &mut *inner;
                if matches!(calls.slots[tag], Slot::Out { .. }) {
                    // The answer may be there already; a loss is reported through the slot.
                    let _ = engine.poll(calls);
                }
                match &mut calls.slots[tag] {
                    Slot::Out { waker, .. } => {
                        match waker {
                            Some(known) => known.clone_from(context.waker()),
                            None => *waker = Some(context.waker().clone()),
                        }
                        Poll::Pending
                    }
                    Slot::Done(_) | Slot::Free => {
                        let slot = calls.release(tag);
                        drop(inner);
                        *this = State::Over;
                        match slot {
                            Slot::Done(result) => Poll::Ready(result),
                            _ => Poll::Ready(Err(CallError::Closed)),
                        }
                    }
                }
            }
        }
    }
}

impl Drop for CallFuture {
    fn drop(&mut self) {
        let State::Out { lane, tag } = &self.0 else {
            return;
        };
        let mut inner = lane.lock();
        let Inner {
            lane: engine,
            calls,
            ..
        } = &mut *inner;
        if let Slot::Out { call, .. } = calls.slots[*tag] {
            engine.abandon(call);
        }
        calls.release(*tag);
    }
}
