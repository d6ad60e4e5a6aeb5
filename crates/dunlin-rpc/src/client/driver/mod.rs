//! Calls as futures: one lane for all of a client's futures, and a thread that makes it, and polls it while any call is
//! outstanding and no task polls ([`looking`]).
//!
//! Callers never block. A call for which there is no lane yet, or no room on it, is queued, in order, until there is;
//! the lock is held for a poll of the lane and never while a connection is made. Wakers are foreign code, which may
//! make or cancel calls: none is cloned, woken or dropped under the lock.

pub(in crate::client) mod calls;
mod connecting;
mod future;
mod looking;
mod ready;
mod sleeping;
pub(in crate::client) mod waiters;

pub use future::CallFuture;
pub(in crate::client) use future::{attach, call, operate};
pub use ready::{Permit, Ready};

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, TryLockError, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};

use dunlin_verbs::process::Owned;
use dunlin_verbs::thread;

use crate::call::lane::{Lane, Sleeper};
use crate::call::timeout::Told;
use crate::client::recipe::Recipe;
use crate::config::{ChannelConfig, WaitMode, REST};
use crate::error::CallError;
use calls::{Calls, Holds, Wish};
use looking::{turn, Leader};

/// Number of polls between two reads of the clock.
const POLLS_PER_CLOCK: u32 = 64;
/// Maximum number of consecutive polls that the driver skips because a task holds the lock. A task that holds it polls
/// itself; if the driver waited for it, that would cost the task a system call.
const LOOKS_LEFT_OUT: u32 = 256;
/// The precision of deadlines.
pub(in crate::client) const DEADLINE_STEP: Duration = Duration::from_millis(1);
/// Longest sleep: bounds the harm of a lost wake-up.
const LONGEST_SLEEP: Duration = Duration::from_millis(20);

/// The lane of a client's futures.
pub(in crate::client) struct AsyncLane {
    inner: Mutex<Inner>,
    /// Set when the lane exists.
    sleeper: OnceLock<Box<dyn Sleeper>>,
    /// Whether the driver is about to sleep or asleep.
    sleeping: AtomicBool,
    /// The client was closed.
    ending: AtomicBool,
    /// A new lane has replaced it: calls with a waiting future are completed, and then the driver ends.
    replaced: AtomicBool,
    wait: WaitMode,
    /// Number of polls by tasks.
    task_looks: AtomicU64,
    /// A task has left the lane to the driver.
    handed_over: AtomicBool,
    /// Wakes the driver's thread.
    driver: OnceLock<Waker>,
}

struct Inner {
    /// `None` before it is made, and after its end.
    lane: Option<Box<dyn Lane>>,
    calls: Calls,
    leader: Leader,
    /// Number of polls by leaders.
    looks: u32,
    /// When to check calls for their deadlines, and the lane for failures, next.
    next_expiry: Instant,
    /// The driver has ended: a call sent now would never be answered.
    over: bool,
}

impl Inner {
    /// Whether a call may be submitted here: the lane is being made, or can be used.
    fn takes_calls(&mut self) -> bool {
        !self.over && self.lane.as_mut().is_none_or(|lane| lane.is_usable())
    }

    /// Sends a call, or queues it until there is room. `awake`: the driver will poll the lane soon.
    fn put(
        &mut self,
        wish: Wish<'_>,
        terms: (Duration, Holds),
        awake: bool,
    ) -> Result<usize, CallError> {
        let is_led = self.is_led();
        let Self { lane, calls, .. } = self;
        match lane {
            Some(lane) => {
                let flush_now = !(is_led || awake && lane.gathers());
                calls.put(lane.as_mut(), wish, terms, flush_now)
            }
            None => calls.wait(wish, terms),
        }
    }
}

/// The lanes of a client's futures.
#[derive(Default)]
pub(in crate::client) struct AsyncLanes {
    /// The present lane.
    pub(in crate::client) current: Option<Arc<Owned<AsyncLane>>>,
    /// Lanes that were replaced, for as long as they have a driver or futures.
    replaced: Vec<Weak<Owned<AsyncLane>>>,
}

impl AsyncLanes {
    /// Outstanding calls are completed on the present lane; the next call makes another.
    pub(in crate::client) fn replace(&mut self) {
        if let Some(lane) = self.current.take() {
            lane.replace();
            self.replaced.retain(|lane| lane.strong_count() > 0);
            self.replaced.push(Arc::downgrade(&lane));
        }
    }

    /// Ends the calls outstanding on any of them.
    pub(in crate::client) fn close(self) {
        let replaced = self.replaced.iter().filter_map(Weak::upgrade);
        for lane in replaced.chain(self.current) {
            lane.close();
        }
    }
}

/// What the driver does next.
enum Next {
    /// Poll again: something arrived, or the clock requires it.
    Look,
    /// Nothing has arrived.
    Spin,
    /// Nothing has arrived for a while: yield to others.
    GiveWay,
    Sleep,
    End,
}

/// The state of the driver's loop between polls.
struct Rounds {
    polls: u32,
    idle_since: Option<Instant>,
    /// A task has polled without success for so long that spinning is useless.
    spun: bool,
}

impl AsyncLane {
    fn new(channel: &ChannelConfig, told: Told) -> Self {
        Self {
            inner: Mutex::new(Inner {
                lane: None,
                calls: Calls::new(channel.max_outstanding, told),
                leader: Leader::default(),
                looks: 0,
                next_expiry: thread::now(),
                over: false,
            }),
            sleeper: OnceLock::new(),
            sleeping: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            replaced: AtomicBool::new(false),
            wait: channel.wait,
            task_looks: AtomicU64::new(0),
            handed_over: AtomicBool::new(false),
            driver: OnceLock::new(),
        }
    }

