//! The server: a port, handlers by id, and threads that serve.

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
mod on_demand;
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

/// Runs the calling thread on `core`; only a wish, so failures are silent.
fn pin(core: usize) {
    let mut cores = rustix::thread::CpuSet::new();
    if core < rustix::thread::CpuSet::MAX_CPU {
        cores.set(core);
        let _ = rustix::thread::sched_setaffinity(None, &cores);
    }
}

/// Where servers begin.
#[derive(Debug)]
pub struct Server(());

impl Server {
    /// A server on `address`, such as `dunlin://0.0.0.0:7400`; port 0 lets the system choose. The port is bound by
    /// [`ServerBuilder::serve`].
    ///
    /// # Errors
    /// When the address is malformed.
    pub fn bind(address: &str) -> Result<ServerBuilder, ServeError> {
        Ok(ServerBuilder {
            address: Some(address.parse()?),
            ..Self::unbound()
        })
    }

    /// A server without a port, for [`ServerBuilder::serve_on`].
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

/// A server that is not running yet.
#[derive(Debug)]
#[must_use = "a server begins with serve()"]
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
    /// Grants memory to clients, who attach it by its name. All devices of the server reach it, as
    /// [`Region`] says. On shared memory a client keeps the grant until its process ends ([`Region`]).
    pub fn region(mut self, region: &Region) -> Self {
        self.regions.push(region.clone());
        self
    }

    /// Calls clients that want it ([`ServerBuilder::serve_to`]): they are in this list while they are there. Without
    /// this such clients are refused. Each server needs a list of its own.
    pub fn callable_clients(mut self, clients: &CallableClients) -> Self {
        self.callable = Some(clients.clone());
        self
    }

    /// Adds a handler that runs on the polling thread, between two looks at the rings: right for a few microseconds of
    /// work.
    ///
    /// While it runs its poller serves nobody else, also while it waits for a call to another server. Calls to its own
    /// server are refused with [`crate::CallError::OwnServer`], by whichever client: it would wait for itself.
    /// [`ServerBuilder::handle_on_workers`] has no such limits.
    pub fn handle<F>(self, id: HandlerId, handler: F) -> Self
    where
        F: Fn(&Request<'_>, &mut Responder<'_>) -> Result<(), HandlerError> + Send + Sync + 'static,
    {
        self.insert(id, Execution::Inline(Arc::new(handler)))
    }

