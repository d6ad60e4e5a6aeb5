//! The worker pool: threads for handlers that take too long for a poller, and for async handlers if the user has set no
//! executor.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Wake, Waker};

use crossbeam_channel::{Receiver, Sender, TryRecvError};
use dunlin_verbs::thread::{self, Running};

use super::answering::Answering;
use super::deferred::{OwnedRequest, OwnedResponder};
use super::handler::HandlerFunction;
use crate::doze::LONGEST_SLEEP;

/// Maximum number of calls that wait for a worker.
const QUEUED_JOBS: usize = 4096;

/// A call for a worker.
pub(super) struct Job {
    pub(super) function: Arc<HandlerFunction>,
    pub(super) request: OwnedRequest,
    pub(super) responder: OwnedResponder,
}

/// What a worker takes from the queue.
enum Task {
    Job(Job),
    Future(Arc<Spawned>),
    /// Wakes a worker to check whether it should end.
    Look,
}

/// The sending end of the queue.
#[derive(Clone)]
struct Entrance {
    tasks: Sender<Task>,
    resting: Arc<Resting>,
}

impl Entrance {
    /// Sends a task; without workers the task is dropped.
    fn send(&self, task: Task) {
        if self.tasks.send(task).is_ok() {
            self.resting.wake_one();
        }
    }
}

/// Workers of a simulated host that wait for tasks. Real threads block on the queue itself, which a simulated thread
/// cannot: it would stop all others.
#[derive(Default)]
struct Resting {
    wakers: Mutex<VecDeque<Waker>>,
    /// The only thing that real threads check.
    are_some: AtomicBool,
}

impl Resting {
    #[inline]
    fn wake_one(&self) {
        if self.are_some.load(Ordering::Relaxed) {
            if let Some(waker) = self.with(VecDeque::pop_front) {
                waker.wake();
            }
        }
    }

    fn with<T>(&self, change: impl FnOnce(&mut VecDeque<Waker>) -> T) -> T {
        let mut wakers = thread::lock(&self.wakers);
        let changed = change(&mut wakers);
        self.are_some.store(!wakers.is_empty(), Ordering::Relaxed);
        changed
    }
}

/// Takes the next task; `None` if all senders are gone.
fn next_task(queue: &Receiver<Task>, resting: &Resting) -> Option<Task> {
    if !thread::is_simulated() {
        return queue.recv().ok();
    }
    let waker = thread::waker();
    loop {
        match queue.try_recv() {
            Ok(task) => return Some(task),
            Err(TryRecvError::Disconnected) => return None,
            Err(TryRecvError::Empty) => {}
        }
        // A sender runs before this thread registers or while it is parked, never between the two.
        resting.with(|wakers| wakers.push_back(waker.clone()));
        // The loss of the last sender does not wake.
        thread::park(LONGEST_SLEEP);
        resting.with(|wakers| wakers.retain(|other| !other.will_wake(&waker)));
    }
}

/// The way to the workers.
#[derive(Clone)]
pub(super) struct WorkerQueue {
    tasks: Entrance,
    /// Number of jobs that wait.
    waiting: Arc<AtomicUsize>,
    closed: Arc<Closed>,
}

/// The sending end of the queue for the workers themselves, set when they are to end: each that ends wakes the next.
/// Before that none of them may hold it, because they also end when all other senders are gone.
type Closed = OnceLock<Entrance>;

impl WorkerQueue {
    /// Takes a job, unless too many wait: then it is returned.
    pub(super) fn offer(&self, job: Job) -> Option<Job> {
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= QUEUED_JOBS {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return Some(job);
        }
        // Without workers the server is ending: the job is dropped like one that waits, and its caller gets the error
        // that the connection is lost, not that there is no room.
        self.tasks.send(Task::Job(job));
        None
    }

    /// Runs a future, now and whenever it is woken.
    pub(super) fn spawn(&self, answering: Answering) {
        let spawned = Spawned {
            running: Mutex::new(Some(answering)),
            state: AtomicU8::new(IDLE),
            tasks: self.tasks.clone(),
        };
        Arc::new(spawned).wake();
    }

    /// Makes each worker end after its current task; waiting tasks are not run.
    pub(super) fn close(&self) {
        let tasks = self.closed.get_or_init(|| self.tasks.clone());
        tasks.send(Task::Look);
    }
}

