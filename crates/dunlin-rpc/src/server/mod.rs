//! The server: a port, handlers by id, and the threads that poll connections and run handlers.

mod admissions;
mod answering;
mod away;
mod callbacks;
pub(crate) mod caller;
mod capture;
mod connection;
mod connection_ids;
#[cfg(all(test, not(loom)))]
mod connection_tests;
mod connections;
mod datagram;
mod deadlines;
mod deferred;
mod dispatch;
mod figures;
mod handler;
#[cfg(all(test, not(loom)))]
mod idle_tests;
mod local;
mod mailbox;
mod notifications;
mod pacing;
mod partition;
mod places;
mod poller;
mod polling;
mod pool;
mod region;
mod reports;
mod rights;
mod rounds;
mod running;
pub(crate) mod service;
mod services;
mod serving;
mod statistics;
mod thread_task;
mod threads;
mod workers;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use answering::Executor;
use dunlin_bootstrap::{AcceptorConfig, Address, Secret, ServerTls};
use handler::{Execution, HandlerTable};
use thread_task::ThreadTasks;

pub use answering::HandlerTask;
pub use callbacks::{CallableChange, CallableClient, CallableClients, CallbackServer};
pub use caller::Presence;
pub use deferred::{OwnedRequest, OwnedResponder};
pub use figures::{DeviceFigures, ServerFigures, ServerObserver, FIGURES};
pub use handler::{HandlerError, Request, Responder};
pub use local::{LocalAcceptor, LocalServer};
pub use notifications::{NextNotification, Notification, Notifications};
pub use pool::Grouping;
pub use region::{Region, RegisteredRegion};
pub use rights::{Grant, Rights, UnknownWho, Who};
pub use running::RunningServer;
pub use statistics::ServerStatistics;
pub use thread_task::{PollingThread, ThreadProgress};

use crate::admission::grouping::pace::Pace;
use crate::admission::scheduler::MAX_ACTIVE;
use crate::call::callbacks::CALLBACKS;
use crate::call::captured::CAPTURE;
use crate::call::notify::NOTIFY;
use crate::call::timeout::TIMED;
use crate::channel::upcoming::Upcoming;
use crate::client::REPORT;
use crate::config::{ChannelConfig, Datagrams, WaitMode};
use crate::error::ServeError;
use crate::HandlerId;

/// Pins the calling thread to `core`. Best effort: failures are ignored.
fn pin(core: usize) {
    let mut cores = rustix::thread::CpuSet::new();
    if core < rustix::thread::CpuSet::MAX_CPU {
        cores.set(core);
        let _ = rustix::thread::sched_setaffinity(None, &cores);
    }
}

/// Entry point for building servers.
#[derive(Debug)]
pub struct Server(());

impl Server {
    /// Builds a server on `address`, such as `dunlin://0.0.0.0:7400`; with port 0 the system chooses the port. The port
    /// is bound by [`ServerBuilder::serve`].
    ///
    /// # Errors
    /// If the address is malformed.
    pub fn bind(address: &str) -> Result<ServerBuilder, ServeError> {
        Ok(ServerBuilder {
            address: Some(address.parse()?),
            ..Self::unbound()
        })
    }

    /// Builds a server without a port, for [`ServerBuilder::serve_on`].
    pub fn unbound() -> ServerBuilder {
        ServerBuilder {
            address: None,
            handlers: HandlerTable::default(),
            refused: None,
            shows_figures: true,
            allows_capture: false,
            channel: ChannelConfig::default(),
            secret: None,
            tls: None,
            rights: None,
            device: None,
            pollers: 1,
            workers: 4,
            executor: None,
            tasks: None,
            max_connections: MAX_CONNECTIONS,
            handshake_timeout: AcceptorConfig::default().handshake_timeout,
            affinity: None,
            most_active: MAX_ACTIVE,
            datagrams: Datagrams::default(),
            grouping: Grouping::default(),
            pace: None,
            follows: None,
            regions: Vec::new(),
            callable: None,
        }
    }
}