    /// Requests that have come together are shown to `prefetch` before the handler of the first runs: it can ask for
    /// the memory that all of them will look at ([`dunlin_verbs::prefetch_to_read`]), so that the waits overlap. It is
    /// asked on the polling thread, at most once for a request, and not at all where requests come one by one or the
    /// preset has no batches; it must be quick, and nothing may depend on it.
    pub fn prefetch<F>(mut self, prefetch: F) -> Self
    where
        F: Fn(Upcoming<'_>) + Send + Sync + 'static,
    {
        self.handlers.set_prefetch(Arc::new(prefetch));
        self
    }

    /// Adds a handler that runs on the worker pool: right for work that takes long or blocks.
    pub fn handle_on_workers<F>(self, id: HandlerId, handler: F) -> Self
    where
        F: Fn(&Request<'_>, &mut Responder<'_>) -> Result<(), HandlerError> + Send + Sync + 'static,
    {
        self.insert(id, Execution::Worker(Arc::new(handler)))
    }

    /// Adds a handler that answers later, from wherever it likes: it begins on the polling thread, keeps its request
    /// and its responder, and hands them on to whom it has. Right for work that other threads or machines do, and for
    /// calls that wait for an event. It must return soon, as one added by [`ServerBuilder::handle`].
    pub fn handle_deferred<F>(self, id: HandlerId, handler: F) -> Self
    where
        F: Fn(OwnedRequest, OwnedResponder) + Send + Sync + 'static,
    {
        self.insert(id, Execution::Deferred(Arc::new(handler)))
    }

    /// Adds an async handler. Its future runs on the executor of [`ServerBuilder::executor`]; without one on the worker
    /// pool, which has no timers and no sockets of its own. It is dropped where it stands when the caller gives up or
    /// its connection ends. The closure itself runs on the polling thread, and only makes the future.
    pub fn handle_async<F, A>(self, id: HandlerId, handler: F) -> Self
    where
        F: Fn(OwnedRequest) -> A + Send + Sync + 'static,
        A: Future<Output = Result<Vec<u8>, HandlerError>> + Send + 'static,
    {
        let begin = move |request| -> handler::HandlerFuture { Box::pin(handler(request)) };
        self.insert(id, Execution::Async(Arc::new(begin)))
    }

    /// What runs async handlers: it is given each as a task, and must not block. With tokio:
    /// `let runtime = tokio::runtime::Handle::current();` and `.executor(move |task| drop(runtime.spawn(task)))`.
    pub fn executor(mut self, spawn: impl Fn(HandlerTask) + Send + Sync + 'static) -> Self {
        self.executor = Some(Executor(Arc::new(spawn)));
        self
    }

    /// Gives each polling thread work of the application's own, between its passes over its clients: a thread that asks
    /// while it answers (FaSST §4.1). `start` makes the task of a thread there, which runs until the server ends; a
    /// turn of it must not wait: it sends calls by a [`crate::Pipeline`] or [`crate::Peers`] that it owns, and takes
    /// answers by `poll`. The coroutines of a thread are what it keeps for each tag.
    ///
    /// The threads are those of the server's first device: name it ([`ServerBuilder::device`]) where there are several.
    /// A task that panics is run no more.
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

    /// Whether clients may ask for [`ServerFigures`], as `dunlin top` does; they may by default. Whoever passes the
    /// handshake can: use a [`Secret`] where strangers reach the port.
    pub fn shows_figures(mut self, shows: bool) -> Self {
        self.shows_figures = shows;
        self
    }

    /// Whether clients may see the calls of all others, as `dunlin capture` does; they may not by default. It is for
    /// looking for faults: whoever passes the handshake sees all requests and answers then, or with
    /// [`ServerBuilder::rights`] whoever has a [`Grant::call`] of [`CAPTURE`]. While nobody asks it costs a load
    /// a call.
    pub fn allows_capture(mut self, allows: bool) -> Self {
        self.allows_capture = allows;
        self
    }

    /// Limits of each connection, and how the polling threads wait.
    pub fn channel(mut self, config: ChannelConfig) -> Self {
        self.channel = config;
        self
    }

    /// How polling threads wait; the default polls for 50 µs and then sleeps.
    pub fn wait(mut self, wait: WaitMode) -> Self {
        self.channel.wait = wait;
        self
    }

    /// What clients must prove to know.
    pub fn secret(mut self, secret: Secret) -> Self {
        self.secret = Some(secret);
        self
    }

    /// Runs the handshake in TLS 1.3: clients know the server by its certificate, and it knows them by theirs where it
    /// asks for one ([`Request::peer`]). What comes after the handshake is not inside TLS.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: ServerTls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// What clients may call and attach, by who they are; without this all may do everything. A rule about a method or
    /// a region that the server does not have is an error of [`ServerBuilder::serve`].
    pub fn rights(mut self, rights: Rights) -> Self {
        self.rights = Some(rights);
        self
    }

    /// A name by which rights and errors know a handler, or what a handler stands for by this number. Typed services
    /// give their methods' names.
    pub fn name_handler(mut self, id: HandlerId, name: &str) -> Self {
        self.handlers.set_name(id, name);
        self
    }

    /// Leaves a handler open to all clients, whatever rights say: it asks [`Request::may_call`] itself, for what it
    /// stands for.
    pub fn checks_rights_itself(mut self, id: HandlerId) -> Self {
        self.handlers.exempt(id);
        self
    }

    /// Serves over this device alone.
    pub fn device(mut self, name: impl Into<String>) -> Self {
        self.device = Some(name.into());
        self
    }

    /// Whether it was given a device.
    #[cfg(any(test, feature = "conformance"))]
    pub(crate) fn has_device(&self) -> bool {
        self.device.is_some()
    }

    /// Threads that poll connections, for each device; each polls some of every kind of channel. 1 by default.
    pub fn pollers(mut self, count: usize) -> Self {
        self.pollers = count;
        self
    }

    /// Threads for handlers on the worker pool. 4 by default; none are started when there is no such handler, no async
    /// one without an executor, nor a client of the preset `scalerpc`, whose long calls they run.
    pub fn workers(mut self, count: usize) -> Self {
        self.workers = count;
        self
    }

    /// Connections at once, on each device. 4096 by default.
    pub fn max_connections(mut self, count: usize) -> Self {
        self.max_connections = count;
        self
    }

    /// Most queue pairs that are active at once, for clients whose preset counts credits (FLOCK's MAX_AQP); each client
    /// keeps at least one, however many there are. 256 by default.
    pub fn max_active_queue_pairs(mut self, count: usize) -> Self {
        self.most_active = count;
        self
    }

    /// When clients of the preset `auto` are asked for datagrams: when they pay, by default.
    pub fn datagrams(mut self, datagrams: Datagrams) -> Self {
        self.datagrams = datagrams;
        self
    }

    /// How clients of the preset `scalerpc` are served by turns.
    pub fn grouping(mut self, grouping: Grouping) -> Self {
        self.grouping = grouping;
        self
    }

    /// Changes turns together with other servers (ScaleRPC §4.2), by a common clock and in a fixed rotation:
    /// [`Grouping::slice`] is then the pace's, and [`Grouping::by_priority`] does not apply. The server tells others
    /// the time; see [`ServerBuilder::follow`].
    pub fn pace(mut self, pace: &Pace) -> Self {
        self.pace = Some(pace.clone());
        self
    }

    /// Sets the pace by that of the server at this address, the time server, ten times a second, with this server's
    /// secret. While it cannot be reached turns go by what is known of its time. Only for [`ServerBuilder::serve`].
    pub fn follow(mut self, address: &str) -> Self {
        match address.parse() {
            Ok(address) => self.follows = Some(address),
            Err(error) => {
                self.refused.get_or_insert(ServeError::from(error));
            }
        }
        self
    }

    /// Time that a stranger has for the handshake. 5 s by default.
    pub fn handshake_timeout(mut self, timeout: Duration) -> Self {
        self.handshake_timeout = timeout;
        self
    }

    /// Pins polling threads to cores, from `first_core` on. A server on several devices, as with clients over Flor
    /// beside others, has as many for each of them, on the same cores.
    pub fn pin_pollers(mut self, first_core: usize) -> Self {
        self.affinity = Some(first_core);
        self
    }
}

/// Connections of a server, by default: a busy service of one host. What they stand on has room for more, so that this
/// is what ends them.
pub(crate) const MAX_CONNECTIONS: usize = 4096;
