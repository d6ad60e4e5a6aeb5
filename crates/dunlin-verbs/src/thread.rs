//! The running thread as code above the verbs layer sees it: its clock, its waiting, and the waker by which others wake
//! it.
//!
//! On a real thread these are the standard library's. A thread of a simulated core answers them in virtual time: the
//! device that runs it calls [`simulate`] each time that it resumes the thread. So loops that wait run unmodified on
//! both: where a real core spins, a simulated one sleeps until there is something to find.
//!
//! Work *other* than verbs is charged by [`crate::Device::charge`], which does nothing on real devices. The functions
//! here are for a thread that has nothing to do; checking whether it is simulated is one load of a thread-local.

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

/// A thread of a simulated core, implemented by its device.
pub trait Simulated: Sync {
    /// The simulated host of this process that it runs on, as its device reports it ([`crate::Device::simulation`]).
    fn host(&self) -> u64;
    /// Virtual time.
    fn now(&self) -> Duration;
    /// One poll of memory that another core of this host is about to write.
    fn relax(&self);
    /// After an empty poll: rests until a peer writes the polled memory, a completion arrives or the thread is woken,
    /// for `at_most`. `yields`: the thread yields its core between its polls.
    fn idle(&self, at_most: Duration, yields: bool);
    /// Yields to other threads on its core.
    fn yield_now(&self);
    /// Sleeps in the kernel until it is woken, for `timeout` at most.
    fn park(&self, timeout: Duration);
    /// Wakes it from [`Simulated::idle`] and [`Simulated::park`].
    fn waker(&self) -> Waker;
    /// While `true` has been set and not yet `false`, the thread runs without others in between, as it must while it
    /// holds a lock that they would wait for: all run on one real thread. The time charged to it passes afterwards.
    fn hold(&self, on: bool);
}

thread_local! {
    static SIMULATED: Cell<Option<&'static dyn Simulated>> = const { Cell::new(None) };
}

/// Sets which simulated thread runs on the calling real one from now on; returns the previous one. For devices that
/// simulate.
pub fn simulate(thread: Option<&'static dyn Simulated>) -> Option<&'static dyn Simulated> {
    SIMULATED.replace(thread)
}

/// Whether the caller is a simulated thread.
#[inline]
pub fn is_simulated() -> bool {
    SIMULATED.get().is_some()
}

/// The number of the calling simulated thread, for data kept in thread-locals, which all simulated threads on one real
/// thread share. Zero for a real thread. No other thread has this number as long as its [`waker`] is kept.
#[inline]
pub fn simulated_number() -> usize {
    SIMULATED
        .get()
        .map_or(0, |thread| thread.waker().data().addr())
}

/// The virtual time of the calling simulated thread; `None` for a real thread.
#[inline]
pub fn simulated_now() -> Option<Duration> {
    SIMULATED.get().map(|thread| thread.now())
}

/// Interval between two attempts of a simulated thread to take a lock that another holds.
const LOCKED: Duration = Duration::from_micros(1);

/// Locks a mutex and ignores poisoning. A simulated thread meanwhile lets the holder of the lock run, which is on the
/// same real thread.
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

/// The current time. Instants of simulated threads are comparable only with each other.
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

/// To be called after an empty poll of memory that another thread of this process is about to write.
#[inline]
pub fn relax() {
    match SIMULATED.get() {
        None => std::hint::spin_loop(),
        Some(thread) => thread.relax(),
    }
}

/// To be called after an empty poll for a peer's messages. A real thread returns to spin on, whatever `at_most` and
/// `yields` are, after a pause instruction if there were several empty polls already; if it shares its core, it yields
/// after a few.
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

/// As [`idle`], for a thread that serves others: on a shared core it spins on, and sleeps if nothing arrives for long,
/// because each request that arrives while it yields would wait for all the other threads. `looks` is its number of
/// consecutive empty polls.
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

/// To be called after an empty poll by a thread that also has other things to do and will poll again: as [`idle`], but
/// without waiting.
#[inline]
pub fn missed() {
    if SIMULATED.get().is_none() {
        progress();
        if polling::in_vain() == Next::Yield {
            std::thread::yield_now();
        }
    }
}

/// To be called after a successful poll that followed calls of [`idle`], or at the first poll of another wait.
#[inline]
pub fn found() {
    if SIMULATED.get().is_none() {
        polling::found();
    }
}

/// To be called after so many consecutive empty polls that the thread waited for may need this core: a real thread
/// yields. A simulated one has already rested after each poll ([`idle`]).
#[inline]
pub fn give_way() {
    if SIMULATED.get().is_none() {
        std::thread::yield_now();
    }
}

/// Whether the calling real thread has recently found that it shares its core with other runnable threads, so that
/// [`idle`] yields after a few polls. Always false for a simulated thread.
#[inline]
pub fn shares_core() -> bool {
    SIMULATED.get().is_none() && polling::is_sharing()
}

/// Yields to other threads on this core.
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

/// Sleeps until [`waker`]'s waker is used, for at most `timeout`; may wake spuriously.
pub fn park(timeout: Duration) {
    match SIMULATED.get() {
        None => std::thread::park_timeout(timeout),
        Some(thread) => thread.park(timeout),
    }
}

/// Returns the waker that ends the calling thread's [`park`], even one that has not begun.
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

/// Time that [`block_on`] waits to be woken before it polls anyway.
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

/// Runs `action` while no other simulated thread runs: for code that holds a lock which they would wait for.
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

/// A thread started by [`crate::Device::spawn`].
pub struct Running {
    join: Box<dyn FnOnce() -> std::thread::Result<()> + Send>,
    /// The result of an operating system thread once it has ended; a simulated thread is only waited for.
    left: Option<Arc<Mutex<Option<std::thread::Result<()>>>>>,
}

/// Interval between two checks whether a thread has ended.
const LOOK: Duration = Duration::from_millis(1);

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running").finish_non_exhaustive()
    }
}

impl Running {
    /// Creates a handle whose `join` waits for the thread's end.
    pub fn new(join: impl FnOnce() -> std::thread::Result<()> + Send + 'static) -> Self {
        Self {
            join: Box::new(join),
            left: None,
        }
    }

    /// Starts an operating system thread.
    ///
    /// # Errors
    /// When it cannot be created.
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

    /// Waits for the thread to end.
    ///
    /// # Errors
    /// The value that it panicked with.
    pub fn join(self) -> std::thread::Result<()> {
        (self.join)()
    }

    /// As [`Running::join`], until `deadline` at most. `None`: the thread is still running, detached. A simulated
    /// thread is waited for in its own time, whatever the deadline.
    pub fn join_until(self, deadline: Instant) -> Option<std::thread::Result<()>> {
        let Some(left) = self.left else {
            return Some((self.join)());
        };
        loop {
            // Destructors of the thread's locals may run for as long as they like: nobody waits for them.
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