/// Configuration of a server that is not running yet.
#[derive(Debug)]
#[must_use = "a server does nothing until serve() is called"]
pub struct ServerBuilder {
    address: Option<Address>,
    handlers: HandlerTable,
    refused: Option<ServeError>,
    shows_figures: bool,
    allows_capture: bool,
    channel: ChannelConfig,
    secret: Option<Secret>,
    tls: Option<ServerTls>,
    rights: Option<Rights>,
    device: Option<String>,
    pollers: usize,
    workers: usize,
    executor: Option<Executor>,
    tasks: Option<ThreadTasks>,
    max_connections: usize,
    handshake_timeout: Duration,
    affinity: Option<usize>,
    most_active: usize,
    datagrams: Datagrams,
    grouping: Grouping,
    pace: Option<Pace>,
    follows: Option<Address>,
    regions: Vec<Region>,
    callable: Option<CallableClients>,
}

impl ServerBuilder {
    /// Grants a region of memory to clients, which attach it by name. It is reachable over all devices of the server,
    /// as described for [`Region`]. Over shared memory a client keeps the grant until its process ends ([`Region`]).
    pub fn region(mut self, region: &Region) -> Self {
        self.regions.push(region.clone());
        self
    }

    /// Lets the server call clients that offer handlers ([`ServerBuilder::serve_to`]): they are in this list while they
    /// are connected. Without a list such clients are refused. Each server needs a list of its own.
    pub fn callable_clients(mut self, clients: &CallableClients) -> Self {
        self.callable = Some(clients.clone());
        self
    }

    /// Adds a handler that runs on the polling thread, between two polls. Suitable for a few microseconds of work.
    ///
    /// While it runs, its poller serves no other client, also while it waits for a call to another server. Calls from
    /// it to its own server fail with [`crate::CallError::OwnServer`], with any client: they would wait for themselves.
    /// [`ServerBuilder::handle_on_workers`] has no such limits.
    pub fn handle<F>(self, id: HandlerId, handler: F) -> Self
    where
        F: Fn(&Request<'_>, &mut Responder<'_>) -> Result<(), HandlerError> + Send + Sync + 'static,
    {
        self.insert(id, Execution::Inline(Arc::new(handler)))
    }

