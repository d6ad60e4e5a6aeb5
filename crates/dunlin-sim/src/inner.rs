//! The worlds of a cluster behind their locks, and the event loop that drives them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::context;
use crate::division::Division;
use crate::event::{after, Ps};
use crate::faults::Faults;
use crate::held::Held;
use crate::pace::{Pace, CHUNK};
use crate::random::mix;
use crate::stack::Stacked;
use crate::step::{Ready, Stepped};
use crate::threads::host_of;
use crate::worker::Worker;
use crate::world::{After, World};

/// Maximum number of events run by an empty poll outside of simulated threads: enough for a packet to make progress,
/// few enough that a caller that polls several objects in turn sees each stage.
const EVENTS_OF_A_POLL: usize = 16;

/// State shared by all objects of a cluster.
#[derive(Debug)]
pub(crate) struct Inner {
    /// Distinguishes the clusters of this process, so that their addresses do not mix. Never an input of the
    /// simulation.
    pub(crate) id: u64,
    pub(crate) division: Arc<Division>,
    pub(crate) faults: Arc<Faults>,
    worlds: Vec<Mutex<World>>,
    /// Held by the thread that lets time pass in a cluster of several parts.
    driver: Mutex<Pace>,
    /// Workers of all parts but the first, which is simulated by the thread that lets time pass.
    workers: OnceLock<Vec<Worker>>,
    /// Number of times that something was scheduled from outside.
    scheduled: Mutex<u64>,
    news: Condvar,
}

