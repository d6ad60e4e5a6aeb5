//! The worker pool: threads for handlers that take longer than a poller can wait for, and for async handlers where the
//! user has named no executor.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Wake, Waker};

use crossbeam_channel::{Receiver, Sender};
use dunlin_verbs::thread::Running;

use super::answering::Answering;
use super::deferred::{OwnedRequest, OwnedResponder};
use super::handler::HandlerFunction;

/// Calls that wait for a worker, at most.
const QUEUED_JOBS: usize = 4096;

/// A call for a worker.
pub(super) struct Job {
    pub(super) function: Arc<HandlerFunction>,
    pub(super) request: OwnedRequest,
    pub(super) responder: OwnedResponder,
}

/// What a worker takes.
enum Task {
    Job(Job),
    Future(Arc<Spawned>),
    /// To look whether it should end.
    Look,
}

/// The way to the workers.
#[derive(Clone)]
pub(super) struct WorkerQueue {
    tasks: Sender<Task>,
    /// Jobs that wait.
    waiting: Arc<AtomicUsize>,
    closed: Arc<Closed>,
}

/// The way to the workers again, set when they are to end: each that ends tells the next. Before, none of them may have
/// it, as they also end when nobody else has.
type Closed = OnceLock<Sender<Task>>;

impl WorkerQueue {
    /// Takes a job, unless too many wait: then it is given back.
    pub(super) fn offer(&self, job: Job) -> Option<Job> {
        if self.waiting.fetch_add(1, Ordering::Relaxed) < QUEUED_JOBS {
            match self.tasks.send(Task::Job(job)) {
                Ok(()) => return None,
                // There are no workers any more: the server has ended.
                Err(error) => {
                    self.waiting.fetch_sub(1, Ordering::Relaxed);
                    return match error.into_inner() {
                        Task::Job(job) => Some(job),
                        _ => None,
                    };
                }
            }
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        Some(job)
    }

    /// Runs a future, whenever it is woken.
    pub(super) fn spawn(&self, answering: Answering) {
        let spawned = Spawned {
            running: Mutex::new(Some(answering)),
            queued: AtomicBool::new(false),
            tasks: self.tasks.clone(),
        };
        Arc::new(spawned).wake();
    }

    /// Has each worker end after what it is at; nobody does what waits.
    pub(super) fn close(&self) {
        let tasks = self.closed.get_or_init(|| self.tasks.clone());
        let _ = tasks.send(Task::Look);
    }
}

/// The future of an async handler that workers run.
struct Spawned {
    /// `None` when it has ended.
    running: Mutex<Option<Answering>>,
    /// It waits for a worker.
    queued: AtomicBool,
    tasks: Sender<Task>,
}

impl Wake for Spawned {
    fn wake(self: Arc<Self>) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            let tasks = self.tasks.clone();
            // Without workers nobody runs it: it is dropped, which tells its caller.
            let _ = tasks.send(Task::Future(self));
        }
    }
}

impl Spawned {
    fn run(self: &Arc<Self>) {
        // Who wakes it from now on wants another look.
        self.queued.store(false, Ordering::Release);
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(answering) = running.as_mut() else {
            return;
        };
        let waker = Waker::from(Arc::clone(self));
        let mut context = Context::from_waker(&waker);
        if Pin::new(answering).poll(&mut context).is_ready() {
            *running = None;
        }
    }
}

/// Starts `count` workers. They end when the last queue is dropped and all is done, or at [`WorkerQueue::close`].
pub(super) fn start(count: usize) -> std::io::Result<(WorkerQueue, Vec<Running>)> {
    let (tasks, queue) = crossbeam_channel::unbounded();
    let waiting = Arc::<AtomicUsize>::default();
    let closed = Arc::<Closed>::default();
    let threads = (0..count)
        .map(|i| {
            let queue = queue.clone();
            let (waiting, closed) = (Arc::clone(&waiting), Arc::clone(&closed));
            let name = format!("dunlin-worker-{i}");
            Running::start(name, move || work(&queue, &waiting, &closed))
        })
        .collect::<Result<_, _>>()?;
    let queue = WorkerQueue {
        tasks,
        waiting,
        closed,
    };
    Ok((queue, threads))
}

fn work(queue: &Receiver<Task>, waiting: &AtomicUsize, closed: &Closed) {
    for task in queue {
        if matches!(task, Task::Job(_)) {
            waiting.fetch_sub(1, Ordering::Relaxed);
        }
        if closed.get().is_some() {
            break;
        }
        match task {
            Task::Job(job) => run(job),
            Task::Future(spawned) => spawned.run(),
            Task::Look => {}
        }
    }
    // Futures hold the way into the queue, so what they wait in must not hold them.
    while queue.try_recv().is_ok() {}
    // What was dropped may have been what another worker would have woken by.
    if let Some(tasks) = closed.get() {
        let _ = tasks.send(Task::Look);
    }
}

fn run(job: Job) {
    let Job {
        function,
        mut request,
        responder,
    } = job;
    request.release();
    // The caller still waits for the call to end, but not for its effect.
    if responder.is_cancelled() {
        return responder.expire(false);
    }
    responder.answer(|reply| function(&request.lend(), reply));
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    /// Far longer than a thread needs to end, also where others keep the processors.
    const PATIENCE: Duration = Duration::from_secs(30);

    #[test]
    fn all_workers_end_when_the_queue_is_closed() {
        for round in 0..50 {
            let (queue, threads) = super::start(6).unwrap();
            queue.close();
            let deadline = Instant::now() + PATIENCE;
            for thread in threads {
                let ended = thread.join_until(deadline);
                assert!(ended.is_some(), "round {round}: a worker goes on");
            }
            // Their way in is still there: they have not ended because it was gone.
            drop(queue);
        }
    }
}
