//! Tasks of the application on polling threads: such a thread makes calls and answers them, as FaSST's threads do
//! (§4.1: a master coroutine that polls, and workers with outstanding calls, in one thread). The thread alternates
//! between a pass over its clients and a turn of the task.

use std::fmt;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::task::{Wake, Waker};

use dunlin_verbs::CompletionChannel;

/// Result of a turn of a thread's task. Returned by the tasks of [`crate::ServerBuilder::on_polling_threads`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadProgress {
    /// The task did something: it gets another turn at once.
    Worked,
    /// The task has outstanding calls, whose answers only another turn can take: the thread does not sleep.
    Waiting,
    /// The task has nothing to do. The thread may sleep until a request comes or [`PollingThread::waker`] is woken, and
    /// gives the task a turn ten times a second.
    Idle,
}

/// A polling thread, as the task on it sees it.
#[derive(Clone, Debug)]
pub struct PollingThread {
    index: usize,
    waker: Waker,
}

impl PollingThread {
    /// The thread's number among the server's polling threads, starting at zero.
    pub fn index(&self) -> usize {
        self.index
    }

    /// A waker for the thread, which may be used from any thread.
    pub fn waker(&self) -> &Waker {
        &self.waker
    }
}

type Task = Box<dyn FnMut() -> ThreadProgress>;

/// How the tasks are made, and which threads have one.
#[derive(Clone)]
pub(super) struct ThreadTasks {
    start: Arc<dyn Fn(PollingThread) -> Task + Send + Sync>,
    /// Number of threads that have their task: all of them are of the first device.
    claimed: Arc<AtomicUsize>,
}

impl fmt::Debug for ThreadTasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadTasks").finish_non_exhaustive()
    }
}

impl ThreadTasks {
    pub(super) fn new<T>(start: impl Fn(PollingThread) -> T + Send + Sync + 'static) -> Self
    where
        T: FnMut() -> ThreadProgress + 'static,
    {
        Self {
            start: Arc::new(move |thread| Box::new(start(thread))),
            claimed: Arc::default(),
        }
    }

    /// Returns the task of a thread, if it gets one; called for the threads in the order of their numbers.
    pub(super) fn claim<W: CompletionChannel>(&self, index: usize, wake: W) -> Option<Unstarted> {
        let first = index == self.claimed.load(Ordering::Relaxed);
        let mine = first && self.claimed.fetch_add(1, Ordering::Relaxed) == index;
        mine.then(|| {
            let waker = Waker::from(Arc::new(WakePoller(wake)));
            let thread = PollingThread { index, waker };
            Unstarted(Arc::clone(&self.start), thread)
        })
    }
}

struct WakePoller<W>(W);

impl<W: CompletionChannel> Wake for WakePoller<W> {
    fn wake(self: Arc<Self>) {
        self.0.wake();
    }
}

/// A task that is not made yet: it is made on its thread.
pub(super) struct Unstarted(
    Arc<dyn Fn(PollingThread) -> Task + Send + Sync>,
    PollingThread,
);

/// A task on its thread.
pub(super) struct ThreadTask(Option<Task>);

impl ThreadTask {
    pub(super) fn start(unstarted: Option<Unstarted>) -> Self {
        let start = |Unstarted(start, thread): Unstarted| contained(move || start(thread));
        Self(unstarted.and_then(start))
    }

    /// Gives it a turn.
    #[inline]
    pub(super) fn turn(&mut self) -> ThreadProgress {
        match &mut self.0 {
            None => ThreadProgress::Idle,
            Some(_) => self.turn_of_some(),
        }
    }

    fn turn_of_some(&mut self) -> ThreadProgress {
        let progress = self.0.as_mut().and_then(contained);
        if progress.is_none() {
            let left = self.0.take();
            contained(move || drop(left));
        }
        progress.unwrap_or(ThreadProgress::Idle)
    }
}

/// Runs a function; `None` if it panicked. The thread's clients continue to be served.
fn contained<T>(run: impl FnOnce() -> T) -> Option<T> {
    let ended = catch_unwind(AssertUnwindSafe(run));
    if ended.is_err() {
        tracing::error!("the task of a polling thread panicked and will not run again");
    }
    ended.ok()
}
