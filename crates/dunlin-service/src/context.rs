//! What the calls that a handler makes inherit: the deadline of the call being handled, and its trace. They are set for
//! a thread while the handler runs on it or its future is polled. Tasks that the handler spawns inherit nothing unless
//! they are given the request.

use std::cell::{Cell, RefCell};
use std::task::Waker;
use std::time::Instant;

use dunlin::thread;

use crate::{MetadataMap, TraceContext};

/// Deadline and trace that calls inherit.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Inherited {
    pub(crate) deadline: Option<Instant>,
    pub(crate) trace: Option<TraceContext>,
}

thread_local! {
    /// Whether anything is inherited: the only check for calls that are not made by a handler.
    static IS_SOME: Cell<bool> = const { Cell::new(false) };
    static CURRENT: Cell<Option<Inherited>> = const { Cell::new(None) };
    /// Those of simulated threads, which all run on one real thread; each is identified by its waker.
    static SIMULATED: RefCell<Vec<(Waker, Inherited)>> = const { RefCell::new(Vec::new()) };
}

/// Sets what the running thread inherits, and returns the previous value.
#[inline]
fn replace(by: Option<Inherited>) -> Option<Inherited> {
    match thread::is_simulated() {
        false => {
            IS_SOME.set(by.is_some());
            CURRENT.replace(by)
        }
        true => replace_simulated(by),
    }
}

#[cold]
fn replace_simulated(by: Option<Inherited>) -> Option<Inherited> {
    let waker = thread::waker();
    SIMULATED.with_borrow_mut(|all| {
        let place = all.iter().position(|(known, _)| known.will_wake(&waker));
        let before = place.map(|place| all.swap_remove(place).1);
        all.extend(by.map(|by| (waker, by)));
        // A thread that runs simulated threads does not handle calls itself at the same time.
        IS_SOME.set(!all.is_empty());
        before
    })
}

impl Inherited {
    #[inline(never)]
    pub(crate) fn of(metadata: &MetadataMap, deadline: Option<Instant>) -> Self {
        Self {
            deadline,
            trace: metadata.trace_context(),
        }
    }

    /// What the handler running on this thread passes on.
    #[inline]
    pub(crate) fn current() -> Option<Self> {
        IS_SOME.get().then(Self::there).flatten()
    }

    #[cold]
    fn there() -> Option<Self> {
        match thread::is_simulated() {
            false => CURRENT.get(),
            true => {
                let current = replace_simulated(None);
                replace_simulated(current);
                current
            }
        }
    }

    /// Sets it until the guard is dropped. Out of line, like the guard's drop: few calls have anything to pass on.
    #[inline(never)]
    pub(crate) fn enter(self) -> Entered {
        Entered(replace(Some(self)))
    }
}

/// Restores the previous value when dropped.
#[derive(Debug)]
pub(crate) struct Entered(Option<Inherited>);

impl Drop for Entered {
    #[inline(never)]
    fn drop(&mut self) {
        replace(self.0.take());
    }
}
