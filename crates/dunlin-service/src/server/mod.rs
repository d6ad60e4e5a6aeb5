//! A server of typed services: services by name, on top of the handlers of a [`dunlin::ServerBuilder`].

mod registry;
mod sessions;
mod streams;
mod unary;
mod view;

use std::future::pending;
use std::sync::Arc;

use dunlin::{CallbackServer, Client, HandlerError, RunningServer, ServeError, ServerBuilder};

use registry::{Add, Ground};
pub use registry::{Place, Registry, Service};
pub use view::{Reply, RequestView, Sent};

use sessions::{Limits, Sessions};

use crate::directory;
use crate::observer::Observer;
use crate::stream::frame::{FIRST_CREDIT, MOST_CREDIT};
use crate::tasks::{Task, Tasks, Threads};
use crate::wire::{DIRECTORY, FIRST_METHOD};

/// The builder of servers of typed services.
///
/// ```no_run
/// # use dunlin_service::server::{Server, Service};
/// # async fn example(greeter: impl Service) -> Result<(), dunlin::ServeError> {
/// Server::builder().add_service(greeter).serve("dunlin://0.0.0.0:7400").await
/// # }
/// ```
#[derive(Debug, Default)]
#[must_use = "a server does nothing until serve() or start() is called"]
pub struct Server {
    registry: Registry,
    tasks: Option<Tasks>,
    poll_inline: bool,
    threads: Threads,
    limits: Limits,
    observer: Observer,
}

impl Server {
    /// Creates a server without services.
    pub fn builder() -> Self {
        Self::default()
    }

    /// Adds a service.
    pub fn add_service(mut self, service: impl Service) -> Self {
        service.register(&mut self.registry);
        self
    }

    /// Puts all async handlers of services that are added after this behind one of tower's layers: timeouts, limits,
    /// load shedding, checks of metadata, tracing. Layers added later are outside of those added before. Each method
    /// has its own service behind the layer, so limits apply to each method. Handlers of sync services are not
    /// affected.
    #[cfg(feature = "tower")]
    pub fn layer<L>(mut self, layer: L) -> Self
    where
        L: tower_layer::Layer<crate::layers::Handler> + Send + Sync + 'static,
        L::Service: tower_service::Service<crate::layers::Call, Response = crate::layers::Answer>
            + Clone
            + Send
            + Sync
            + 'static,
        <L::Service as tower_service::Service<crate::layers::Call>>::Error:
            Into<Box<dyn std::error::Error + Send + Sync>>,
        <L::Service as tower_service::Service<crate::layers::Call>>::Future: Send,
    {
        self.registry.add_layer(crate::layers::erase(layer));
        self
    }

    /// Reports the calls of all services to OpenTelemetry, regardless of their kind.
    #[cfg(feature = "opentelemetry")]
    pub fn telemetry(mut self, telemetry: &crate::telemetry::Telemetry) -> Self {
        self.observer = telemetry.into();
        self
    }

    /// Sets the executor of async handlers. By default it is the tokio runtime in which the server is started (feature
    /// `tokio`), or else a dedicated thread.
    pub fn executor(mut self, spawn: impl Fn(Task) + Send + Sync + 'static) -> Self {
        self.tasks = Some(Tasks::Custom(Arc::new(spawn)));
        self
    }

    /// Polls each async handler of a unary method once on the thread that has received the request, before it becomes a
    /// task: one that is ready then answers without waking another thread, and one that waits continues on its
    /// executor. Use it for handlers that do not block and take microseconds to reach their first await point; longer
    /// ones delay all calls of that thread.
    pub fn poll_inline(mut self) -> Self {
        self.poll_inline = true;
        self
    }

    /// Sets how the server's threads are started: simulated hosts need simulated threads, because a thread of the
    /// operating system does not run in virtual time.
    #[doc(hidden)]
    pub fn threads(mut self, threads: Threads) -> Self {
        self.tasks = Some(Tasks::on(threads.clone()));
        self.threads = threads;
        self
    }

    /// Maximum number of open streams of a client. 16,384 by default; further ones end with `ResourceExhausted`.
    pub fn max_streams(mut self, count: usize) -> Self {
        self.limits.streams = count;
        self
    }

