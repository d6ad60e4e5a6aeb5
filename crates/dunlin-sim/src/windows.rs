//! Several parts of a cluster at once, each by a real thread of its own.
//!
//! Conservative: all parts run the events of a window of virtual time, then they give each other what crosses. What one
//! sends within a window reaches the others behind its end, because cables, switches and NICs take their time; while a
//! buffer may come to pause its sender, which takes the time of a cable alone, windows are as short. Events of a node
//! happen in the same order as on one thread, so a run has the same digest.

use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::crossing::Crossing;
use crate::event::Ps;
use crate::inner::Inner;
use crate::world::World;

/// Windows after which it is looked at whether they are worth it.
const SAMPLE: u64 = 16;
/// Looks at the barrier before a thread lets others have its core.
const SPINS: usize = 200;

/// What the threads of a run share.
#[derive(Debug)]
struct Run {
    until: Ps,
    /// Nanoseconds of an event above which it is given up.
    most_ns: f64,
    /// It is given up.
    stop: AtomicBool,
    barrier: Barrier,
    parts: Vec<Published>,
}

impl Run {
    /// Events in all windows so far.
    fn events(&self) -> u64 {
        let parts = self.parts.iter();
        parts.map(|part| part.events.load(Ordering::Relaxed)).sum()
    }
}

/// What a part tells the others.
#[derive(Debug)]
struct Published {
    /// When something happens in it next; at the end of time when nothing does.
    next: AtomicU64,
    /// One of its buffers may pause.
    tight: AtomicBool,
    /// Events in all windows.
    events: AtomicU64,
    /// What each of the others has sent to it.
    mail: Vec<Mutex<Vec<Crossing>>>,
}

impl Inner {
    /// Lets everything happen up to and with time `until`, all parts at once, unless an event takes more than so many
    /// nanoseconds. Says whether it came to the end, and how many events happened.
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
        // All have ended before a panic of one of them goes on here.
        let others: Vec<_> = others.into_iter().map(|other| other.end()).collect();
        let mut all = std::iter::once(own).chain(others);
        let whole = all.try_fold(true, |whole, end| end.map(|reached| whole && reached));
        let whole = whole.unwrap_or_else(|panic| resume_unwind(panic));
        (whole, run.events())
    }

    /// The part of a real thread; false when it did not get to the end.
    fn run_part(&self, part: usize, run: &Run) -> bool {
        /// The others do not wait for one that has panicked.
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
            // One of them decides for all.
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

/// Leaves what a part has sent where the others find it. They have taken what was there.
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

/// Where all threads of a run wait for each other: hundreds of nanoseconds where each has a core.
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

    /// Waits for all others; false when one of them has panicked.
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
