//! The threads that serve the clients of one kind of channel: pollers, each with its own clients on a polling thread,
//! and workers. The pollers of rings start with the server, those of datagrams and pools with the first such client.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use dunlin_verbs::thread::{self, Running};
use dunlin_verbs::{Aborter, CompletionChannel, Device, VerbsError};

use super::connection::Context;
use super::dispatch::{Deliver, Dispatch};
use super::mailbox::{Mail, Mailbox};
use super::polling::{PollingThreads, Served};
use super::rounds::Rounds;
use super::service::ServiceSetup;
use super::statistics::{Counters, ServerStatistics};
use super::workers::WorkerQueue;
use crate::error::ServeError;

/// The part of a poller that other threads use.
pub(super) trait HasMailbox: Send + Sync + 'static {
    /// An accepted client.
    type Newcomer: Send + 'static;
    /// What the poller sleeps on.
    type Wake: CompletionChannel;
    /// The poller's mailbox.
    fn mailbox(&self) -> &Mailbox<Self::Newcomer, Self::Wake>;
}

impl<N: Send + 'static, W: CompletionChannel> HasMailbox for Mailbox<N, W> {
    type Newcomer = N;
    type Wake = W;

    fn mailbox(&self) -> &Self {
        self
    }
}

/// The threads of a service, independent of the kind of channel.
pub(super) trait Threads {
    /// Number of clients at present.
    fn connections(&self) -> usize;
    /// Adds the threads' counters.
    fn count(&self, sum: &mut ServerStatistics);
    /// Stops taking requests; the pollers end when what was taken is answered.
    fn drain(&self);
    /// Whether all pollers have ended.
    fn is_over(&self) -> bool;
    /// Tells all threads to end without waiting for answers.
    fn stop(&self);
    /// Abandons the polling thread with this number, which is stuck in a handler, with all that it uses; its clients'
    /// connections end.
    fn abandon(&self, index: usize);
    /// Waits until `deadline` for the workers, which were told to end. Those that are still in a handler then are
    /// abandoned.
    fn end_workers(&self, deadline: Instant);
}

/// A poller that is to start: the part that other threads use, and the function that makes the rest on its thread.
pub(super) type NewPoller<H, R> = (Arc<H>, Box<dyn FnOnce(Context) -> R + Send>);

/// All threads that serve one kind of a device's clients.
pub(super) struct ThreadGroup<H, D: Device> {
    /// The polling threads.
    polling: Arc<PollingThreads<D>>,
    started: OnceLock<Started<H>>,
    /// The workers; locked while the threads are started.
    working: Mutex<Working>,
    /// Number of pollers that have not ended.
    served: Arc<AtomicUsize>,
}

/// The workers.
#[derive(Default)]
struct Working {
    workers: Vec<Running>,
    jobs: Option<WorkerQueue>,
    /// Whether the server ends: nothing is started any more, since nothing would end it.
    over: bool,
}

/// The running pollers.
pub(super) struct Started<H> {
    pub(super) pollers: Vec<Arc<H>>,
    counters: Vec<Arc<Counters>>,
    arrivals: Arc<Arrivals>,
}

/// Number of clients of a device's service that are being accepted. Clients that come at the same moment share the
/// places that are left.
#[derive(Default)]
pub(super) struct Arrivals(Mutex<usize>);

/// A client's place among them, which is released unless the client was adopted.
pub(super) struct Arrival<'a>(&'a Arrivals);

impl Arrivals {
    /// Takes a place for one more, if together with those `there` they are fewer than `most`.
    pub(super) fn begin(&self, most: usize, there: impl Fn() -> usize) -> Option<Arrival<'_>> {
        let mut count = thread::lock(&self.0);
        // Under the lock, so that a client that is adopted meanwhile is counted exactly once.
        if there() + *count >= most {
            return None;
        }
        *count += 1;
        Some(Arrival(self))
    }

    /// Moves one of them to the count of those that are there.
    fn adopted(&self, count_there: impl FnOnce()) {
        let mut count = thread::lock(&self.0);
        *count -= 1;
        count_there();
    }
}

