//! Calls as futures: one lane for all of a client's futures, and a thread that makes it, and polls it while any of them
//! is out and no task does ([`looking`]).
//!
//! Who calls never waits. A call that finds no lane yet, or no room on it, stands in a queue, in order, until there is
//! some for it; the lock is held for a look at the lane and never while a connection is made. Wakers are
//! somebody else's code, which may call or give up calls: none is cloned, woken or dropped under the lock.

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

/// Polls between two looks at the clock.
const POLLS_PER_CLOCK: u32 = 64;
/// Looks that the driver leaves out in a row because a task has the lock, at most. A task that has it looks itself; a
/// driver that waited for it would cost that task a system call.
const LOOKS_LEFT_OUT: u32 = 256;
/// How exactly deadlines are kept.
pub(in crate::client) const DEADLINE_STEP: Duration = Duration::from_millis(1);
/// Longest sleep: the harm of a wake-up lost after all.
const LONGEST_SLEEP: Duration = Duration::from_millis(20);

/// The lane of a client's futures.
pub(in crate::client) struct AsyncLane {
    inner: Mutex<Inner>,
    /// There when the lane is.
    sleeper: OnceLock<Box<dyn Sleeper>>,
    /// Whether the driver is about to sleep or asleep.
    sleeping: AtomicBool,
    /// The client was closed.
    ending: AtomicBool,
    /// A new lane has taken its place: what somebody waits for is finished, and then the driver ends.
    replaced: AtomicBool,
    wait: WaitMode,
    /// Looks of tasks.
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
    /// Looks of leaders.
    looks: u32,
    /// When calls are looked at next for their deadlines, and the lane for failures.
    next_expiry: Instant,
    /// The driver has ended: a call that is sent now would never be answered.
    over: bool,
}

impl Inner {
    /// Whether a call may be put here: the lane is being made, or can be used.
    fn takes_calls(&mut self) -> bool {
        !self.over && self.lane.as_mut().is_none_or(|lane| lane.is_usable())
    }

    /// Sends a call, or lets it wait for room. `awake`: the driver looks at the lane soon.
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
    /// What they go over now.
    pub(in crate::client) current: Option<Arc<Owned<AsyncLane>>>,
    /// Those that another has taken the place of, for as long as they have a driver or futures.
    replaced: Vec<Weak<Owned<AsyncLane>>>,
}

impl AsyncLanes {
    /// What is out is finished where it is; the next call makes another lane.
    pub(in crate::client) fn replace(&mut self) {
        if let Some(lane) = self.current.take() {
            lane.replace();
            self.replaced.retain(|lane| lane.strong_count() > 0);
            self.replaced.push(Arc::downgrade(&lane));
        }
    }

    /// What is out on any of them ends.
    pub(in crate::client) fn close(self) {
        let replaced = self.replaced.iter().filter_map(Weak::upgrade);
        for lane in replaced.chain(self.current) {
            lane.close();
        }
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
    polls: u32,
    idle_since: Option<Instant>,
    /// A task has looked in vain for so long that there is nothing to spin for.
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

    /// Whether the driver has more to do than to look at the lane.
    fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Acquire) || self.replaced.load(Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        thread::lock(&self.inner)
    }

    fn wake(&self) {
        match (self.sleeper.get(), self.driver.get()) {
            (Some(sleeper), _) => sleeper.wake(),
            // It makes the lane.
            (None, Some(driver)) => driver.wake_by_ref(),
            (None, None) => {}
        }
    }

    fn close(&self) {
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

    /// Another takes its place: what is out is finished, and then its driver ends.
    fn replace(&self) {
        self.replaced.store(true, Ordering::Release);
        self.wake();
    }

    fn rouse(&self) {
        if self.sleeping.load(Ordering::SeqCst) {
            self.wake();
        }
    }

    /// The driver: makes the lane, and polls it until its end.
    /// `spare`: a lane that nobody has yet.
    fn drive(&self, recipe: Arc<Recipe>, spare: Option<Box<dyn Lane>>) {
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

    /// One look at the lane, with the lock held.
    fn look(&self, inner: &mut Inner, rounds: &mut Rounds) -> Next {
        let ending = self.ending.load(Ordering::Acquire);
        // It is here because no task has looked for a while, or because they have ended.
        inner.depose();
        let spun = std::mem::take(&mut rounds.spun);
        let Inner {
            lane, calls, over, ..
        } = inner;
        let Some(lane) = lane else {
            return Next::End;
        };
        // What tasks have submitted since the last look leaves here, with one doorbell (FaSST's master coroutine).
        let polled = turn(lane.as_mut(), calls);
        if ending || polled.is_err() {
            // With the lock held, so that no call comes in between.
            *over = true;
            calls.end(&polled.err().unwrap_or(CallError::Closed));
            return Next::End;
        }
        let is_busy = lane.outstanding() > 0 || !calls.waiting.is_empty();
        // Calls that were given up, or whose time was over, may be out on the lane for ever.
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
            // Also while answers come all the time: there may be none to one of the calls.
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
}

/// Gives the lock back, and then wakes those whose calls have ended under it.
#[inline]
fn give_back(inner: MutexGuard<'_, Inner>) {
    if !inner.calls.woken.is_empty() {
        give_back_and_wake(inner);
    }
}

fn give_back_and_wake(mut inner: MutexGuard<'_, Inner>) {
    thread_local! {
        /// Room for wakers, so that none is allocated for each look.
        static ROOM: Cell<Vec<Waker>> = const { Cell::new(Vec::new()) };
    }
    // A thread that ends may have no room any more.
    let mut woken = ROOM.try_with(Cell::take).unwrap_or_default();
    std::mem::swap(&mut inner.calls.woken, &mut woken);
    drop(inner);
    // Wakers may do anything, and come here again.
    woken.drain(..).for_each(Waker::wake);
    let _ = ROOM.try_with(|room| room.set(woken));
}