    /// Calls `prefetch` with requests that arrived together, before the handler of the first one runs. It can prefetch
    /// the memory that all of them will access ([`dunlin_verbs::prefetch_to_read`]), so that the cache misses overlap.
    /// It is called on the polling thread, at most once per request, and not at all when requests arrive one by one or
    /// the preset has no batches. It must be quick, and nothing may depend on it.
    pub fn prefetch<F>(mut self, prefetch: F) -> Self
    where
        F: Fn(Upcoming<'_>) + Send + Sync + 'static,
    {
        self.handlers.set_prefetch(Arc::new(prefetch));
        self
    }

    /// Adds a handler that runs on the worker pool. Suitable for work that takes long or blocks.
    pub fn handle_on_workers<F>(self, id: HandlerId, handler: F) -> Self
    where
        F: Fn(&Request<'_>, &mut Responder<'_>) -> Result<(), HandlerError> + Send + Sync + 'static,
    {
        self.insert(id, Execution::Worker(Arc::new(handler)))
    }

    /// Adds a handler that answers later, from any thread: it starts on the polling thread, owns its request and its
    /// responder, and may pass them on. Suitable for work done by other threads or machines, and for calls that wait
    /// for an event. It must return soon, like one added by [`ServerBuilder::handle`].
    pub fn handle_deferred<F>(self, id: HandlerId, handler: F) -> Self
    where
        F: Fn(OwnedRequest, OwnedResponder) + Send + Sync + 'static,
    {
        self.insert(id, Execution::Deferred(Arc::new(handler)))
    }

    /// Adds an async handler. Its future runs on the executor given to [`ServerBuilder::executor`], or without one on
    /// the worker pool, which has no timers and no sockets of its own. The future is dropped when the caller gives up
    /// or its connection ends. The closure itself runs on the polling thread, and only makes the future.
    pub fn handle_async<F, A>(self, id: HandlerId, handler: F) -> Self
    where
        F: Fn(OwnedRequest) -> A + Send + Sync + 'static,
        A: Future<Output = Result<Vec<u8>, HandlerError>> + Send + 'static,
    {
        let begin = move |request| -> handler::HandlerFuture { Box::pin(handler(request)) };
        self.insert(id, Execution::Async(Arc::new(begin)))
    }

    /// Sets what runs async handlers: `spawn` is called with each of them as a task, and must not block. With tokio:
    /// `let runtime = tokio::runtime::Handle::current();` and `.executor(move |task| drop(runtime.spawn(task)))`.
    pub fn executor(mut self, spawn: impl Fn(HandlerTask) + Send + Sync + 'static) -> Self {
        self.executor = Some(Executor(Arc::new(spawn)));
        self
    }

    /// Gives each polling thread a task of the application, which runs between its passes over its clients: the same
    /// thread makes calls and answers them (FaSST §4.1). `start` makes the task on the thread; the task runs until the
    /// server ends. A turn of it must not wait: it sends calls through a [`crate::Pipeline`] or [`crate::Peers`] that
    /// it owns, and takes answers by `poll`. The state that it keeps for each tag corresponds to FaSST's coroutines.
    ///
    /// The threads are those of the server's first device: name the device ([`ServerBuilder::device`]) if there are
    /// several. A task that panics is not run again.
    pub fn on_polling_threads<T>(
        mut self,
        start: impl Fn(PollingThread) -> T + Send + Sync + 'static,
    ) -> Self
    where
        T: FnMut() -> ThreadProgress + 'static,
    {
        self.tasks = Some(ThreadTasks::new(start));
        self
    }

    fn insert(mut self, id: HandlerId, execution: Execution) -> Self {
        if matches!(
            id,
            FIGURES | REPORT | pacing::TIME | TIMED | CAPTURE | CALLBACKS | NOTIFY
        ) {
            self.refused.get_or_insert(ServeError::ReservedHandler(id));
        } else if !self.handlers.insert(id, execution) {
            self.refused.get_or_insert(ServeError::DuplicateHandler(id));
        }
        self
    }

    /// Whether clients may ask for [`ServerFigures`], as `dunlin top` does. They may by default, and then every client
    /// that passes the handshake can: use a [`Secret`] if untrusted clients can reach the port.
    pub fn shows_figures(mut self, shows: bool) -> Self {
        self.shows_figures = shows;
        self
    }

    /// Whether clients may see the calls of all other clients, as `dunlin capture` does. They may not by default. This
    /// is for debugging: every client that passes the handshake, or with [`ServerBuilder::rights`] every client with a
    /// [`Grant::call`] of [`CAPTURE`], can then see all requests and answers. While no client captures, the cost is one
    /// load per call.
    pub fn allows_capture(mut self, allows: bool) -> Self {
        self.allows_capture = allows;
        self
    }

    /// Sets the limits of each connection, and how the polling threads wait.
    pub fn channel(mut self, config: ChannelConfig) -> Self {
        self.channel = config;
        self
    }

    /// Sets how polling threads wait. By default they poll for 50 µs and then sleep.
    pub fn wait(mut self, wait: WaitMode) -> Self {
        self.channel.wait = wait;
        self
    }

    /// Sets the secret that clients must prove to know.
    pub fn secret(mut self, secret: Secret) -> Self {
        self.secret = Some(secret);
        self
    }

    /// Runs the handshake in TLS 1.3: clients authenticate the server by its certificate, and the server authenticates
    /// them by theirs if it asks for one ([`Request::peer`]). Traffic after the handshake is not protected by TLS.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: ServerTls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Sets what clients may call and attach, depending on their identity. Without rights all clients may do
    /// everything. A rule about a method or a region that the server does not have is an error of
    /// [`ServerBuilder::serve`].
    pub fn rights(mut self, rights: Rights) -> Self {
        self.rights = Some(rights);
        self
    }

    /// Sets the name by which rights and errors refer to the handler of this id, or to what another handler serves
    /// under this id. Typed services set their methods' names.
    pub fn name_handler(mut self, id: HandlerId, name: &str) -> Self {
        self.handlers.set_name(id, name);
        self
    }

    /// Exempts a handler from the check of rights: it calls [`Request::may_call`] itself, for the ids that it serves.
    pub fn checks_rights_itself(mut self, id: HandlerId) -> Self {
        self.handlers.exempt(id);
        self
    }

    /// Serves over this device only.
    pub fn device(mut self, name: impl Into<String>) -> Self {
        self.device = Some(name.into());
        self
    }

    /// Whether a device was set.
    #[cfg(any(test, feature = "conformance"))]
    pub(crate) fn has_device(&self) -> bool {
        self.device.is_some()
    }

    /// Number of threads that poll connections, for each device; each polls some connections of every kind of channel.
    /// 1 by default.
    pub fn pollers(mut self, count: usize) -> Self {
        self.pollers = count;
        self
    }

    /// Number of threads of the worker pool. 4 by default. None are started if there is no handler on the worker pool,
    /// no async handler without an executor, and no client of the preset `scalerpc`, whose long calls they run.
    pub fn workers(mut self, count: usize) -> Self {
        self.workers = count;
        self
    }

    /// Maximum number of connections, on each device. 4096 by default.
    pub fn max_connections(mut self, count: usize) -> Self {
        self.max_connections = count;
        self
    }

    /// Maximum number of active queue pairs, for clients whose preset uses credits (FLOCK's MAX_AQP). Each client keeps
    /// at least one active, however many clients there are. 256 by default.
    pub fn max_active_queue_pairs(mut self, count: usize) -> Self {
        self.most_active = count;
        self
    }

    /// When clients of the preset `auto` are asked to use datagrams. By default, when they pay off.
    pub fn datagrams(mut self, datagrams: Datagrams) -> Self {
        self.datagrams = datagrams;
        self
    }

    /// Configures how clients of the preset `scalerpc` take turns.
    pub fn grouping(mut self, grouping: Grouping) -> Self {
        self.grouping = grouping;
        self
    }

    /// Changes turns in step with other servers (ScaleRPC §4.2), by a common clock and in a fixed rotation:
    /// [`Grouping::slice`] is then that of the pace, and [`Grouping::by_priority`] does not apply. The server answers
    /// other servers that ask for its time; see [`ServerBuilder::follow`].
    pub fn pace(mut self, pace: &Pace) -> Self {
        self.pace = Some(pace.clone());
        self
    }

    /// Synchronises the pace with the server at this address, the time server, ten times a second, with this server's
    /// secret. While the time server cannot be reached, turns follow the last known estimate of its time. Only for
    /// [`ServerBuilder::serve`].
    pub fn follow(mut self, address: &str) -> Self {
        match address.parse() {
            Ok(address) => self.follows = Some(address),
            Err(error) => {
                self.refused.get_or_insert(ServeError::from(error));
            }
        }
        self
    }

    /// Time limit for the handshake of an unauthenticated client. 5 s by default.
    pub fn handshake_timeout(mut self, timeout: Duration) -> Self {
        self.handshake_timeout = timeout;
        self
    }

    /// Pins polling threads to cores, starting at `first_core`. A server on several devices, for example with clients
    /// over Flor beside others, has the same number of threads for each of them, on the same cores.
    pub fn pin_pollers(mut self, first_core: usize) -> Self {
        self.affinity = Some(first_core);
        self
    }
}

/// Default for the maximum number of connections of a server: enough for a busy service of one host. Everything below
/// has room for more, so this is the limit that is reached first.
pub(crate) const MAX_CONNECTIONS: usize = 4096;
