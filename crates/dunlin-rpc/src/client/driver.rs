//! Calls as futures: one lane for all of a client's futures, and a thread that makes it and polls it while any of them
//! is out.
//!
//! Who calls never waits. A call that finds no lane yet, or no room on it, stands in a queue, in order, until the
//! driver has some for it; the lock is held for a look at the lane and never while a connection is made. Wakers are
//! somebody else's code, which may call or give up calls: none is cloned, woken or dropped under the lock.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use dunlin_verbs::process::Owned;
use dunlin_verbs::thread;

use super::builder::Recipe;
use super::region::granted_on;
use super::wait::end_of;
use super::Core;
use crate::call::lane::{Answer, Body, CallId, Lane, Sink, Sleeper, Submitted};
use crate::call::reply::Reply;
use crate::call::wanted::{RegionKey, Wanted};
use crate::config::{WaitMode, REST, UNHEARD_PAUSE};
use crate::doze::{doze, Doze, Dozed};
use crate::error::CallError;
use crate::fabric::Owner;
use crate::HandlerId;

/// Polls between two looks at the clock.
const POLLS_PER_CLOCK: u32 = 64;
/// How exactly deadlines are kept.
const DEADLINE_STEP: Duration = Duration::from_millis(1);
/// Longest sleep: the deadlines of calls that are out, and the harm of a wake-up lost after all.
const LONGEST_SLEEP: Duration = Duration::from_millis(20);
/// The tag of the driver's own question for a region; calls have the numbers of their slots.
const ATTACH: u64 = u64::MAX;

/// The lane of a client's futures.
pub(super) struct AsyncLane {
    inner: Mutex<Inner>,
    /// There when the lane is.
    sleeper: OnceLock<Box<dyn Sleeper>>,
    /// Whether the driver is about to sleep or asleep.
    sleeping: AtomicBool,
    /// The client was closed.
    ending: AtomicBool,
    /// A new lane has taken its place: what is out is finished, and then the driver ends.
    replaced: AtomicBool,
}

struct Inner {
    /// `None` before it is made, and after its end.
    lane: Option<Box<dyn Lane>>,
    calls: Calls,
    /// The driver has ended: a call that is sent now would never be answered.
    over: bool,
}

/// What became of the calls, by tag.
struct Calls {
    slots: Vec<Slot>,
    free: Vec<usize>,
    /// Calls that are not sent yet, in their order.
    waiting: VecDeque<usize>,
    /// Calls that are out or wait, and how many there may be.
    live: usize,
    limit: usize,
    attaching: Option<Attaching>,
    /// Who is to be woken when the lock is given back.
    woken: Vec<Waker>,
}

/// The question for a region that the first of the waiting calls needs.
struct Attaching {
    call: CallId,
    region: Arc<RegionKey>,
    answer: Option<Result<Reply, CallError>>,
}

#[derive(Default)]
enum Slot {
    #[default]
    Free,
    Waiting(Asked, Terms),
    Out(CallId, Terms),
    Done(Result<Reply, CallError>),
}

/// How long a call may take, and who wants its answer.
struct Terms {
    deadline: Instant,
    after: Duration,
    waker: Option<Waker>,
}

/// What a caller wants, in its own memory.
#[derive(Clone, Copy)]
enum Wish<'a> {
    Call(HandlerId, &'a [u8]),
    OneSided(&'a Arc<RegionKey>, u64, Wanted<'a>),
}