impl Arrival<'_> {
    /// Called when the client was adopted and counted as being there.
    pub(super) fn was_adopted(self) {
        std::mem::forget(self);
    }
}

impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        *thread::lock(&self.0 .0) -= 1;
    }
}

impl<H: HasMailbox> Started<H> {
    /// Returns the poller with the fewest clients, and its number.
    ///
    /// # Errors
    /// If there is none.
    pub(super) fn least(&self) -> Result<(usize, &Arc<H>), VerbsError> {
        self.least_by(|_| ())
    }

    /// Returns the poller with the smallest key, which is determined from its number; among equals the one with the
    /// fewest clients.
    ///
    /// # Errors
    /// If there is none.
    pub(super) fn least_by<K: Ord>(
        &self,
        load: impl Fn(usize) -> K,
    ) -> Result<(usize, &Arc<H>), VerbsError> {
        let all = self.pollers.iter().enumerate();
        let clients = |poller: &H| poller.mailbox().connections.load(Ordering::Relaxed);
        all.min_by_key(|(index, poller)| (load(*index), clients(poller)))
            .ok_or_else(|| VerbsError::Peer("the server has no pollers".into()))
    }

    /// Gives an accepted client to the poller with this number. `aborter` is for the client's queue pair, if it has one
    /// of its own.
    pub(super) fn adopt(
        &self,
        poller: usize,
        connection: u64,
        newcomer: H::Newcomer,
        aborter: Option<Aborter>,
    ) {
        self.counters[poller].accepted();
        let mailbox = self.pollers[poller].mailbox();
        mailbox.owns(connection, aborter);
        self.arrivals.adopted(|| {
            mailbox.connections.fetch_add(1, Ordering::Relaxed);
        });
        mailbox.send(Mail::Adopt(Box::new(newcomer)));
    }
}

impl<H: HasMailbox, D: Device> ThreadGroup<H, D> {
    pub(super) fn new(polling: Arc<PollingThreads<D>>) -> Self {
        Self {
            polling,
            started: OnceLock::new(),
            working: Mutex::default(),
            served: Arc::default(),
        }
    }

    pub(super) fn device(&self) -> &D {
        &self.polling.device
    }

    pub(super) fn setup(&self) -> &ServiceSetup {
        &self.polling.setup
    }

