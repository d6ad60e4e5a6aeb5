//! The step of a thread, which runs without the world's lock.

use crate::context::{self, Prices};
use crate::cores::{Next, Step};
use crate::event::Ps;
use crate::world::World;

/// A thread whose turn it is.
pub(crate) struct Ready {
    pub(crate) thread: u32,
    /// Whether it has a stack, and so a real thread to which it belongs.
    pub(crate) stacked: bool,
    step: Box<dyn Step>,
    now: Ps,
    stalled: Ps,
    prices: Prices,
}

impl std::fmt::Debug for Ready {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ready")
            .field("thread", &self.thread)
            .finish_non_exhaustive()
    }
}

impl Ready {
    /// Runs the step, as a thread of this cluster.
    pub(crate) fn run(self, cluster: u64) -> Stepped {
        let Self {
            thread,
            mut step,
            now,
            stalled,
            prices,
            ..
        } = self;
        let (next, charged) = context::run(cluster, thread, (now, stalled), prices, || {
            step.step(now / 1000)
        });
        Stepped {
            thread,
            step,
            next,
            charged,
        }
    }
}

/// A step that has run.
pub(crate) struct Stepped {
    thread: u32,
    step: Box<dyn Step>,
    next: Next,
    charged: Ps,
}

impl World {
    /// The step of a thread, if it may run now.
    pub(crate) fn ready(&mut self, thread: u32, stamp: u32) -> Option<Ready> {
        let step = self.begin_step(thread, stamp)?;
        let now = self.now;
        let state = &self.threads[thread];
        let host = &self.hosts[usize::from(state.host)];
        Some(Ready {
            thread,
            stacked: state.stacked,
            step,
            now,
            stalled: state.stalled(now),
            prices: Prices::of(&host.parameters, host.regions.bytes),
        })
    }

    /// Ends the step. Returns the remains of a thread that has ended, because dropping them may take the lock.
    pub(crate) fn after(&mut self, stepped: Stepped) -> Option<Box<dyn Step>> {
        let Stepped {
            thread,
            step,
            next,
            charged,
        } = stepped;
        let left = self.stepped(thread, step, next, charged);
        self.observe_step(thread);
        left
    }
}
