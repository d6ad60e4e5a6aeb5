//! The thread that runs, as code above the wall sees it: its clock, its waiting, its name for those who wake it.
//!
//! On a real thread these are the standard library's own. A thread of a simulated core answers them in virtual time:
//! the device that runs it says so by [`simulate`] each time that it lets the thread go on. So loops that wait run
//! unmodified on both: where a real core spins, a simulated one sleeps until there is something to see.
//!
//! What a thread *does* beside verbs is charged by [`crate::Device::charge`], which is nothing on real devices. The
//! functions here are for when it has nothing to do; the question whether it is simulated is one load of a
//! thread-local.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use crate::polling::{self, Next, LOOKS_WITHOUT_PAUSE};
use crate::progress::{before_rest, progress};

pub use crate::polling::Looks;

/// A thread of a simulated core, as its device answers for it.
pub trait Simulated: Sync {
    /// Which simulated host of this process it runs on, as its device says ([`crate::Device::simulation`]).
    fn host(&self) -> u64;
    /// Virtual time.
    fn now(&self) -> Duration;
    /// One look at what another core of this host is about to write.
    fn relax(&self);
    /// Nothing has come: rests until a peer writes what was looked at, a completion comes or somebody wakes it, for
    /// `at_most`. `yields`: the thread gives its core to others between its looks.
    fn idle(&self, at_most: Duration, yields: bool);
    /// Others on its core go first.
    fn yield_now(&self);
    /// Sleeps in the kernel until it is woken, for `timeout` at most.
    fn park(&self, timeout: Duration);
    /// Wakes it from [`Simulated::idle`] and [`Simulated::park`].
    fn waker(&self) -> Waker;
    /// From `true` to `false` it goes on without others in between, as it must while it holds a lock that they would
    /// wait for: all are of one real thread. The time that it is charged passes afterwards.
    fn hold(&self, on: bool);
}

thread_local! {
    static SIMULATED: Cell<Option<&'static dyn Simulated>> = const { Cell::new(None) };
}

/// Says which simulated thread runs on the calling real one from now on; gives the one before. For devices that
/// simulate.
pub fn simulate(thread: Option<&'static dyn Simulated>) -> Option<&'static dyn Simulated> {
    SIMULATED.replace(thread)
}

/// Whether the caller is a thread of a simulated core.
#[inline]
pub fn is_simulated() -> bool {
    SIMULATED.get().is_some()
}

/// Which simulated thread calls, for what is kept in thread-locals: all that run on one real thread share those. Zero:
/// it is a real one. No other has this number as long as its [`waker`] is kept.
#[inline]
pub fn simulated_number() -> usize {
    SIMULATED
        .get()
        .map_or(0, |thread| thread.waker().data().addr())
}

/// The virtual time of the simulated thread that calls. `None`: it is a real one.
#[inline]
pub fn simulated_now() -> Option<Duration> {
    SIMULATED.get().map(|thread| thread.now())
}

/// Between two looks of a simulated thread at a lock that another has.
const LOCKED: Duration = Duration::from_micros(1);

/// Locks, whatever a panic has left. A simulated thread lets those go on that have the lock, which are of the same real
/// thread.
#[inline]
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    let Some(thread) = SIMULATED.get() else {
        return mutex.lock().unwrap_or_else(PoisonError::into_inner);
    };
    loop {
        match mutex.try_lock() {
            Ok(guard) => return guard,
            Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => thread.idle(LOCKED, true),
        }
    }
}

/// The time. Instants of simulated threads are comparable with each other only.
#[inline]
pub fn now() -> Instant {
    match SIMULATED.get() {
        None => Instant::now(),
        Some(thread) => {
            static BEGIN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
            *BEGIN.get_or_init(Instant::now) + thread.now()
        }
    }
}

/// A look in vain at what another thread of this process is about to write.
#[inline]
pub fn relax() {
    match SIMULATED.get() {
        None => std::hint::spin_loop(),
        Some(thread) => thread.relax(),
    }
}

/// A look in vain for news from peers. A real thread spins on, whatever `at_most` and `yields` are, with a pause of the
/// core between two looks if there were some already; where it shares its core it lets others go first after a few.
#[inline]
pub fn idle(at_most: Duration, yields: bool) {
    match SIMULATED.get() {
        None => {
            progress();
            match polling::in_vain() {
                Next::Look => {}
                Next::Pause => std::hint::spin_loop(),
                Next::Yield => std::thread::yield_now(),
            }
        }
        Some(thread) => {
            if let Some(at_most) = before_rest(thread.host(), at_most) {
                thread.idle(at_most, yields);
            }
        }
    }
}

/// As [`idle`], for who serves others: on a core that it shares with them it spins on, and sleeps when nothing comes
/// for long. Each request that comes while it lets others go first waits for all of them. It has looked `looks` times
/// in vain.
#[inline]
pub fn stand_by(at_most: Duration, looks: u32) {
    match SIMULATED.get() {
        None => {
            progress();
            if looks >= LOOKS_WITHOUT_PAUSE {
                std::hint::spin_loop();
            }
        }
        Some(thread) => {
            if let Some(at_most) = before_rest(thread.host(), at_most) {
                thread.idle(at_most, false);
            }
        }
    }
}

