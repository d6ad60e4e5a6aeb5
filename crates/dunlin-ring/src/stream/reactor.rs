//! The thread that sleeps on behalf of all streams of a process, on the events of their completion channels, each for a
//! bounded time.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use dunlin_verbs::process::PerProcess;
use rustix::event::{eventfd, poll, EventfdFlags, PollFd, PollFlags, Timespec};

use crate::link::Event;

/// A waker is called after this time even without an event, as a safety net.
const BOUND: Duration = Duration::from_millis(5);

/// Identifies a sleeper: one direction of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sleeper(u64);

impl Sleeper {
    pub(super) fn new() -> Self {
        use std::sync::atomic::{AtomicU64, Ordering};
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

struct Entry {
    sleeper: Sleeper,
    event: Arc<dyn Event>,
    waker: Waker,
    until: Instant,
}

struct Reactor {
    entries: Mutex<Vec<Entry>>,
    /// Readable when there is a new entry.
    changed: OwnedFd,
}

/// Registers `waker` to be called at the event, or after 5 ms. A sleeper has one entry, the latest. Returns `false` if
/// the system has no descriptor or no thread for it: then the caller has to keep polling.
pub(super) fn enter(sleeper: Sleeper, event: Box<dyn Event>, waker: Waker) -> bool {
    let Some(reactor) = reactor() else {
        return false;
    };
    let entry = Entry {
        sleeper,
        event: event.into(),
        waker,
        until: Instant::now() + BOUND,
    };
    let mut entries = reactor.lock();
    match entries.iter_mut().find(|one| one.sleeper == sleeper) {
        Some(one) => *one = entry,
        None => entries.push(entry),
    }
    drop(entries);
    // A full counter is readable as well.
    let _ = rustix::io::write(&reactor.changed, &1u64.to_ne_bytes());
    true
}

fn reactor() -> Option<&'static Reactor> {
    /// The reactor, and whether its thread is running.
    type Once = (OnceLock<Option<Reactor>>, OnceLock<bool>);
    static ONCE: PerProcess<Once> = PerProcess::new();
    let (made, thread) = ONCE.get();
    let make = || {
        let changed = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok()?;
        Some(Reactor {
            entries: Mutex::default(),
            changed,
        })
    };
    let reactor = made.get_or_init(make).as_ref()?;
    let runs = thread.get_or_init(|| {
        let thread = std::thread::Builder::new().name("dunlin-stream".into());
        thread.spawn(|| reactor.run()).is_ok()
    });
    runs.then_some(reactor)
}

impl Reactor {
    fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        loop {
            // Only this thread removes entries, and only replacing an entry changes its event.
            let (watched, until) = {
                let entries = self.lock();
                let watched: Vec<_> = entries
                    .iter()
                    .map(|entry| (entry.sleeper, Arc::clone(&entry.event)))
                    .collect();
                (watched, entries.iter().map(|entry| entry.until).min())
            };
            let woken = self.sleep(&watched, until);
            let now = Instant::now();
            let due: Vec<Waker> = self
                .lock()
                .extract_if(.., |entry| {
                    entry.until <= now || woken.contains(&entry.sleeper)
                })
                .map(|entry| entry.waker)
                .collect();
            for waker in due {
                waker.wake();
            }
        }
    }

    /// Sleeps until an event, a new entry, or the first deadline; returns the sleepers whose events were raised, and
    /// consumes the events.
    fn sleep(&self, watched: &[(Sleeper, Arc<dyn Event>)], until: Option<Instant>) -> Vec<Sleeper> {
        let mut descriptors: Vec<PollFd<'_>> = watched
            .iter()
            .map(|(_, event)| PollFd::from_borrowed_fd(event.descriptor(), PollFlags::IN))
            .collect();
        descriptors.push(PollFd::from_borrowed_fd(
            self.changed.as_fd(),
            PollFlags::IN,
        ));
        let limit = until.map(|until| {
            let left = until.saturating_duration_since(Instant::now());
            Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: left.subsec_nanos().into(),
            }
        });
        if poll(&mut descriptors, limit.as_ref()).is_err() {
            // Interrupted, or temporarily out of memory.
            std::thread::sleep(Duration::from_millis(1));
            return Vec::new();
        }
        let mut count = [0; 8];
        // Empty if there was no new entry.
        let _ = rustix::io::read(&self.changed, &mut count);
        let mut woken = Vec::new();
        for (descriptor, (sleeper, event)) in descriptors.iter().zip(watched) {
            if !descriptor.revents().is_empty() {
                event.take();
                woken.push(*sleeper);
            }
        }
        woken
    }
}
