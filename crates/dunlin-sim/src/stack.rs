//! Simulated threads with a stack: blocking code, written as for real threads, on a simulated core.
//!
//! Such a thread runs until it has been charged a [`GRAIN`] of time, waits for something, or ends; then its stack is
//! suspended and the event loop goes on. So threads of a host overlap: what one writes between two of its charges,
//! another sees between two of its own. It suspends only at charges and waits, where the world's lock is not held; a
//! thread that holds a lock of its own declares so by [`dunlin_verbs::thread::hold`].
//!
//! This module contains the unsafe code for switching stacks. It relies on the following: a stack is only ever resumed
//! by the real thread that started it, which is that of its part of the cluster (checked), and what the thread-local
//! pointer names is on the stack that runs.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};
use std::thread::ThreadId;
use std::time::Duration;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use dunlin_verbs::thread::{simulate, Simulated};

use crate::context;
use crate::cores::{Next, Step};
use crate::event::{Ps, NS};
use crate::inner::Inner;
use crate::threads::host_of;

/// Time that a thread is charged before it lets the others catch up. It is shorter than the transfer of a cache line
/// between two cores, so threads interact at the right times.
const GRAIN: Ps = 50 * NS;
/// Bytes of a stack; the system commits only pages that are touched.
const STACK_BYTES: usize = 256 << 10;

/// What is needed to suspend the running stack. It is on that stack itself.
struct Local {
    yielder: *const Yielder<(), Next>,
    waker: Waker,
    host: u64,
    held: Cell<u32>,
}

thread_local! {
    /// `Local` of the stack that runs on this real thread, or null.
    static LOCAL: Cell<*const Local> = const { Cell::new(std::ptr::null()) };
}

/// The running thread, for [`dunlin_verbs::thread`].
struct Here;
static HERE: Here = Here;

enum State {
    New(Box<dyn FnOnce() + Send>, Waker, u64),
    /// Started by this real thread.
    Begun(Coroutine<(), Next, ()>, ThreadId),
    Done,
}

/// A thread with a stack, whose steps reach from one suspension to the next.
pub(crate) struct Stacked {
    /// A stack that is suspended for ever is left as it is: unwinding it would run code that waits for others.
    state: ManuallyDrop<State>,
}

// SAFETY: a new one holds what is `Send`; one that was started is resumed only by the real thread that started it, and
// never dropped while it is suspended.
unsafe impl Send for Stacked {}

impl Stacked {
    /// Creates a thread on a host of a cluster.
    pub(crate) fn new(
        inner: &Arc<Inner>,
        host: u16,
        number: u32,
        run: Box<dyn FnOnce() + Send>,
    ) -> Self {
        let waker = Waker::from(Arc::new(Rouse {
            inner: Arc::downgrade(inner),
            number,
        }));
        Self {
            state: ManuallyDrop::new(State::New(run, waker, inner.host_number(host))),
        }
    }
}

impl Drop for Stacked {
    fn drop(&mut self) {
        if !matches!(*self.state, State::Begun(..)) {
            // SAFETY: not used again.
            unsafe { ManuallyDrop::drop(&mut self.state) };
        }
    }
}

fn begin(run: Box<dyn FnOnce() + Send>, waker: Waker, host: u64) -> Coroutine<(), Next, ()> {
    let stack = DefaultStack::new(STACK_BYTES).expect("memory for a stack");
    Coroutine::with_stack(stack, move |yielder, ()| {
        let local = Local {
            yielder,
            waker,
            host,
            held: Cell::new(0),
        };
        LOCAL.set(&local);
        run();
        // The last charges pass before the end.
        if context::charged() > 0 {
            suspend(Next::Again);
        }
    })
}

impl Step for Stacked {
    fn step(&mut self, _now_ns: u64) -> Next {
        if let State::New(..) = &*self.state {
            let new = std::mem::replace(&mut *self.state, State::Done);
            if let State::New(run, waker, host) = new {
                let begun = State::Begun(begin(run, waker, host), std::thread::current().id());
                *self.state = begun;
            }
        }
        let State::Begun(stack, home) = &mut *self.state else {
            return Next::Done;
        };
        assert_eq!(
            *home,
            std::thread::current().id(),
            "a cluster with such threads is driven by one real thread"
        );
        /// Runs when the stack stops running, also by a panic.
        struct Leave(*const Local, Option<&'static dyn Simulated>);
        impl Drop for Leave {
            fn drop(&mut self) {
                LOCAL.set(self.0);
                simulate(self.1);
            }
        }
        let leave = Leave(LOCAL.get(), simulate(Some(&HERE)));
        let result = stack.resume(());
        drop(leave);
        match result {
            CoroutineResult::Yield(next) => next,
            CoroutineResult::Return(()) => {
                *self.state = State::Done;
                Next::Done
            }
        }
    }
}

/// Whether the caller has a stack that can be suspended.
#[inline]
pub(crate) fn is_stacked() -> bool {
    !LOCAL.get().is_null()
}

fn with_local<T>(action: impl FnOnce(&Local) -> T) -> T {
    let local = LOCAL.get();
    assert!(!local.is_null(), "called from a simulated thread");
    // SAFETY: it is on the stack that runs, beneath our caller.
    action(unsafe { &*local })
}

/// Suspends the running stack.
fn suspend(next: Next) {
    let local = LOCAL.get();
    // SAFETY: it is on the stack that runs, and so is the yielder, until the stack's closure has returned.
    unsafe { (*(*local).yielder).suspend(next) };
    // Other stacks ran meanwhile.
    LOCAL.set(local);
}

/// Lets the others catch up after a charge. No lock of the world may be held.
#[inline]
pub(crate) fn settle() {
    if is_stacked() && context::charged() >= GRAIN && with_local(|local| local.held.get() == 0) {
        suspend(Next::Again);
    }
}

/// Sleeps in the kernel. Returns whether it may have been woken before the time was up.
pub(crate) fn block_until(ns: u64) {
    suspend(Next::BlockUntil(ns));
}

fn now_ns() -> u64 {
    context::now().unwrap_or(0) / NS
}

fn after(time: Duration) -> u64 {
    now_ns().saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / NS))
}

impl Simulated for Here {
    fn host(&self) -> u64 {
        with_local(|local| local.host)
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(now_ns())
    }

    fn relax(&self) {
        context::charge_shared_line();
        settle();
    }

    fn idle(&self, at_most: Duration, yields: bool) {
        let until = after(at_most);
        suspend(if yields {
            Next::YieldUntil(until)
        } else {
            Next::PollUntil(until)
        });
    }

    fn yield_now(&self) {
        context::charge_shared_line();
        if with_local(|local| local.held.get() == 0) {
            suspend(Next::Yield);
        }
    }

    fn park(&self, timeout: Duration) {
        block_until(after(timeout));
    }

    fn waker(&self) -> Waker {
        with_local(|local| local.waker.clone())
    }

    fn hold(&self, on: bool) {
        with_local(|local| {
            let held = local.held.get();
            local.held.set(if on { held + 1 } else { held - 1 });
        });
        settle();
    }
}

/// Wakes a simulated thread from anywhere.
struct Rouse {
    inner: Weak<Inner>,
    number: u32,
}

impl Wake for Rouse {
    fn wake(self: Arc<Self>) {
        if let Some(inner) = self.inner.upgrade() {
            let mut world = inner.world(host_of(self.number));
            let now = inner.time(&world);
            world.rouse_thread(self.number, now);
            drop(world);
            inner.notify();
        }
    }
}
