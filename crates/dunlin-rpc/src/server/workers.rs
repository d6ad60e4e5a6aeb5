//! The worker pool: handlers that take longer than a poller can wait for.

use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender};

use super::connection::{execute, Outcome};
use super::handler::{Exporter, HandlerFunction, Request, Responder};
use crate::channel::buffers::Bytes;
use crate::HandlerId;

/// Calls that wait for a worker, at most.
const QUEUED_JOBS: usize = 4096;

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
    jobs: Sender<Job>,
}

impl WorkerQueue {
    /// Takes a job unless the queue is full.
    pub(super) fn offer(&self, job: Job) -> bool {
        self.jobs.try_send(job).is_ok()
    }
}

/// Starts `count` workers that hand what they finish to `deliver`, with the number of the poller it belongs to. They end when the last
/// queue is dropped and all jobs are done.
pub(super) fn start(
    count: usize,
    deliver: impl Fn(usize, Finished) + Send + Sync + 'static,
) -> std::io::Result<(WorkerQueue, Vec<JoinHandle<()>>)> {
    let (jobs, queue) = crossbeam_channel::bounded(QUEUED_JOBS);
    let deliver = Arc::new(deliver);
    let threads = (0..count)
        .map(|i| {
            let queue = queue.clone();
            let deliver = Arc::clone(&deliver);
            std::thread::Builder::new()
                .name(format!("dunlin-worker-{i}"))
                .spawn(move || work(&queue, deliver.as_ref()))
        })
        .collect::<Result<_, _>>()?;
    Ok((WorkerQueue { jobs }, threads))
}

fn work(queue: &Receiver<Job>, deliver: &(impl Fn(usize, Finished) + ?Sized)) {
    for job in queue {
        let limits = (job.eager_bytes, job.longest);
        let mut responder = Responder::new(&mut [], limits, job.exporter.as_ref());
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