/// States of a future: waiting to be woken, waiting for a worker, being polled, and woken while being polled.
const IDLE: u8 = 0;
const QUEUED: u8 = 1;
const POLLED: u8 = 2;
const WOKEN: u8 = 3;

/// The future of an async handler that workers run, one of them at a time.
struct Spawned {
    /// `None` when it has ended.
    running: Mutex<Option<Answering>>,
    state: AtomicU8,
    tasks: Entrance,
}

impl Wake for Spawned {
    fn wake(self: Arc<Self>) {
        let woken = |state| match state {
            IDLE => Some(QUEUED),
            // The worker that polls it will poll again.
            POLLED => Some(WOKEN),
            _ => None,
        };
        let update = (Ordering::AcqRel, Ordering::Acquire);
        if self.state.fetch_update(update.0, update.1, woken) == Ok(IDLE) {
            self.queue();
        }
    }
}

impl Spawned {
    fn queue(self: Arc<Self>) {
        let tasks = self.tasks.clone();
        // Without workers nothing runs it: it is dropped, which ends the call for its caller.
        tasks.send(Task::Future(self));
    }

    fn run(self: &Arc<Self>) {
        // A wake-up from now on requires another poll.
        self.state.store(POLLED, Ordering::Release);
        let mut running = thread::lock(&self.running);
        let Some(answering) = running.as_mut() else {
            return;
        };
        let waker = Waker::from(Arc::clone(self));
        let mut context = Context::from_waker(&waker);
        if Pin::new(answering).poll(&mut context).is_ready() {
            *running = None;
            return;
        }
        drop(running);
        let rests = self
            .state
            .compare_exchange(POLLED, IDLE, Ordering::AcqRel, Ordering::Acquire);
        if rests.is_err() {
            self.state.store(QUEUED, Ordering::Release);
            Arc::clone(self).queue();
        }
    }
}

/// Starts `count` workers, each by `spawn` with its name. They end when the last queue handle is dropped and all tasks
/// are done, or at [`WorkerQueue::close`].
pub(super) fn start(
    count: usize,
    spawn: impl Fn(String, Box<dyn FnOnce() + Send>) -> std::io::Result<Running>,
) -> std::io::Result<(WorkerQueue, Vec<Running>)> {
    let (tasks, queue) = crossbeam_channel::unbounded();
    let resting = Arc::<Resting>::default();
    let waiting = Arc::<AtomicUsize>::default();
    let closed = Arc::<Closed>::default();
    let threads = (0..count)
        .map(|i| {
            let (queue, resting) = (queue.clone(), Arc::clone(&resting));
            let (waiting, closed) = (Arc::clone(&waiting), Arc::clone(&closed));
            let run = move || work(&queue, &resting, &waiting, &closed);
            spawn(format!("dunlin-worker-{i}"), Box::new(run))
        })
        .collect::<Result<_, _>>()?;
    let queue = WorkerQueue {
        tasks: Entrance { tasks, resting },
        waiting,
        closed,
    };
    Ok((queue, threads))
}

fn work(queue: &Receiver<Task>, resting: &Resting, waiting: &AtomicUsize, closed: &Closed) {
    while let Some(task) = next_task(queue, resting) {
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
    // Futures hold the sending end of the queue, so the queue that they wait in must not keep them.
    while queue.try_recv().is_ok() {}
    // What was dropped may have been the task that would have woken another worker.
    if let Some(tasks) = closed.get() {
        tasks.send(Task::Look);
    }
}

fn run(job: Job) {
    let Job {
        function,
        mut request,
        responder,
    } = job;
    request.release();
    // The caller still waits for the call to end, but no longer wants it executed.
    if responder.is_cancelled() {
        return responder.expire(false);
    }
    responder.answer(|reply| function(&request.lend(), reply));
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    /// Far longer than a thread needs to end, even if other threads occupy the processors.
    const PATIENCE: Duration = Duration::from_secs(30);

    #[test]
    fn all_workers_end_when_the_queue_is_closed() {
        for round in 0..50 {
            let (queue, threads) = super::start(6, super::Running::start).unwrap();
            queue.close();
            let deadline = Instant::now() + PATIENCE;
            for thread in threads {
                let ended = thread.join_until(deadline);
                assert!(ended.is_some(), "round {round}: a worker goes on");
            }
            // The sending end still exists: they have not ended because it was dropped.
            drop(queue);
        }
    }
}
