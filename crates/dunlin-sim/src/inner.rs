//! The world behind its lock, and the event loop that drives it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use crate::context::{self, Prices};
use crate::event::Ps;
use crate::stack::Stacked;
use crate::world::{After, World};

/// Events that an empty poll outside of simulated threads may let happen: enough for a packet to get somewhere, few
/// enough that a caller who polls in turns sees each stage.
const EVENTS_OF_A_POLL: usize = 16;

/// What all objects of a cluster share.
#[derive(Debug)]
pub(crate) struct Inner {
    /// Tells clusters of this process apart, so that their addresses do not mix. Never an input of the simulation.
    pub(crate) id: u64,
    world: Mutex<World>,
    /// Something was scheduled from outside.
    scheduled: Condvar,
}

impl Inner {
    pub(crate) fn new(world: World) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            world: Mutex::new(world),
            scheduled: Condvar::new(),
        }
    }

    /// A number for a host that none of another cluster of this process has.
    pub(crate) fn host_number(&self, host: u16) -> u64 {
        self.id << 16 | u64::from(host)
    }

    /// The world. Its data stay sound when a holder panics.
    #[inline]
    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        match self.world.lock() {
            Ok(guard) => guard,
            Err(poisoned) => poisoned.into_inner(),
        }
    }

    /// After something was scheduled from outside: real threads that wait for the simulation look again.
    #[inline]
    pub(crate) fn notify(&self) {
        if !context::inside() {
            self.scheduled.notify_all();
        }
    }

    /// The simulated thread of this cluster that is calling.
    #[inline]
    pub(crate) fn caller(&self) -> Option<u32> {
        context::thread(self.id)
    }

    /// The time of the caller: that of its core, or of the world outside.
    #[inline]
    pub(crate) fn time(&self, world: &World) -> Ps {
        match self.caller() {
            Some(_) => context::now().unwrap_or(world.now),
            None => world.now,
        }
    }

    /// Lets one event happen. Gives back the lock, which it lets go while a thread takes its step; none when there is
    /// no event.
    pub(crate) fn happen<'a>(
        &'a self,
        mut world: MutexGuard<'a, World>,
    ) -> (MutexGuard<'a, World>, bool) {
        match world.next_event() {
            None => (world, false),
            Some(After::Nothing) => (world, true),
            Some(After::Step { thread, stamp }) => {
                let Some(mut step) = world.begin_step(thread, stamp) else {
                    return (world, true);
                };
                let now = world.now;
                let (host, stalled) = {
                    let thread = &world.threads[thread];
                    (usize::from(thread.host), thread.stalled(now))
                };
                let host = &world.hosts[host];
                let prices = Prices::of(&host.parameters, host.regions.bytes);
                drop(world);
                let (next, charged) = context::run(self.id, thread, (now, stalled), prices, || {
                    step.step(now / 1000)
                });
                let mut world = self.world();
                let left = world.stepped(thread, step, next, charged);
                world.observe_step(thread);
                if left.is_some() {
                    // What the thread owned is given back through the lock.
                    drop(world);
                    drop(left);
                    world = self.world();
                }
                (world, true)
            }
        }
    }

    /// Starts a thread with a stack.
    ///
    /// # Panics
    /// When the host has no such core.
    pub(crate) fn spawn_stacked(
        self: &Arc<Self>,
        host: u16,
        core: u32,
        run: Box<dyn FnOnce() + Send>,
    ) -> u32 {
        let mut world = self.world();
        let cores = world.hosts[usize::from(host)].cores;
        assert!(core < cores, "core {core} of {cores}");
        let number = world.threads.next(host);
        let stack = Stacked::new(self, host, number, run);
        let thread = world.spawn(host, core, Box::new(stack), true);
        debug_assert_eq!(thread, number);
        drop(world);
        self.notify();
        number
    }

    /// Lets everything happen up to and with time `until`, which it then is.
    pub(crate) fn run_until(&self, until: Ps) {
        let mut world = self.world();
        while world.queue.next_time().is_some_and(|at| at <= until) {
            (world, _) = self.happen(world);
        }
        world.now = world.now.max(until);
    }

    /// Lets events happen until there are none, `done` says so, or time would pass `until`; says whether `done` did.
    pub(crate) fn run_while(&self, until: Ps, mut done: impl FnMut(&World) -> bool) -> bool {
        let mut world = self.world();
        loop {
            if done(&world) {
                return true;
            }
            if world.queue.next_time().is_none_or(|at| at > until) {
                return false;
            }
            (world, _) = self.happen(world);
        }
    }

    /// A caller outside of the simulation looks for something that is not there: time goes on a little.
    pub(crate) fn pump<'a>(
        &'a self,
        mut world: MutexGuard<'a, World>,
        mut there: impl FnMut(&World) -> bool,
    ) -> MutexGuard<'a, World> {
        for _ in 0..EVENTS_OF_A_POLL {
            if there(&world) || world.queue.is_empty() {
                break;
            }
            (world, _) = self.happen(world);
        }
        world
    }

    /// A caller outside sleeps until `there`, or until `timeout` has passed in virtual time; when nothing is left to
    /// happen, in real time, because another real thread may still do something.
    pub(crate) fn sleep(
        &self,
        timeout: Duration,
        mut there: impl FnMut(&mut World) -> bool,
    ) -> bool {
        let timeout_ps = u64::try_from(timeout.as_nanos())
            .unwrap_or(u64::MAX)
            .saturating_mul(1000);
        let mut world = self.world();
        let until = world.now.saturating_add(timeout_ps);
        let mut left = timeout;
        loop {
            if there(&mut world) {
                return true;
            }
            if world.queue.next_time().is_some_and(|at| at <= until) {
                (world, _) = self.happen(world);
                continue;
            }
            if left.is_zero() {
                return false;
            }
            let began = std::time::Instant::now();
            world = match self.scheduled.wait_timeout(world, left) {
                Ok((guard, _)) => guard,
                Err(poisoned) => poisoned.into_inner().0,
            };
            left = left.saturating_sub(began.elapsed());
        }
    }
}