    /// Whether the driver has more to do than to poll the lane.
    fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Acquire) || self.replaced.load(Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        thread::lock(&self.inner)
    }

    fn wake(&self) {
        match (self.sleeper.get(), self.driver.get()) {
            (Some(sleeper), _) => sleeper.wake(),
            // It is making the lane.
            (None, Some(driver)) => driver.wake_by_ref(),
            (None, None) => {}
        }
    }

    fn close(&self) {
        self.ending.store(true, Ordering::Release);
        let mut inner = self.lock();
        if inner.lane.is_none() {
            // The driver may take long to make it: its calls should not wait for that.
            inner.over = true;
            inner.calls.end(&CallError::Closed);
        }
        give_back(inner);
        self.wake();
    }

    /// Another lane replaces this one: outstanding calls are completed, and then its driver ends.
    fn replace(&self) {
        self.replaced.store(true, Ordering::Release);
        self.wake();
    }

    fn rouse(&self) {
        if self.sleeping.load(Ordering::SeqCst) {
            self.wake();
        }
    }

    /// The driver: makes the lane, and polls it until it ends. `spare`: a lane that is not used yet.
    fn drive(&self, recipe: Arc<Recipe>, spare: Option<Box<dyn Lane>>) {
        /// Also after a panic no future waits for a driver that has ended.
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
        let _ = self.driver.set(thread::waker());
        if !self.connect(&recipe, spare) {
            return;
        }
        drop(recipe);
        let mut woken = Vec::new();
        let mut rounds = Rounds {
            polls: 0,
            idle_since: None,
            spun: false,
        };
        let mut left_out = 0;
        let mut seen = 0;
        loop {
            if self.is_looked_at(&mut seen) && !self.is_ending() {
                if !self.handed_over.load(Ordering::Acquire) {
                    self.watch();
                    self.attend_beside();
                }
                rounds.spun = self.handed_over.swap(false, Ordering::AcqRel);
                rounds.idle_since = None;
                if !rounds.spun {
                    continue;
                }
            }
            let mut inner = match self.inner.try_lock() {
                Err(TryLockError::WouldBlock) if left_out < LOOKS_LEFT_OUT => {
                    left_out += 1;
                    thread::idle(REST, false);
                    continue;
                }
                Ok(inner) => inner,
                Err(_) => self.lock(),
            };
            left_out = 0;
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

    /// Polls the lane once, with the lock held.
    fn look(&self, inner: &mut Inner, rounds: &mut Rounds) -> Next {
        let ending = self.ending.load(Ordering::Acquire);
        // The driver is here because no task has polled for a while, or because the tasks have ended.
        inner.depose();
        let spun = std::mem::take(&mut rounds.spun);
        let Inner {
            lane, calls, over, ..
        } = inner;
        let Some(lane) = lane else {
            return Next::End;
        };
        // What tasks have submitted since the last poll is sent here, with one doorbell (FaSST's master coroutine).
        let polled = turn(lane.as_mut(), calls);
        if ending || polled.is_err() {
            // With the lock held, so that no call is submitted in between.
            *over = true;
            calls.end(&polled.err().unwrap_or(CallError::Closed));
            return Next::End;
        }
        let is_busy = lane.outstanding() > 0 || !calls.waiting.is_empty();
        // Calls that were cancelled or whose deadline has passed may be outstanding on the lane for ever.
        if self.replaced.load(Ordering::Acquire) && !(is_busy && calls.are_awaited()) {
            *over = true;
            return Next::End;
        }
        rounds.polls = rounds.polls.wrapping_add(1);
        let looks_at_clock = spun || rounds.polls % POLLS_PER_CLOCK == 0;
        let found = matches!(polled, Ok(1..));
        if found {
            rounds.idle_since = None;
            thread::found();
        }
        if !looks_at_clock {
            return if found { Next::Look } else { Next::Spin };
        }
        let now = thread::now();
        if found {
            // Also while responses keep arriving: there may be none to one of the calls.
            inner.expire(now);
            return Next::Look;
        }
        if let Err(error) = inner.attend(now) {
            inner.over = true;
            inner.calls.end(&error);
            return Next::End;
        }
        let since = *rounds.idle_since.get_or_insert(now);
        let spin = match self.wait {
            WaitMode::Doze { .. } if spun => Duration::ZERO,
            WaitMode::Doze { spin } => spin,
            // Latency mode polls while calls are outstanding, and only then.
            WaitMode::Spin if is_busy => return Next::Look,
            WaitMode::Spin => Duration::from_millis(1),
        };
        if now.duration_since(since) < spin {
            return Next::GiveWay;
        }
        rounds.idle_since = None;
        // Calls submitted from now on wake it.
        self.sleeping.store(true, Ordering::SeqCst);
        Next::Sleep
    }
}

/// Releases the lock, and then wakes the tasks of calls that have ended under it.
#[inline]
fn give_back(inner: MutexGuard<'_, Inner>) {
    if !inner.calls.woken.is_empty() {
        give_back_and_wake(inner);
    }
}

fn give_back_and_wake(mut inner: MutexGuard<'_, Inner>) {
    thread_local! {
        /// A buffer for wakers, so that none is allocated for each poll.
        static ROOM: Cell<Vec<Waker>> = const { Cell::new(Vec::new()) };
    }
    // The buffer of a thread that is ending may be gone.
    let mut woken = ROOM.try_with(Cell::take).unwrap_or_default();
    std::mem::swap(&mut inner.calls.woken, &mut woken);
    drop(inner);
    // Wakers may run any code, including this function.
    woken.drain(..).for_each(Waker::wake);
    let _ = ROOM.try_with(|room| room.set(woken));
}