/// The same, until it can be sent.
enum Asked {
    Call(HandlerId, Box<[u8]>),
    Write(Arc<RegionKey>, u64, Box<[u8]>),
    /// An operation that takes no bytes along.
    Bare(Arc<RegionKey>, u64, Wanted<'static>),
}

impl Wish<'_> {
    fn keep(&self) -> Asked {
        match *self {
            Wish::Call(handler, payload) => Asked::Call(handler, payload.into()),
            Wish::OneSided(region, offset, wanted) => {
                let region = Arc::clone(region);
                match wanted {
                    Wanted::Write(bytes) => Asked::Write(region, offset, bytes.into()),
                    Wanted::Read(length) => Asked::Bare(region, offset, Wanted::Read(length)),
                    Wanted::FetchAndAdd(add) => {
                        Asked::Bare(region, offset, Wanted::FetchAndAdd(add))
                    }
                    Wanted::CompareAndSwap { compare, swap } => {
                        let wanted = Wanted::CompareAndSwap { compare, swap };
                        Asked::Bare(region, offset, wanted)
                    }
                }
            }
        }
    }

    /// Submits it. `Full`: there is no room now.
    fn submit(&self, lane: &mut dyn Lane, tag: usize) -> Result<Submitted, CallError> {
        let submitted = match *self {
            Wish::Call(handler, payload) => lane
                .submit(handler, &mut Body::Bytes(payload), tag as u64)
                .map(|call| call.map_or(Submitted::Full, Submitted::Call)),
            Wish::OneSided(region, offset, wanted) => {
                lane.submit_one_sided(region, offset, &wanted, tag as u64)
            }
        };
        match submitted {
            // Calls that were given up hold their places until they are answered.
            Err(CallError::TooManyOutstanding { .. }) => Ok(Submitted::Full),
            other => other,
        }
    }
}

impl Asked {
    fn wish(&self) -> Wish<'_> {
        match self {
            Asked::Call(handler, payload) => Wish::Call(*handler, payload),
            Asked::Write(region, offset, bytes) => {
                Wish::OneSided(region, *offset, Wanted::Write(bytes))
            }
            Asked::Bare(region, offset, wanted) => Wish::OneSided(region, *offset, *wanted),
        }
    }
}

