//! The worker pool: handlers that take longer than a poller can wait for.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender};
use dunlin_verbs::thread::Running;

use super::connection::{execute, Outcome};
use super::handler::{Exporter, HandlerFunction, Limits, Request, Responder};
use crate::channel::buffers::Bytes;
use crate::HandlerId;

/// Calls that wait for a worker, at most, and bytes of their requests.
const QUEUED_JOBS: usize = 4096;
const QUEUED_BYTES: usize = 256 << 20;

/// A call for a worker.
pub(super) struct Job {
    pub(super) poller: usize,
    pub(super) connection: u64,
    pub(super) call: u64,
    pub(super) handler: HandlerId,
    pub(super) function: Arc<HandlerFunction>,
    pub(super) payload: Box<dyn Bytes>,
    pub(super) exporter: Box<dyn Exporter>,
    pub(super) eager_bytes: usize,
    pub(super) longest: usize,
}

/// A call that a worker has finished.
pub(super) struct Finished {
    pub(super) connection: u64,
    pub(super) call: u64,
    pub(super) outcome: Outcome,
}

/// The way to the workers.
#[derive(Clone)]
pub(super) struct WorkerQueue {
    jobs: Sender<Task>,
    bytes: Arc<AtomicUsize>,
    closed: Arc<AtomicBool>,
}

/// What a worker takes: a job, or that it is to look whether it should end.
type Task = Option<(Job, Held)>;

/// The bytes of a queued request, counted until a worker has it.
struct Held {
    bytes: usize,
    of: Arc<AtomicUsize>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.of.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl WorkerQueue {
    /// Takes a job unless the queue is full: of jobs, or of bytes.
    pub(super) fn offer(&self, job: Job) -> bool {
        let bytes = job.payload.bytes().len();
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let held = Held {
            bytes,
            of: Arc::clone(&self.bytes),
        };
        // A request that is alone is taken however long it is.
        (before == 0 || before + bytes <= QUEUED_BYTES)
            && self.jobs.try_send(Some((job, held))).is_ok()
    }

    /// Has each of so many workers end after the job that it is at; nobody does those that wait.
    pub(super) fn close(&self, workers: usize) {
        self.closed.store(true, Ordering::Release);
        for _ in 0..workers {
            // Where there is no room, there are jobs enough to wake all.
            let _ = self.jobs.try_send(None);
        }
    }
}

/// Starts `count` workers that hand what they finish to `deliver`, with the number of the poller it belongs to. They
/// end when the last queue is dropped and all jobs are done, or at [`WorkerQueue::close`].
pub(super) fn start(
    count: usize,
    deliver: impl Fn(usize, Finished) + Send + Sync + 'static,
) -> std::io::Result<(WorkerQueue, Vec<Running>)> {
    let (jobs, queue) = crossbeam_channel::bounded(QUEUED_JOBS);
    let deliver = Arc::new(deliver);
    let closed = Arc::new(AtomicBool::new(false));
    let threads = (0..count)
        .map(|i| {
            let queue = queue.clone();
            let deliver = Arc::clone(&deliver);
            let closed = Arc::clone(&closed);
            let name = format!("dunlin-worker-{i}");
            Running::start(name, move || work(&queue, &closed, deliver.as_ref()))
        })
        .collect::<Result<_, _>>()?;
    let bytes = Arc::default();
    let queue = WorkerQueue {
        jobs,
        bytes,
        closed,
    };
    Ok((queue, threads))
}

fn work(
    queue: &Receiver<Task>,
    closed: &AtomicBool,
    deliver: &(impl Fn(usize, Finished) + ?Sized),
) {
    for task in queue {
        if closed.load(Ordering::Acquire) {
            return;
        }
        let Some((job, held)) = task else { continue };
        drop(held);
        let limits = Limits {
            eager: job.eager_bytes,
            longest: job.longest,
        };
        let mut responder = Responder::new(&mut [], &limits, job.exporter.as_ref());
        let request = Request {
            handler: job.handler,
            payload: job.payload.bytes(),
            connection: job.connection,
        };
        let ended = execute(job.function.as_ref(), &request, &mut responder);
        let outcome = Outcome::new(ended, responder.elsewhere());
        let finished = Finished {
            connection: job.connection,
            call: job.call,
            outcome,
        };
        deliver(job.poller, finished);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::channel::buffers::BytesMut;
    use crate::server::handler::HandlerError;
    use std::sync::mpsc;

    struct NoMemory;

    impl Exporter for NoMemory {
        fn export(&self, _: usize) -> Result<Box<dyn BytesMut>, HandlerError> {
            Err(HandlerError::new(0, "none"))
        }
    }

    #[test]
    fn waiting_requests_are_bounded_by_their_bytes() {
        let (delivered, deliveries) = mpsc::channel();
        let delivered = std::sync::Mutex::new(delivered);
        let deliver = move |_, finished: Finished| {
            let _ = delivered.lock().unwrap().send(finished.call);
        };
        let (queue, threads) = start(1, deliver).unwrap();
        let (started, starts) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let (started, released) = (
            std::sync::Mutex::new(started),
            std::sync::Mutex::new(released),
        );
        let function: Arc<HandlerFunction> = Arc::new(move |_, _| {
            let _ = started.lock().unwrap().send(());
            let _ = released.lock().unwrap().recv();
            Ok(())
        });
        let job = |call| Job {
            poller: 0,
            connection: 1,
            call,
            handler: 1,
            function: Arc::clone(&function),
            // Zeros that nobody touches cost no memory.
            payload: Box::new(vec![0; 200 << 20].into_boxed_slice()),
            exporter: Box::new(NoMemory),
            eager_bytes: 0,
            longest: 0,
        };
        assert!(queue.offer(job(1)), "alone");
        starts.recv().unwrap();
        assert!(queue.offer(job(2)), "the first does not wait any more");
        assert!(!queue.offer(job(3)), "200 MiB wait already");
        release.send(()).unwrap();
        assert_eq!(deliveries.recv().unwrap(), 1);
        starts.recv().unwrap();
        assert!(queue.offer(job(4)), "nothing waits");
        drop((queue, release));
        assert_eq!(deliveries.iter().take(2).collect::<Vec<_>>(), [2, 4]);
        for thread in threads {
            thread.join().unwrap();
        }
    }
}