    /// Returns the pollers, which are started if necessary: `new_poller` makes that of each polling thread from the
    /// thread's number and what it sleeps on. Also starts workers, if a handler needs them or anything else does
    /// (`workers_anyway`).
    ///
    /// # Errors
    /// If one of them cannot be made.
    pub(super) fn started<R: Rounds + 'static>(
        &self,
        workers_anyway: bool,
        new_poller: impl Fn(usize, D::CompletionChannel) -> Result<NewPoller<H, R>, VerbsError>,
    ) -> Result<&Started<H>, ServeError> {
        if let Some(started) = self.started.get() {
            return Ok(started);
        }
        // Other clients that come now wait for the lock, and so does the thread that ends the server.
        thread::hold(|| self.start(workers_anyway, new_poller))
    }

    #[cold]
    fn start<R: Rounds + 'static>(
        &self,
        workers_anyway: bool,
        new_poller: impl Fn(usize, D::CompletionChannel) -> Result<NewPoller<H, R>, VerbsError>,
    ) -> Result<&Started<H>, ServeError> {
        let mut threads = thread::lock(&self.working);
        if let Some(started) = self.started.get() {
            return Ok(started);
        }
        if threads.over {
            return Err(ServeError::Device(VerbsError::Peer(
                "the server is shutting down".into(),
            )));
        }
        let setup = self.setup();
        let new = |index| new_poller(index, self.polling.wake(index));
        let new_pollers = (0..setup.pollers).map(new).collect::<Result<Vec<_>, _>>()?;
        let pollers: Vec<Arc<H>> = new_pollers.iter().map(|(h, _)| Arc::clone(h)).collect();
        let mut queue = None;
        if workers_anyway || setup.handlers.needs_workers(setup.executor.is_some()) {
            let (jobs, workers) = self.polling.start_workers()?;
            threads.jobs = Some(jobs.clone());
            threads.workers = workers;
            queue = Some(jobs);
        }
        let targets = pollers.clone();
        let deliver: Arc<Deliver> = Arc::new(move |poller: usize, finished| {
            targets[poller].mailbox().send(Mail::Finished(finished));
        });
        let dispatch = Dispatch::new(queue, setup.executor.clone(), deliver);
        let counters: Vec<Arc<Counters>> = pollers.iter().map(|_| Arc::default()).collect();
        for (index, (_, inside)) in new_pollers.into_iter().enumerate() {
            let context = Context {
                handlers: setup.handlers.clone(),
                dispatch: dispatch.clone(),
                counters: Arc::clone(&counters[index]),
            };
            let make = Box::new(move || inside(context));
            let served = Served::begin(&self.served);
            let served = self.polling.serve(index, make, served);
            served.inspect_err(|_| {
                // The next client that needs them gets new ones.
                pollers.iter().for_each(|poller| poller.mailbox().end());
            })?;
        }
        let arrivals = Arc::clone(self.polling.arrivals());
        Ok(self.started.get_or_init(|| Started {
            pollers,
            counters,
            arrivals,
        }))
    }

    /// The running pollers; none before the first client.
    fn pollers(&self) -> impl Iterator<Item = &Arc<H>> {
        self.started.get().into_iter().flat_map(|s| &s.pollers)
    }
}

impl<H: HasMailbox, D: Device> Threads for ThreadGroup<H, D> {
    fn connections(&self) -> usize {
        let counts = self
            .pollers()
            .map(|poller| poller.mailbox().connections.load(Ordering::Relaxed));
        counts.sum()
    }

    fn count(&self, sum: &mut ServerStatistics) {
        for counters in self.started.get().into_iter().flat_map(|s| &s.counters) {
            counters.add_to(sum);
        }
    }

    fn drain(&self) {
        for poller in self.pollers() {
            poller.mailbox().drain();
        }
    }

    fn is_over(&self) -> bool {
        self.served.load(Ordering::Acquire) == 0
    }

    fn stop(&self) {
        let jobs = {
            let mut threads = thread::lock(&self.working);
            threads.over = true;
            threads.jobs.clone()
        };
        // Without the lock: clients that were not adopted yet end with the pollers.
        for poller in self.pollers() {
            poller.mailbox().end();
        }
        if let Some(jobs) = jobs {
            jobs.close();
        }
    }

    fn abandon(&self, index: usize) {
        if let Some(poller) = self.pollers().nth(index) {
            poller.mailbox().abandon();
        }
    }

    fn end_workers(&self, deadline: Instant) {
        let (workers, _jobs) = {
            let mut held = thread::lock(&self.working);
            (std::mem::take(&mut held.workers), held.jobs.take())
        };
        for thread in workers {
            if !wait_for(thread, deadline) {
                tracing::error!("a worker is stuck in a handler: its thread is abandoned");
            }
        }
    }
}

/// Waits for the end of a thread. Returns `false` if it is still running.
pub(super) fn wait_for(thread: Running, deadline: Instant) -> bool {
    let ended = thread.join_until(deadline);
    if matches!(ended, Some(Err(_))) {
        tracing::error!("a server thread panicked");
    }
    ended.is_some()
}

/// The error for a client whose arrival required a start that failed.
pub(super) fn to_client(error: ServeError) -> VerbsError {
    match error {
        ServeError::Device(error) => error,
        ServeError::Thread(source) => VerbsError::System {
            call: "starting a thread",
            source,
        },
        other => VerbsError::Peer(other.to_string()),
    }
}