impl Calls {
    fn new(limit: usize) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            waiting: VecDeque::new(),
            live: 0,
            limit,
            attaching: None,
            woken: Vec::new(),
        }
    }

    /// A place for a call.
    ///
    /// # Errors
    /// When as many as there may be are out or wait.
    fn reserve(&mut self, slot: Slot) -> Result<usize, CallError> {
        if self.live >= self.limit {
            return Err(CallError::TooManyOutstanding { limit: self.limit });
        }
        self.live += 1;
        let tag = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::Free);
            self.slots.len() - 1
        });
        self.slots[tag] = slot;
        Ok(tag)
    }

    /// Nobody wants what is in the slot any more, which is given back for the caller to drop: it may hold a waker.
    fn release(&mut self, tag: usize) -> Slot {
        self.free.push(tag);
        let slot = std::mem::take(&mut self.slots[tag]);
        self.live -= usize::from(slot.terms().is_some());
        if matches!(slot, Slot::Waiting(..)) {
            self.waiting.retain(|&other| other != tag);
        }
        slot
    }

    /// A call has ended.
    fn finish(&mut self, tag: usize, result: Result<Reply, CallError>) {
        let Some(slot) = self.slots.get_mut(tag) else {
            return;
        };
        let Some(terms) = slot.terms_mut() else {
            return;
        };
        self.woken.extend(terms.waker.take());
        *slot = Slot::Done(result);
        self.live -= 1;
    }

    /// All calls end.
    fn end(&mut self, error: &CallError) {
        self.waiting.clear();
        self.attaching = None;
        for tag in 0..self.slots.len() {
            self.finish(tag, Err(error.clone()));
        }
    }

    /// Calls end whose time is up.
    fn expire(&mut self, now: Instant, mut lane: Option<&mut (dyn Lane + 'static)>) {
        let mut waited = false;
        for tag in 0..self.slots.len() {
            let slot = &self.slots[tag];
            let Some(after) = slot.terms().filter(|t| t.deadline <= now).map(|t| t.after) else {
                continue;
            };
            match (slot, &mut lane) {
                (&Slot::Out(call, _), Some(lane)) => lane.abandon(call),
                (slot, _) => waited |= matches!(slot, Slot::Waiting(..)),
            }
            self.finish(tag, Err(CallError::DeadlineExceeded { after }));
        }
        if waited {
            let slots = &self.slots;
            self.waiting
                .retain(|&tag| matches!(slots[tag], Slot::Waiting(..)));
            if let Some((attaching, lane)) = self.attaching.take().zip(lane) {
                // The next that needs the region asks again.
                lane.abandon(attaching.call);
            }
        }
    }

    /// When the first of the waiting calls has to end.
    fn first_deadline(&self) -> Option<Instant> {
        let first = self.waiting.front().map(|&tag| &self.slots[tag]);
        first.and_then(Slot::terms).map(|terms| terms.deadline)
    }

    /// Sends those that wait, as far as there is room; says whether any was.
    fn send_waiting(&mut self, lane: &mut dyn Lane) -> bool {
        let mut sent = false;
        while let Some(&tag) = self.waiting.front() {
            let mut refused = None;
            match self.attaching.take() {
                Some(Attaching {
                    answer: Some(answer),
                    region,
                    ..
                }) => {
                    let granted = granted_on(lane, &region, answer);
                    refused = granted.err().map(|error| (region.number, error));
                }
                Some(attaching) => {
                    self.attaching = Some(attaching);
                    return sent;
                }
                None => {}
            }
            let Slot::Waiting(asked, _) = &self.slots[tag] else {
                self.waiting.pop_front();
                continue;
            };
            let wish = asked.wish();
            let submitted = match (refused, wish) {
                // Who asked for it may have been given up.
                (Some((number, error)), Wish::OneSided(region, ..)) if region.number == number => {
                    Err(error)
                }
                _ => wish.submit(lane, tag),
            };
            let submitted = match (submitted, wish) {
                (Ok(Submitted::Unattached), Wish::OneSided(region, ..)) => {
                    match lane.submit_attach(&region.name, ATTACH) {
                        Ok(Some(call)) => {
                            self.attaching = Some(Attaching {
                                call,
                                region: Arc::clone(region),
                                answer: None,
                            });
                            return true;
                        }
                        Ok(None) | Err(CallError::TooManyOutstanding { .. }) => return sent,
                        Err(error) => Err(error),
                    }
                }
                (other, _) => other,
            };
            match submitted {
                Ok(Submitted::Call(call)) => {
                    sent = true;
                    if let Slot::Waiting(_, terms) = std::mem::take(&mut self.slots[tag]) {
                        self.slots[tag] = Slot::Out(call, terms);
                    }
                }
                Ok(Submitted::Full | Submitted::Unattached) => return sent,
                Err(error) => self.finish(tag, Err(error)),
            }
            self.waiting.pop_front();
        }
        sent
    }
}

impl Slot {
    /// Of a call that has not ended.
    fn terms(&self) -> Option<&Terms> {
        match self {
            Slot::Waiting(_, terms) | Slot::Out(_, terms) => Some(terms),
            Slot::Free | Slot::Done(_) => None,
        }
    }

    fn terms_mut(&mut self) -> Option<&mut Terms> {
        match self {
            Slot::Waiting(_, terms) | Slot::Out(_, terms) => Some(terms),
            Slot::Free | Slot::Done(_) => None,
        }
    }
}

impl Sink for Calls {
    fn complete(&mut self, tag: u64, result: Result<Answer<'_>, CallError>) {
        let result = result.map(Reply::new);
        if tag != ATTACH {
            return self.finish(tag as usize, result);
        }
        if let Some(attaching) = &mut self.attaching {
            attaching.answer = Some(result);
        }
    }
}

impl Inner {
    /// Whether a call may be put here: the lane is being made, or can be used.
    fn takes_calls(&mut self) -> bool {
        !self.over && self.lane.as_mut().is_none_or(|lane| lane.is_usable())
    }