    /// Maximum number of clients with open streams. 4096 by default; streams of further clients end with
    /// `ResourceExhausted`.
    pub fn max_sessions(mut self, count: usize) -> Self {
        self.limits.sessions = count;
        self
    }

    /// Maximum number of clients with open streams on one connection: each channel is one, and several channels may be
    /// created from one [`Client`]. 16 by default; streams of further ones end with `ResourceExhausted`.
    pub fn max_sessions_per_connection(mut self, count: usize) -> Self {
        self.limits.of_connection = count;
        self
    }

    /// Bytes that each stream buffers for its handler, in addition to one message; anything beyond that waits at the
    /// client. 64 KiB by default; from 16 KiB to 16 MiB.
    pub fn stream_window(mut self, bytes: usize) -> Self {
        self.limits.window = bytes.clamp(FIRST_CREDIT, MOST_CREDIT);
        self
    }

    /// Serves at an address until the future is dropped.
    ///
    /// # Errors
    /// If the server cannot be started.
    pub async fn serve(self, address: &str) -> Result<(), ServeError> {
        let _running = self.start(address)?;
        pending().await
    }

    /// Starts the server; it ends when the returned value is dropped, or gracefully with [`RunningServer::shutdown`].
    ///
    /// # Errors
    /// If the server cannot be started.
    pub fn start(self, address: &str) -> Result<RunningServer, ServeError> {
        self.on(dunlin::Server::bind(address)?)?.serve()
    }

    /// Serves the server to which this client is connected, which may call these services from now on
    /// ([`ServerBuilder::serve_to`]): it finds the client by [`crate::Request::peer`]
    /// ([`dunlin::CallableClients::find`]) or in its list, and creates a channel from the client that calls it
    /// ([`crate::Channel::from_client`]).
    ///
    /// # Errors
    /// If that server does not call this client, or this one cannot be started.
    pub fn serve_to(self, client: &Client) -> Result<CallbackServer, ServeError> {
        self.on(dunlin::Server::unbound())?.serve_to(client)
    }

    /// Adds the services to a server with any secret, device, limits and handlers of its own. Typed services use the
    /// handler numbers from 1024 on.
    ///
    /// # Errors
    /// If two services have a method of the same name, or there are too many methods.
    pub fn on(self, mut server: ServerBuilder) -> Result<ServerBuilder, ServeError> {
        let tasks = self.tasks.unwrap_or_default();
        let mut sessions = Sessions::new(tasks.clone(), self.threads, self.limits);
        sessions.observer = self.observer.clone();
        let ground = Ground {
            tasks,
            poll_inline: self.poll_inline,
            observer: self.observer,
        };
        let mut entries = Vec::new();
        let mut number = FIRST_METHOD;
        let mut paths: Vec<&str> = Vec::new();
        for method in self.registry.methods {
            if paths.contains(&method.path) {
                let words = format!("two services have the same method {}", method.path);
                return Err(ServeError::Setting(words));
            }
            paths.push(method.path);
            let entry = directory::Entry {
                number,
                kind: method.kind,
            };
            directory::put_entry(&mut entries, method.path, entry);
            server = server.name_handler(number, method.path);
            match method.add {
                Add::Call(add) => server = add(server, number, &ground),
                Add::Stream(check, begin) => sessions.add(number, method.path, check, begin),
            }
            // The highest numbers are reserved for the server itself.
            number = number
                .checked_add(1)
                .filter(|number| *number < u16::MAX - 64)
                .ok_or_else(|| {
                    ServeError::Setting("too many methods: no handler ids are left".to_owned())
                })?;
        }
        let server = sessions.on(server);
        // Names and numbers of methods are not secret, and nothing can be called without them.
        let server = server.checks_rights_itself(DIRECTORY);
        Ok(server.handle(DIRECTORY, move |request, reply| {
            match directory::answer(request.payload(), &entries) {
                Some(answer) => reply.write(&answer),
                None => Err(HandlerError::new(
                    0,
                    "invalid request to the directory of typed services",
                )),
            }
        }))
    }
}