/// A look in vain of one who has other things to do, too, and comes back by itself: as [`idle`], but nobody waits.
#[inline]
pub fn missed() {
    if SIMULATED.get().is_none() {
        progress();
        if polling::in_vain() == Next::Yield {
            std::thread::yield_now();
        }
    }
}

/// A look after which there was something, or the first one of another wait. Before it [`idle`] was called in vain.
#[inline]
pub fn found() {
    if SIMULATED.get().is_none() {
        polling::found();
    }
}

/// So many looks in vain, one after the other, that whoever is waited for may be waiting for this core: a real thread
/// lets others go first. A simulated one has rested with each look ([`idle`]).
#[inline]
pub fn give_way() {
    if SIMULATED.get().is_none() {
        std::thread::yield_now();
    }
}

/// Whether the calling real thread has found lately that it shares its core with others who want it, so that [`idle`]
/// lets them go first after a few looks. Never said to a simulated one.
#[inline]
pub fn shares_core() -> bool {
    SIMULATED.get().is_none() && polling::is_sharing()
}

/// Lets other threads of this core go first.
#[inline]
pub fn yield_now() {
    match SIMULATED.get() {
        None => std::thread::yield_now(),
        Some(thread) => thread.yield_now(),
    }
}

/// Sleeps for `duration`.
pub fn sleep(duration: Duration) {
    let Some(thread) = SIMULATED.get() else {
        return std::thread::sleep(duration);
    };
    let end = thread.now() + duration;
    while let Some(left) = end.checked_sub(thread.now()).filter(|left| !left.is_zero()) {
        thread.park(left);
    }
}

/// Sleeps until [`waker`]'s waker is used, for `timeout` at most; now and then for no reason.
pub fn park(timeout: Duration) {
    match SIMULATED.get() {
        None => std::thread::park_timeout(timeout),
        Some(thread) => thread.park(timeout),
    }
}

/// What ends the calling thread's [`park`], also one that has not begun.
pub fn waker() -> Waker {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    match SIMULATED.get() {
        None => Waker::from(Arc::new(Unpark(std::thread::current()))),
        Some(thread) => thread.waker(),
    }
}

/// How long [`block_on`] waits to be woken before it polls nevertheless.
const PATIENCE: Duration = Duration::from_secs(1);

/// Waits for a future on the calling thread.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let waker = waker();
    let mut context = Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => park(PATIENCE),
        }
    }
}

/// Does `action` while no other simulated thread goes on: for what holds a lock that they would wait for.
#[inline]
pub fn hold<T>(action: impl FnOnce() -> T) -> T {
    struct Release(&'static dyn Simulated);
    impl Drop for Release {
        fn drop(&mut self) {
            self.0.hold(false);
        }
    }
    let _release = SIMULATED.get().map(|thread| {
        thread.hold(true);
        Release(thread)
    });
    action()
}

/// A thread that was started by [`crate::Device::spawn`].
pub struct Running {
    join: Box<dyn FnOnce() -> std::thread::Result<()> + Send>,
    /// What a thread of the system has left, when it has ended; a simulated one is only waited for.
    left: Option<Arc<Mutex<Option<std::thread::Result<()>>>>>,
}

/// Between two looks whether a thread has ended.
const LOOK: Duration = Duration::from_millis(1);

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running").finish_non_exhaustive()
    }
}

impl Running {
    /// Whose end `join` waits for.
    pub fn new(join: impl FnOnce() -> std::thread::Result<()> + Send + 'static) -> Self {
        Self {
            join: Box::new(join),
            left: None,
        }
    }

    /// A thread of the system.
    ///
    /// # Errors
    /// When there is none to be had.
    pub fn start(name: String, run: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        let left = Arc::new(Mutex::new(None));
        let leave = Arc::clone(&left);
        let run = move || {
            let ran = catch_unwind(AssertUnwindSafe(run));
            *lock(&leave) = Some(ran);
        };
        let thread = std::thread::Builder::new().name(name).spawn(run)?;
        let ran = Arc::clone(&left);
        let join = move || {
            thread.join()?;
            lock(&ran).take().unwrap_or(Ok(()))
        };
        Ok(Self {
            join: Box::new(join),
            left: Some(left),
        })
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// What it panicked with.
    pub fn join(self) -> std::thread::Result<()> {
        (self.join)()
    }

    /// As [`Running::join`], until `deadline` at most. `None`: it goes on by itself, and nobody waits for it any more.
    /// A simulated thread is waited for in its own time, whatever the deadline.
    pub fn join_until(self, deadline: Instant) -> Option<std::thread::Result<()>> {
        let Some(left) = self.left else {
            return Some((self.join)());
        };
        loop {
            // Destructors of what is the thread's own may go on for as long as they like: nobody waits for them.
            if let Some(ran) = lock(&left).take() {
                return Some(ran);
            }
            let time = deadline.saturating_duration_since(Instant::now());
            if time.is_zero() {
                return None;
            }
            std::thread::sleep(time.min(LOOK));
        }
    }
}
