//! Executors of futures that nobody awaits: handlers, and the tasks that drive streams.

use std::fmt;
use std::future::{poll_fn, Future};
use std::io;
use std::pin::{pin, Pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use dunlin::thread;
use futures_channel::mpsc::{unbounded, UnboundedReceiver, UnboundedSender};
use futures_util::stream::{FuturesUnordered, StreamExt};

/// A future that runs to completion without being awaited.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// How threads are started: by the operating system, unless the host is simulated.
#[derive(Clone, Default)]
pub struct Threads(Option<Arc<Start>>);

type Start = dyn Fn(&str, Box<dyn FnOnce() + Send>) -> io::Result<()> + Send + Sync;

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            None => "Threads(system)",
            Some(_) => "Threads(custom)",
        })
    }
}

impl Threads {
    /// Starts threads with this function, which is given a name and the function to run.
    pub fn new(
        start: impl Fn(&str, Box<dyn FnOnce() + Send>) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self(Some(Arc::new(start)))
    }

    /// Starts a thread.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(crate) fn start(&self, name: &str, run: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        match &self.0 {
            Some(start) => start(name, run),
            None => std::thread::Builder::new()
                .name(name.into())
                .spawn(run)
                .map(drop),
        }
    }
}

/// An executor of tasks. Cheap to clone.
#[derive(Clone)]
pub(crate) enum Tasks {
    /// The user's own executor.
    Custom(Arc<dyn Fn(Task) + Send + Sync>),
    #[cfg(feature = "tokio")]
    Tokio(tokio::runtime::Handle),
    /// A dedicated thread, started with the first task. It has no timers and no sockets.
    Thread(Arc<OwnThread>),
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Custom(_) => "Tasks(custom)",
            #[cfg(feature = "tokio")]
            Self::Tokio(_) => "Tasks(tokio)",
            Self::Thread(_) => "Tasks(thread)",
        })
    }
}

impl Default for Tasks {
    /// The tokio runtime of the calling context, with the feature `tokio`, or else a dedicated thread.
    fn default() -> Self {
        #[cfg(feature = "tokio")]
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            return Self::Tokio(runtime);
        }
        Self::Thread(Arc::default())
    }
}

impl Tasks {
    /// A dedicated thread, started by `threads`.
    pub(crate) fn on(threads: Threads) -> Self {
        let started = Mutex::default();
        Self::Thread(Arc::new(OwnThread { threads, started }))
    }

    /// Runs a task, which the calling thread polls first; one that is ready then never moves to another thread.
    pub(crate) fn begin_here(&self, mut task: Task) {
        #[cfg(feature = "tokio")]
        let _entered = match self {
            Self::Tokio(runtime) => Some(runtime.enter()),
            _ => None,
        };
        // No wake-up is needed: the executor that runs the task from now on polls it first.
        let mut context = Context::from_waker(Waker::noop());
        if task.as_mut().poll(&mut context).is_pending() {
            self.spawn(task);
        }
    }

    /// How threads other than the executor's are started.
    pub(crate) fn threads(&self) -> Threads {
        match self {
            Self::Thread(thread) => thread.threads.clone(),
            _ => Threads::default(),
        }
    }

    /// Runs a task.
    pub(crate) fn spawn(&self, task: Task) {
        match self {
            Self::Custom(spawn) => spawn(task),
            #[cfg(feature = "tokio")]
            Self::Tokio(runtime) => drop(runtime.spawn(task)),
            Self::Thread(thread) => thread.spawn(task),
        }
    }
}

/// A thread that polls tasks.
#[derive(Default)]
pub(crate) struct OwnThread {
    threads: Threads,
    started: Mutex<Option<UnboundedSender<Task>>>,
}

impl OwnThread {
    fn spawn(&self, task: Task) {
        let mut place = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        let unsent = match &*place {
            Some(tasks) => match tasks.unbounded_send(task) {
                Ok(()) => return,
                // The thread has ended.
                Err(unsent) => unsent.into_inner(),
            },
            None => task,
        };
        let (tasks, coming) = unbounded();
        let _ = tasks.unbounded_send(unsent);
        let run = Box::new(move || run(coming));
        match self.threads.start("dunlin-service", run) {
            Ok(()) => *place = Some(tasks),
            // A thread that waits for the task sees that it was dropped.
            Err(_) => *place = None,
        }
    }
}

/// Runs arriving tasks until no more can arrive and all have ended.
fn run(coming: UnboundedReceiver<Task>) {
    let mut coming = Some(coming);
    let mut running = FuturesUnordered::new();
    block_on(poll_fn(|context| {
        while let Some(tasks) = &mut coming {
            match tasks.poll_next_unpin(context) {
                Poll::Ready(Some(task)) => running.push(task),
                Poll::Ready(None) => coming = None,
                Poll::Pending => break,
            }
        }
        while let Poll::Ready(Some(())) = running.poll_next_unpin(context) {}
        match coming.is_none() && running.is_empty() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }));
}

/// Maximum time between two polls of a waiting thread when there is no wake-up.
const LONG: Duration = Duration::from_secs(3600);

/// Wakes a thread that waits for a future. What the thread does while it polls may also sleep and be woken, so wake-ups
/// for the future are recorded separately.
struct Notify {
    woken: AtomicBool,
    thread: Waker,
    /// The number of the simulated thread; zero for a real one.
    simulated: usize,
}

impl Notify {
    /// Whether the thread itself wakes the future: it is polling then, and sees the flag before it sleeps. A simulated
    /// thread that is woken would also not rest the next time it polls in vain for an event that only time brings.
    fn is_here(&self) -> bool {
        self.simulated != 0 && self.simulated == thread::simulated_number()
    }
}

impl Wake for Notify {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.woken.swap(true, Ordering::AcqRel) && !self.is_here() {
            self.thread.wake_by_ref();
        }
    }
}

/// Waits for a future on the calling thread.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let notify = Arc::new(Notify {
        woken: AtomicBool::new(false),
        thread: thread::waker(),
        simulated: thread::simulated_number(),
    });
    let waker = Waker::from(Arc::clone(&notify));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        while !notify.woken.swap(false, Ordering::AcqRel) {
            thread::park(LONG);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_of_its_own_runs_tasks_together() {
        let tasks = Tasks::Thread(Arc::default());
        let (first, second) = (
            futures_channel::oneshot::channel(),
            futures_channel::oneshot::channel(),
        );
        let (tell, told) = std::sync::mpsc::channel();
        tasks.spawn(Box::pin(async move {
            let number: u32 = first.1.await.unwrap();
            second.0.send(number + 1).unwrap();
        }));
        tasks.spawn(Box::pin(async move {
            first.0.send(1).unwrap();
            tell.send(second.1.await.unwrap()).unwrap();
        }));
        assert_eq!(told.recv().unwrap(), 2);
    }
}
