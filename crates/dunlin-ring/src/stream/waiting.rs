//! How a stream waits: polled again at once for a short time, then looked for by a thread of the process, which looks less and less often.
//!
//! The thread never touches a ring. It compares one word of shared memory with what it was when the wait began, and calls the waker when it
//! differs; from time to time it calls the waker without a reason, so that a failure of the connection is found out too.

use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

/// How long a wait is polled again at once: longer than an answer from another core takes, shorter than anyone minds.
const SPIN: Duration = Duration::from_micros(50);
/// Polls between two looks at the clock.
const STRIDE: u32 = 32;
/// The thread's first and longest nap between two looks.
const FIRST_NAP: Duration = Duration::from_micros(50);
const LAST_NAP: Duration = Duration::from_millis(1);
/// A waker is called after this even when nothing has changed.
const BOUND: Duration = Duration::from_millis(20);

/// Something that may change while nobody polls.
pub(crate) type Watch = Box<dyn Fn() -> bool + Send>;

/// The waiting of one direction of a stream.
#[derive(Debug)]
pub(super) struct Waiting {
    since: Option<Instant>,
    polls: u32,
    /// The spin is over until there is progress.
    patient: bool,
}

impl Waiting {
    pub(super) fn new() -> Self {
        Self {
            since: None,
            polls: 0,
            patient: false,
        }
    }

    /// Something was done: the next wait begins anew.
    pub(super) fn progress(&mut self) {
        self.since = None;
        self.polls = 0;
        self.patient = false;
    }

    /// Sees to it that the task is polled again.
    pub(super) fn wait(&mut self, context: &mut Context<'_>, watch: impl FnOnce() -> Watch) {
        if !self.patient {
            self.polls += 1;
            if self.polls % STRIDE == 0 {
                let since = *self.since.get_or_insert_with(Instant::now);
                self.patient = since.elapsed() >= SPIN;
                // The peer may need this core.
                std::thread::yield_now();
            }
            std::hint::spin_loop();
            context.waker().wake_by_ref();
            return;
        }
        lookout().enter(Entry {
            watch: watch(),
            waker: context.waker().clone(),
            until: Instant::now() + BOUND,
        });
    }
}

struct Entry {
    watch: Watch,
    waker: Waker,
    until: Instant,
}

/// What the thread looks at.
#[derive(Default)]
struct Lookout {
    entries: Mutex<Vec<Entry>>,
    news: Condvar,
}

fn lookout() -> &'static Lookout {
    static LOOKOUT: OnceLock<Lookout> = OnceLock::new();
    static THREAD: OnceLock<bool> = OnceLock::new();
    let lookout = LOOKOUT.get_or_init(Lookout::default);
    THREAD.get_or_init(|| {
        let thread = std::thread::Builder::new().name("dunlin-stream".into());
        thread.spawn(|| lookout.run()).is_ok()
    });
    lookout
}

impl Lookout {
    fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, entry: Entry) {
        // It may have come before the watch began.
        if (entry.watch)() {
            entry.waker.wake();
            return;
        }
        self.lock().push(entry);
        self.news.notify_one();
    }

    fn run(&self) {
        let mut nap = FIRST_NAP;
        loop {
            let mut entries = self.lock();
            while entries.is_empty() {
                entries = self
                    .news
                    .wait(entries)
                    .unwrap_or_else(PoisonError::into_inner);
                nap = FIRST_NAP;
            }
            let now = Instant::now();
            let due: Vec<Waker> = entries
                .extract_if(.., |entry| (entry.watch)() || entry.until <= now)
                .map(|entry| entry.waker)
                .collect();
            drop(entries);
            if due.is_empty() {
                std::thread::sleep(nap);
                nap = (nap * 2).min(LAST_NAP);
                continue;
            }
            for waker in due {
                waker.wake();
            }
        }
    }
}
