//! What a handler's own calls inherit: the deadline of the call that it handles, and its trace. They are the thread's
//! while the handler runs on it or its future is polled; what a handler spawns inherits nothing, unless it is given the
//! request's own.

use std::cell::Cell;
use std::time::Instant;

use crate::{MetadataMap, TraceContext};

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Inherited {
    pub(crate) deadline: Option<Instant>,
    pub(crate) trace: Option<TraceContext>,
}

thread_local! {
    static CURRENT: Cell<Option<Inherited>> = const { Cell::new(None) };
}

impl Inherited {
    pub(crate) fn of(metadata: &MetadataMap, deadline: Option<Instant>) -> Self {
        Self {
            deadline,
            trace: metadata.trace_context(),
        }
    }

    /// Of the handler that runs on this thread now.
    #[inline]
    pub(crate) fn current() -> Option<Self> {
        CURRENT.get()
    }

    /// For what is done until the guard goes.
    pub(crate) fn enter(self) -> Entered {
        Entered(CURRENT.replace(Some(self)))
    }
}

/// Puts back what was before.
#[derive(Debug)]
pub(crate) struct Entered(Option<Inherited>);

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}