impl Inner {
    /// Wraps the worlds of all parts.
    pub(crate) fn new(worlds: Vec<World>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            division: Arc::clone(&worlds[0].division),
            faults: Arc::clone(&worlds[0].faults),
            driver: Mutex::new(Pace::new(worlds[0].division.always)),
            worlds: worlds.into_iter().map(Mutex::new).collect(),
            workers: OnceLock::new(),
            scheduled: Mutex::new(0),
            news: Condvar::new(),
        }
    }

    /// Number of parts.
    pub(crate) fn parts(&self) -> usize {
        self.worlds.len()
    }

    /// A number for a host that no host of another cluster of this process has.
    pub(crate) fn host_number(&self, host: u16) -> u64 {
        self.id << 16 | u64::from(host)
    }

    /// Locks the world of a part. Its data stay sound when a holder panics.
    #[inline]
    pub(crate) fn part(&self, part: usize) -> MutexGuard<'_, World> {
        lock(&self.worlds[part])
    }

    /// Locks the world of a host.
    #[inline]
    pub(crate) fn world(&self, host: u16) -> MutexGuard<'_, World> {
        self.part(self.division.of_host(host))
    }

    /// Locks the worlds of all parts, one after the other.
    pub(crate) fn all(&self) -> impl Iterator<Item = MutexGuard<'_, World>> {
        self.worlds.iter().map(lock)
    }

    /// The right to let time pass. Needed where there are several parts: nothing else may run events at the same time.
    ///
    /// # Panics
    /// When a thread of such a cluster asks for it.
    pub(crate) fn driver(&self) -> Option<MutexGuard<'_, Pace>> {
        if self.parts() == 1 {
            return None;
        }
        assert!(
            self.caller().is_none(),
            "a simulated thread cannot let the time of its own cluster pass"
        );
        Some(lock(&self.driver))
    }

    /// The real thread of a part other than the first.
    pub(crate) fn worker(&self, part: usize) -> &Worker {
        let workers = self
            .workers
            .get_or_init(|| (1..self.parts()).map(Worker::new).collect());
        &workers[part - 1]
    }

    /// Called after something was scheduled from outside: real threads that wait for the simulation look again.
    #[inline]
    pub(crate) fn notify(&self) {
        if !context::inside() {
            *lock(&self.scheduled) += 1;
            self.news.notify_all();
        }
    }

    /// The simulated thread of this cluster that is calling.
    #[inline]
    pub(crate) fn caller(&self) -> Option<u32> {
        context::thread(self.id)
    }

    /// The simulated thread that calls and uses an object of this host.
    ///
    /// # Panics
    /// When the thread runs on a host of another part, which is simulated by another real thread.
    #[inline]
    pub(crate) fn caller_on(&self, host: u16) -> Option<u32> {
        let caller = self.caller()?;
        let own = host_of(caller);
        assert!(
            own == host || self.division.of_host(own) == self.division.of_host(host),
            "a thread of host {own} uses what belongs to host {host}, which another core simulates: \
             such a cluster has to be of one part"
        );
        Some(caller)
    }

    /// The time of the caller: that of its core, or that of the world when called from outside.
    #[inline]
    pub(crate) fn time(&self, world: &World) -> Ps {
        match self.caller() {
            Some(_) => context::now().unwrap_or(world.now),
            None => world.now,
        }
    }

    /// Runs the next event of a part. Returns the lock, which is released while a thread takes its step.
    pub(crate) fn happen<'a>(
        &'a self,
        part: usize,
        mut world: MutexGuard<'a, World>,
    ) -> MutexGuard<'a, World> {
        let Some(After::Step(ready)) = world.next_event() else {
            return world;
        };
        drop(world);
        let stepped = ready.run(self.id);
        let mut world = self.part(part);
        let left = world.after(stepped);
        if left.is_some() {
            // Dropping what the thread owned takes the lock.
            drop(world);
            drop(left);
            world = self.part(part);
        }
        world
    }

    /// Runs the step of a thread; one with a stack on the real thread to which the stack belongs.
    pub(crate) fn take_step(&self, part: usize, ready: Ready) -> Stepped {
        let id = self.id;
        if part == 0 || !ready.stacked {
            return ready.run(id);
        }
        match self.worker(part).begin(move || ready.run(id)).end() {
            Ok(stepped) => stepped,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// Starts a thread with a stack. `None` when the host has had its maximum number of threads.
    ///
    /// # Panics
    /// When the host has no such core.
    pub(crate) fn spawn_stacked(
        self: &Arc<Self>,
        host: u16,
        core: u32,
        run: Box<dyn FnOnce() + Send>,
    ) -> Option<u32> {
        let mut world = self.world(host);
        let cores = world.hosts[usize::from(host)].cores;
        assert!(core < cores, "core {core} of {cores}");
        let number = world.threads.next(host)?;
        let stack = Stacked::new(self, host, number, run);
        let thread = world.spawn(host, core, Box::new(stack), true);
        debug_assert_eq!(thread, Some(number));
        drop(world);
        self.notify();
        Some(number)
    }

    /// Runs all events up to and including time `until`, and advances time to it.
    pub(crate) fn run_until(self: &Arc<Self>, until: Ps) {
        let mut held = Held::new(self);
        while self.may_run_at_once(&held) {
            let (alone, most_ns) = held.pace().map_or((0, 0.0), |p| (p.left(), p.most_ns()));
            let began = Instant::now();
            if alone == 0 {
                let mut driver = held.release();
                let (ended, events) = self.run_at_once(until, most_ns);
                if let Some(pace) = &mut driver {
                    pace.at_once(events, began.elapsed());
                }
                if ended {
                    return;
                }
                held = Held::with(self, driver);
                continue;
            }
            let chunk = alone.min(CHUNK);
            let mut events = 0;
            while events < chunk && held.next_time().is_some_and(|at| at <= until) {
                held.happen();
                events += 1;
            }
            if let Some(pace) = held.pace() {
                pace.alone(events, began.elapsed());
            }
            if events < chunk {
                break;
            }
        }
        while held.next_time().is_some_and(|at| at <= until) {
            held.happen();
        }
        held.reach(until);
    }

    /// Whether the parts may run at once: observers and rules over packets, which concern all parts, must see
    /// everything in order.
    fn may_run_at_once(&self, held: &Held<'_>) -> bool {
        let ordered = |world: &World| world.observed.is_active() || world.held_back > 0;
        self.parts() > 1
            && self.division.pauses > 0
            && !self.faults.is_active()
            && !held.worlds().any(ordered)
    }

    /// Runs events until there are none, `done` returns true, or time would pass `until`. Returns whether `done` did.
    pub(crate) fn run_while(&self, until: Ps, mut done: impl FnMut(&Held<'_>) -> bool) -> bool {
        let mut held = Held::new(self);
        loop {
            if done(&held) {
                return true;
            }
            if held.next_time().is_none_or(|at| at > until) {
                return false;
            }
            held.happen();
        }
    }

    /// Lets time advance a little for a caller outside of the simulation that waits for something on a host.
    pub(crate) fn pump(&self, host: u16, mut there: impl FnMut(&World) -> bool) {
        let mut held = Held::new(self);
        for _ in 0..EVENTS_OF_A_POLL {
            if there(held.of_host(host)) || !held.happen() {
                break;
            }
        }
    }

    /// Lets a caller outside of the simulation sleep until something is `there` on a host, or `timeout` has passed in
    /// virtual time. When no events are left it sleeps in real time, because another real thread may still schedule
    /// some.
    pub(crate) fn sleep(
        &self,
        host: u16,
        timeout: Duration,
        mut there: impl FnMut(&mut World) -> bool,
    ) -> bool {
        let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        let mut held = Held::new(self);
        let until = after(held.now(), timeout_ns);
        let mut left = timeout;
        loop {
            if there(held.of_host(host)) {
                return true;
            }
            if held.next_time().is_some_and(|at| at <= until) {
                held.happen();
                continue;
            }
            if left.is_zero() {
                return false;
            }
            let seen = *lock(&self.scheduled);
            drop(held);
            let began = Instant::now();
            let scheduled = lock(&self.scheduled);
            let waited = self
                .news
                .wait_timeout_while(scheduled, left, |scheduled| *scheduled == seen);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
            left = left.saturating_sub(began.elapsed());
            held = Held::new(self);
        }
    }

    /// Number of events so far.
    pub(crate) fn events(&self) -> u64 {
        self.all().map(|world| world.queue.taken()).sum()
    }

    /// Digest of the events of each node, node after node.
    pub(crate) fn digest(&self) -> u64 {
        let mut nodes = vec![0; self.division.hosts.len() + self.division.switches.len()];
        for world in self.all() {
            // A node has events in its own part only.
            for (node, digest) in nodes.iter_mut().zip(world.queue.digests()) {
                *node ^= digest;
            }
        }
        nodes.into_iter().fold(0, |sum, node| mix(sum ^ node))
    }
}

/// Locks a mutex whose data stay sound when a holder panics.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
