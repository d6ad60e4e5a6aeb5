//! The worker pool: threads for handlers that take longer than a poller can wait for, and for async handlers where the
//! user has named no executor.

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

/// The way into the queue.
#[derive(Clone)]
struct Entrance {
    tasks: Sender<Task>,
    resting: Arc<Resting>,
}

impl Entrance {
    /// Without workers the task is dropped.
    fn send(&self, task: Task) {
        if self.tasks.send(task).is_ok() {
            self.resting.wake_one();
        }
    }
}

/// Workers of a simulated host that wait for tasks. Those of the system wait in the queue itself, which a simulated
/// thread cannot: all others would stand still with it.
#[derive(Default)]
struct Resting {
    wakers: Mutex<VecDeque<Waker>>,
    /// All that threads of the system ask.
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

/// The next task; `None`: nobody can send one any more.
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
        // Who sends runs before this thread or while it is parked, never between the two.
        resting.with(|wakers| wakers.push_back(waker.clone()));
        // That nobody can send any more is not told.
        thread::park(LONGEST_SLEEP);
        resting.with(|wakers| wakers.retain(|other| !other.will_wake(&waker)));
    }
}

/// The way to the workers.
#[derive(Clone)]
pub(super) struct WorkerQueue {
    tasks: Entrance,
    /// Jobs that wait.
    waiting: Arc<AtomicUsize>,
    closed: Arc<Closed>,
}

/// The way to the workers again, set when they are to end: each that ends tells the next. Before, none of them may have
/// it, as they also end when nobody else has.
type Closed = OnceLock<Entrance>;

impl WorkerQueue {
    /// Takes a job, unless too many wait: then it is given back.
    pub(super) fn offer(&self, job: Job) -> Option<Job> {
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= QUEUED_JOBS {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return Some(job);
        }
        // Without workers the server is ending: the job is dropped as one that waits is, and its caller hears that the
        // connection is lost, not that there is no room.
        self.tasks.send(Task::Job(job));
        None
    }

    /// Runs a future, whenever it is woken.
    pub(super) fn spawn(&self, answering: Answering) {
        let spawned = Spawned {
            running: Mutex::new(Some(answering)),
            state: AtomicU8::new(IDLE),
            tasks: self.tasks.clone(),
        };
        Arc::new(spawned).wake();
    }

    /// Has each worker end after what it is at; nobody does what waits.
    pub(super) fn close(&self) {
        let tasks = self.closed.get_or_init(|| self.tasks.clone());
        tasks.send(Task::Look);
    }
}

/// States of a future: it waits to be woken, for a worker, or is polled; and it was woken while it was.
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
            // Who polls it sees to that.
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
        // Without workers nobody runs it: it is dropped, which tells its caller.
        tasks.send(Task::Future(self));
    }

    fn run(self: &Arc<Self>) {
        // Who wakes it from now on wants another look.
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

/// Starts `count` workers, each by `spawn` with its name. They end when the last queue is dropped and all is done, or
/// at [`WorkerQueue::close`].
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
    // Futures hold the way into the queue, so what they wait in must not hold them.
    while queue.try_recv().is_ok() {}
    // What was dropped may have been what another worker would have woken by.
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
            let (queue, threads) = super::start(6, super::Running::start).unwrap();
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