    /// Sends a call, or lets it wait for room. `awake`: the driver looks at the lane soon.
    fn put(&mut self, wish: Wish<'_>, terms: Terms, awake: bool) -> Result<usize, CallError> {
        let Self { lane, calls, .. } = self;
        let lane = match lane {
            // Those that wait are before it.
            Some(lane) if calls.waiting.is_empty() => lane,
            _ => return calls.wait(wish, terms),
        };
        // It is out before it is named: it may end while it is sent.
        let tag = calls.reserve(Slot::Out(CallId::MAX, terms))?;
        let mut submitted = wish.submit(lane.as_mut(), tag);
        if matches!(submitted, Ok(Submitted::Full)) && matches!(lane.turn(calls, true), Ok(1..)) {
            submitted = wish.submit(lane.as_mut(), tag);
        }
        match submitted {
            Ok(Submitted::Call(name)) => {
                if let Slot::Out(call, _) = &mut calls.slots[tag] {
                    *call = name;
                }
                if !awake || !lane.gathers() {
                    // A lane that is lost has said so to its calls.
                    let _ = lane.flush(calls);
                }
                Ok(tag)
            }
            Ok(Submitted::Full | Submitted::Unattached) => {
                if let Slot::Out(_, terms) = std::mem::take(&mut calls.slots[tag]) {
                    calls.slots[tag] = Slot::Waiting(wish.keep(), terms);
                    calls.waiting.push_back(tag);
                }
                if calls.send_waiting(lane.as_mut()) {
                    let _ = lane.flush(calls);
                }
                Ok(tag)
            }
            Err(error) => {
                drop(calls.release(tag));
                Err(error)
            }
        }
    }
}

impl Calls {
    /// Puts a call behind those that wait.
    fn wait(&mut self, wish: Wish<'_>, terms: Terms) -> Result<usize, CallError> {
        let tag = self.reserve(Slot::Waiting(wish.keep(), terms))?;
        self.waiting.push_back(tag);
        Ok(tag)
    }
}

/// What the driver does next.
enum Next {
    /// It looks again: something came, or the clock says so.
    Look,
    /// Nothing has come.
    Spin,
    /// Nothing has come for a while: others go first.
    GiveWay,
    Sleep,
    End,
}

/// The driver's loop, as far as it goes on from look to look.
struct Rounds {
    wait: WaitMode,
    polls: u32,
    idle_since: Option<Instant>,
    next_expiry: Instant,
}

