//! Several parts of a cluster at once, each simulated by a real thread of its own.
//!
//! The algorithm is conservative: all parts run the events of a window of virtual time, then they exchange what crosses
//! between them. What one part sends within a window reaches the others after its end, because cables, switches and
//! NICs take time. While a buffer may come to pause its sender, which takes only the time of a cable, windows are as
//! short as that. Events of a node happen in the same order as on one thread, so a run has the same digest.

use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::crossing::Crossing;
use crate::event::Ps;
use crate::inner::Inner;
use crate::world::World;

/// Number of windows after which the parts check whether running at once pays.
const SAMPLE: u64 = 16;
/// Polls of the barrier before a thread yields its core.
const SPINS: usize = 200;

/// State shared by the threads of a run.
#[derive(Debug)]
struct Run {
    until: Ps,
    /// Nanoseconds per event above which the run is given up.
    most_ns: f64,
    /// Whether the run is given up.
    stop: AtomicBool,
    barrier: Barrier,
    parts: Vec<Published>,
}

impl Run {
    /// Number of events in all windows so far.
    fn events(&self) -> u64 {
        let parts = self.parts.iter();
        parts.map(|part| part.events.load(Ordering::Relaxed)).sum()
    }
}

/// What a part publishes to the others.
#[derive(Debug)]
struct Published {
    /// Time of its next event; the end of time if there is none.
    next: AtomicU64,
    /// Whether one of its buffers may pause.
    tight: AtomicBool,
    /// Number of events in all windows.
    events: AtomicU64,
    /// Events that each of the others has sent to it.
    mail: Vec<Mutex<Vec<Crossing>>>,
}

impl Inner {
    /// Runs all events up to and including time `until`, all parts at once, unless an event takes more than `most_ns`.
    /// Returns whether it reached `until`, and the number of events.
    pub(crate) fn run_at_once(self: &Arc<Self>, until: Ps, most_ns: f64) -> (bool, u64) {
        let parts = self.parts();
        let published = || Published {
            next: AtomicU64::new(Ps::MAX),
            tight: AtomicBool::new(false),
            events: AtomicU64::new(0),
            mail: (0..parts).map(|_| Mutex::default()).collect(),
        };
        let run = Arc::new(Run {
            until,
            most_ns,
            stop: AtomicBool::new(false),
            barrier: Barrier::new(parts),
            parts: (0..parts).map(|_| published()).collect(),
        });
        let begin = |part: usize| {
            let (inner, run) = (Arc::clone(self), Arc::clone(&run));
            self.worker(part).begin(move || inner.run_part(part, &run))
        };
        let others: Vec<_> = (1..parts).map(begin).collect();
        let own = catch_unwind(AssertUnwindSafe(|| self.run_part(0, &run)));
        // All have ended before a panic of one of them is resumed here.
        let others: Vec<_> = others.into_iter().map(|other| other.end()).collect();
        let mut all = std::iter::once(own).chain(others);
        let whole = all.try_fold(true, |whole, end| end.map(|reached| whole && reached));
        let whole = whole.unwrap_or_else(|panic| resume_unwind(panic));
        (whole, run.events())
    }

    /// Runs one part in its real thread; returns false when it was given up.
    fn run_part(&self, part: usize, run: &Run) -> bool {
        /// Prevents the others from waiting for a thread that has panicked.
        struct Leave<'a>(&'a Barrier);
        impl Drop for Leave<'_> {
            fn drop(&mut self) {
                if std::thread::panicking() {
                    self.0.broken.store(true, Ordering::Release);
                }
            }
        }
        let _leave = Leave(&run.barrier);
        let own = &run.parts[part];
        let (mut windows, mut since, mut sampled) = (0, Instant::now(), 0);
        loop {
            let mut world = self.part(part);
            for mail in &own.mail {
                for crossing in lock(mail).drain(..) {
                    world.take_in(crossing);
                }
            }
            let next = world.queue.next().map_or(Ps::MAX, |(at, _)| at);
            own.next.store(next, Ordering::Relaxed);
            own.tight.store(world.tight > 0, Ordering::Relaxed);
            drop(world);
            // One part decides for all.
            if part == 0 && windows == SAMPLE {
                let events = run.events();
                let took = (since.elapsed().as_nanos() as f64, (events - sampled) as f64);
                run.stop
                    .store(took.0 > run.most_ns * took.1, Ordering::Relaxed);
                (windows, since, sampled) = (0, Instant::now(), events);
            }
            windows += 1;
            if !run.barrier.wait() {
                return false;
            }
            let nexts = run.parts.iter().map(|p| p.next.load(Ordering::Relaxed));
            let begin = nexts.min().unwrap_or(Ps::MAX);
            if begin > run.until {
                break;
            }
            if run.stop.load(Ordering::Relaxed) {
                return false;
            }
            let tight = run.parts.iter().any(|p| p.tight.load(Ordering::Relaxed));
            let length = match tight {
                true => self.division.pauses,
                false => self.division.packets,
            };
            let end = begin
                .saturating_add(length)
                .min(run.until.saturating_add(1));
            let (mut world, mut events) = (self.part(part), 0);
            while world.queue.next().is_some_and(|(at, _)| at < end) {
                world = self.happen(part, world);
                events += 1;
            }
            own.events.fetch_add(events, Ordering::Relaxed);
            send(part, &mut world, run);
            drop(world);
            if !run.barrier.wait() {
                return false;
            }
        }
        let mut world = self.part(part);
        world.now = world.now.max(run.until);
        true
    }
}

/// Delivers what a part has sent to the mailboxes of the others, which have taken what was there before.
fn send(part: usize, world: &mut World, run: &Run) {
    for (sent, to) in world.outbox.iter_mut().zip(&run.parts) {
        if !sent.is_empty() {
            std::mem::swap(sent, &mut lock(&to.mail[part]));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A barrier for all threads of a run; it takes hundreds of nanoseconds when each has a core.
#[derive(Debug)]
struct Barrier {
    parties: usize,
    arrived: AtomicUsize,
    round: AtomicUsize,
    broken: AtomicBool,
}

impl Barrier {
    fn new(parties: usize) -> Self {
        Self {
            parties,
            arrived: AtomicUsize::new(0),
            round: AtomicUsize::new(0),
            broken: AtomicBool::new(false),
        }
    }

    /// Waits for all others; returns false when one of them has panicked.
    fn wait(&self) -> bool {
        let round = self.round.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.parties {
            self.arrived.store(0, Ordering::Relaxed);
            self.round.store(round.wrapping_add(1), Ordering::Release);
            return true;
        }
        let mut looks = 0;
        while self.round.load(Ordering::Acquire) == round {
            if self.broken.load(Ordering::Acquire) {
                return false;
            }
            looks += 1;
            if looks < SPINS {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
        true
    }
}
