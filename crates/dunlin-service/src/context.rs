//! What a handler's own calls inherit: the deadline of the call that it handles, and its trace. They are the thread's
//! while the handler runs on it or its future is polled; what a handler spawns inherits nothing, unless it is given the
//! request's own.

use std::cell::{Cell, RefCell};
use std::task::Waker;
use std::time::Instant;

use dunlin::thread;

use crate::{MetadataMap, TraceContext};

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Inherited {
    pub(crate) deadline: Option<Instant>,
    pub(crate) trace: Option<TraceContext>,
}

thread_local! {
    /// Whether there is any: all that a call asks which no handler makes.
    static IS_SOME: Cell<bool> = const { Cell::new(false) };
    static CURRENT: Cell<Option<Inherited>> = const { Cell::new(None) };
    /// Of simulated threads, all of which are of one real thread. Who each is, its waker says.
    static SIMULATED: RefCell<Vec<(Waker, Inherited)>> = const { RefCell::new(Vec::new()) };
}

/// Puts what the running thread inherits into its place, and gives what was there.
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
        // A thread that others are simulated on handles no calls itself meanwhile.
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

    /// Of the handler that runs on this thread now.
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

    /// For what is done until the guard goes. Out of line, as the guard's end: few calls have anything to pass on.
    #[inline(never)]
    pub(crate) fn enter(self) -> Entered {
        Entered(replace(Some(self)))
    }
}

/// Puts back what was before.
#[derive(Debug)]
pub(crate) struct Entered(Option<Inherited>);

impl Drop for Entered {
    #[inline(never)]
    fn drop(&mut self) {
        replace(self.0.take());
    }
}