impl AsyncLane {
    fn new(limit: usize) -> Self {
        Self {
            inner: Mutex::new(Inner {
                lane: None,
                calls: Calls::new(limit),
                over: false,
            }),
            sleeper: OnceLock::new(),
            sleeping: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            replaced: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        if let Some(sleeper) = self.sleeper.get() {
            sleeper.wake();
        }
    }

    pub(super) fn close(&self) {
        self.ending.store(true, Ordering::Release);
        let mut inner = self.lock();
        if inner.lane.is_none() {
            // The driver may be making it for long: its calls are not to wait for that.
            inner.over = true;
            inner.calls.end(&CallError::Closed);
        }
        give_back(inner);
        self.wake();
    }

    fn rouse(&self) {
        if self.sleeping.load(Ordering::SeqCst) {
            self.wake();
        }
    }

    /// The driver: makes the lane, and polls it until its end.
    fn drive(&self, recipe: Arc<Recipe>) {
        /// Also after a panic nobody waits for a driver that is no more.
        struct Over<'a>(&'a AsyncLane);
        impl Drop for Over<'_> {
            fn drop(&mut self) {
                let mut inner = self.0.lock();
                inner.over = true;
                inner.calls.end(&CallError::Closed);
                let lane = inner.lane.take();
                give_back(inner);
                drop(lane);
            }
        }
        let _over = Over(self);
        let wait = recipe.channel.wait;
        if !self.connect(&recipe) {
            return;
        }
        drop(recipe);
        let mut woken = Vec::new();
        let mut rounds = Rounds {
            wait,
            polls: 0,
            idle_since: None,
            next_expiry: Instant::now(),
        };
        loop {
            let mut inner = self.lock();
            let next = self.look(&mut inner, &mut rounds);
            std::mem::swap(&mut inner.calls.woken, &mut woken);
            drop(inner);
            woken.drain(..).for_each(Waker::wake);
            match next {
                Next::Look => {}
                Next::Spin => thread::idle(REST, false),
                Next::GiveWay => thread::give_way(),
                Next::Sleep => self.sleep(),
                Next::End => return,
            }
        }
    }

    /// Makes the lane for the calls that wait, each for as long as its deadline allows. `false`: there is none, and no
    /// call any more.
    fn connect(&self, recipe: &Recipe) -> bool {
        loop {
            let mut inner = self.lock();
            inner.calls.expire(Instant::now(), None);
            let until = inner.calls.first_deadline();
            // Without calls there is nothing to make it for; the next begins anew.
            inner.over |= until.is_none() || self.ending.load(Ordering::Acquire);
            let over = inner.over;
            give_back(inner);
            if over {
                return false;
            }
            // The calls of all threads go over it.
            let opened = recipe.open(Owner::Alone, recipe.channel.max_outstanding, until);
            let mut inner = self.lock();
            match opened {
                // It was closed meanwhile; the lane goes when the lock is given back.
                Ok(_) if inner.over => return false,
                Ok((lane, _)) => {
                    let _ = self.sleeper.set(lane.sleeper());
                    inner.lane = Some(lane);
                    return true;
                }
                Err(_) if until.is_some_and(|until| Instant::now() >= until) => {}
                Err(error) => {
                    inner.over = true;
                    inner.calls.end(&CallError::Connect(Arc::new(error)));
                }
            }
            give_back(inner);
        }
    }

    /// One look at the lane, with the lock held.
    fn look(&self, inner: &mut Inner, rounds: &mut Rounds) -> Next {
        let ending = self.ending.load(Ordering::Acquire);
        let Inner { lane, calls, over } = inner;
        let Some(lane) = lane else {
            return Next::End;
        };
        // What tasks have submitted since the last look leaves here, with one doorbell (FaSST's master coroutine).
        let mut polled = lane.turn(calls, true);
        if polled.is_ok() && !calls.waiting.is_empty() && calls.send_waiting(lane.as_mut()) {
            polled = lane.flush(calls).and(polled);
        }
        if ending || polled.is_err() {
            // With the lock held, so that no call comes in between.
            *over = true;
            calls.end(&polled.err().unwrap_or(CallError::Closed));
            return Next::End;
        }
        let is_busy = lane.outstanding() > 0 || !calls.waiting.is_empty();
        if self.replaced.load(Ordering::Acquire) && !is_busy {
            *over = true;
            return Next::End;
        }
        if matches!(polled, Ok(taken) if taken > 0) {
            rounds.idle_since = None;
            thread::found();
            return Next::Look;
        }
        rounds.polls = rounds.polls.wrapping_add(1);
        if rounds.polls % POLLS_PER_CLOCK != 0 {
            return Next::Spin;
        }
        let now = Instant::now();
        if now >= rounds.next_expiry {
            rounds.next_expiry = now + DEADLINE_STEP;
            calls.expire(now, Some(lane.as_mut()));
            if let Err(error) = lane.check(calls) {
                *over = true;
                calls.end(&error);
                return Next::End;
            }
        }
        let since = *rounds.idle_since.get_or_insert(now);
        let spin = match rounds.wait {
            WaitMode::Doze { spin } => spin,
            // Latency mode polls while calls are out, and only then.
            WaitMode::Spin if is_busy => return Next::Look,
            WaitMode::Spin => Duration::from_millis(1),
        };
        if now.duration_since(since) < spin {
            return Next::GiveWay;
        }
        rounds.idle_since = None;
        // Who comes from now on wakes it.
        self.sleeping.store(true, Ordering::SeqCst);
        Next::Sleep
    }

    fn sleep(&self) {
        let inner = self.lock();
        let Some(lane) = &inner.lane else {
            return;
        };
        let before = lane.outstanding();
        let most = if before > 0 || !inner.calls.waiting.is_empty() {
            LONGEST_SLEEP
        } else {
            5 * LONGEST_SLEEP
        };
        let mut driver = Driver {
            lane: self,
            inner: Some(inner),
            before,
        };
        // What fails is told by the next look.
        let dozed = doze(&mut driver, most);
        driver.give_back();
        if matches!(dozed, Ok(Dozed::Unheard)) {
            std::thread::sleep(UNHEARD_PAUSE);
        }
        self.sleeping.store(false, Ordering::SeqCst);
    }
}

/// The driver thread, which has the lock until it sleeps.
struct Driver<'a> {
    lane: &'a AsyncLane,
    inner: Option<MutexGuard<'a, Inner>>,
    /// Calls that were out when it began to fall asleep.
    before: usize,
}

impl Driver<'_> {
    fn give_back(&mut self) {
        if let Some(inner) = self.inner.take() {
            give_back(inner);
        }
    }

    /// Does something to the lane, if the lock is held and there is one.
    fn with<T>(
        &mut self,
        action: impl FnOnce(&mut dyn Lane, &mut Calls) -> Result<T, CallError>,
    ) -> Result<Option<T>, CallError> {
        let Some(inner) = self.inner.as_deref_mut() else {
            return Ok(None);
        };
        let Inner { lane, calls, .. } = inner;
        lane.as_mut()
            .map(|lane| action(lane.as_mut(), calls))
            .transpose()
    }
}

impl Doze for Driver<'_> {
    type Error = CallError;

    fn announce(&mut self) -> Result<bool, CallError> {
        // What came since the last look leaves here.
        let announced = self.with(|lane, calls| {
            lane.turn(calls, true)?;
            lane.prepare_sleep(calls)
        })?;
        Ok(announced.unwrap_or(true))
    }

    fn look(&mut self) -> Result<bool, CallError> {
        let before = self.before;
        let found = self.with(|lane, calls| {
            let taken = lane.poll(calls)?;
            Ok(taken > 0 || lane.outstanding() != before)
        })?;
        Ok(found.unwrap_or(false) || self.lane.ending.load(Ordering::Acquire))
    }

    fn check(&mut self) -> Result<(), CallError> {
        self.with(|lane, calls| lane.check(calls)).map(drop)
    }

    fn sleep(&mut self, most: Duration) -> Result<(), CallError> {
        self.give_back();
        if let Some(sleeper) = self.lane.sleeper.get() {
            if sleeper.sleep(most).is_err() {
                std::thread::sleep(DEADLINE_STEP);
            }
        }
        Ok(())
    }
}

/// Gives the lock back, and then wakes those whose calls have ended under it.
fn give_back(mut inner: MutexGuard<'_, Inner>) {
    let woken = std::mem::take(&mut inner.calls.woken);
    drop(inner);
    woken.into_iter().for_each(Waker::wake);
}

/// Sends a call and returns its future.
pub(super) fn call(core: &Core, handler: HandlerId, payload: &[u8]) -> CallFuture {
    send(core, Wish::Call(handler, payload))
}

/// Does a one-sided operation and returns its future.
pub(super) fn operate(
    core: &Core,
    region: &Arc<RegionKey>,
    offset: u64,
    wanted: Wanted<'_>,
) -> CallFuture {
    send(core, Wish::OneSided(region, offset, wanted))
}

fn send(core: &Core, wish: Wish<'_>) -> CallFuture {
    match put(core, wish) {
        Ok((lane, tag)) => CallFuture(State::Out { lane, tag }),
        Err(error) => CallFuture(State::Failed(Some(error))),
    }
}

/// Puts a call into the client's lane for futures, which is made anew when there is none that can be used.
fn put(core: &Core, wish: Wish<'_>) -> Result<(Arc<Owned<AsyncLane>>, usize), CallError> {
    core.check()?;
    core.recipe.refuse_own_server()?;
    let after = core.recipe.deadline;
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
