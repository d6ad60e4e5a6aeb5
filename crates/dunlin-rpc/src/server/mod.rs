//! The server: a port, handlers by id, and threads that serve.

mod connection;
mod handler;
mod poller;
mod region;
pub(crate) mod service;
mod statistics;
mod workers;

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use handler::{Execution, HandlerTable};
use service::{Service, ServiceSetup};

pub use handler::{HandlerError, Request, Responder};
pub use region::Region;
pub use statistics::ServerStatistics;

use crate::admission::{scheduler::MAX_ACTIVE, SenderReport};
use crate::bootstrap::{
    Acceptor, AcceptorConfig, Address, Counts, OpenReply, OpenRequest, Refusal, Secret, StopHandle,
};
use crate::config::{ChannelConfig, WaitMode};
use crate::devices;
use crate::error::ServeError;
use crate::preset::Preset;
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
            address: address.parse()?,
            handlers: HandlerTable::default(),
            duplicate: None,
            channel: ChannelConfig::default(),
            secret: None,
            device: None,
            pollers: 1,
            workers: 4,
            max_connections: 4096,
            handshake_timeout: AcceptorConfig::default().handshake_timeout,
            affinity: None,
            most_active: MAX_ACTIVE,
            regions: Vec::new(),
        })
    }
}

/// A server that is not running yet.
#[derive(Debug)]
#[must_use = "a server begins with serve()"]
pub struct ServerBuilder {
    address: Address,
    handlers: HandlerTable,
    duplicate: Option<HandlerId>,
    channel: ChannelConfig,
    secret: Option<Secret>,
    device: Option<String>,
    pollers: usize,
    workers: usize,
    max_connections: usize,
    handshake_timeout: Duration,
    affinity: Option<usize>,
    most_active: usize,
    regions: Vec<Region>,
}

impl ServerBuilder {
    /// Grants memory to clients, who attach it by its name. It stands on the first device that the server serves over.
    pub fn region(mut self, region: &Region) -> Self {
        self.regions.push(region.clone());
        self
    }

    /// Adds a handler that runs on the polling thread, between two looks at the rings: right for a few microseconds of work.
    pub fn handle<F>(self, id: HandlerId, handler: F) -> Self
    where
        F: Fn(&Request<'_>, &mut Responder<'_>) -> Result<(), HandlerError> + Send + Sync + 'static,
    {
        self.insert(id, Execution::Inline(Arc::new(handler)))
    }

    /// Adds a handler that runs on the worker pool: right for work that takes long or blocks.
    pub fn handle_on_workers<F>(self, id: HandlerId, handler: F) -> Self
    where
        F: Fn(&Request<'_>, &mut Responder<'_>) -> Result<(), HandlerError> + Send + Sync + 'static,
    {
        self.insert(id, Execution::Worker(Arc::new(handler)))
    }

    fn insert(mut self, id: HandlerId, execution: Execution) -> Self {
        if !self.handlers.insert(id, execution) {
            self.duplicate.get_or_insert(id);
        }
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

    /// Serves over this device alone.
    pub fn device(mut self, name: impl Into<String>) -> Self {
        self.device = Some(name.into());
        self
    }

    /// Threads that poll connections, for each device. 1 by default.
    pub fn pollers(mut self, count: usize) -> Self {
        self.pollers = count;
        self
    }

    /// Threads for handlers on the worker pool. 4 by default; none are started when there is no such handler.
    pub fn workers(mut self, count: usize) -> Self {
        self.workers = count;
        self
    }

    /// Connections at once. 4096 by default.
    pub fn max_connections(mut self, count: usize) -> Self {
        self.max_connections = count;
        self
    }

    /// Most queue pairs that are active at once, for clients whose preset counts credits (FLOCK's MAX_AQP); each client keeps at least
    /// one, however many there are. 256 by default.
    pub fn max_active_queue_pairs(mut self, count: usize) -> Self {
        self.most_active = count;
        self
    }

    /// Time that a stranger has for the handshake. 5 s by default.
    pub fn handshake_timeout(mut self, timeout: Duration) -> Self {
        self.handshake_timeout = timeout;
        self
    }

    /// Pins polling threads to cores, from `first_core` on.
    pub fn pin_pollers(mut self, first_core: usize) -> Self {
        self.affinity = Some(first_core);
        self
    }

    /// Binds the port and starts the threads.
    ///
    /// # Errors
    /// When the port is in use, a setting is out of range, or no device can be used.
    pub fn serve(self) -> Result<RunningServer, ServeError> {
        if let Some(id) = self.duplicate {
            return Err(ServeError::DuplicateHandler(id));
        }
        self.channel.validate().map_err(ServeError::Setting)?;
        for (name, count) in [("pollers", self.pollers), ("workers", self.workers)] {
            if count == 0 || count > 1024 {
                let words = format!("{name} is {count}: it must be from 1 to 1024");
                return Err(ServeError::Setting(words));
            }
        }
        for (index, region) in self.regions.iter().enumerate() {
            if let Some(error) = region.refuse(&self.regions[..index]) {
                return Err(error);
            }
        }
        if self.most_active == 0 || self.most_active > 1 << 16 {
            let words = format!(
                "max_active_queue_pairs is {}: it must be from 1 to 65536",
                self.most_active
            );
            return Err(ServeError::Setting(words));
        }
        let fabrics =
            devices::fabrics(self.device.as_deref()).map_err(|available| ServeError::NoDevice {
                asked: self.device.clone().unwrap_or_default(),
                available,
            })?;
        let capabilities = devices::capabilities(&fabrics)?;
        let config = AcceptorConfig {
            secret: self.secret,
            capabilities,
            handshake_timeout: self.handshake_timeout,
            ..AcceptorConfig::default()
        };
        let acceptor = Arc::new(Acceptor::bind(&self.address, config)?);
        let setup = ServiceSetup {
            handlers: self.handlers,
            channel: self.channel,
            pollers: self.pollers,
            workers: self.workers,
            max_connections: self.max_connections,
            affinity: self.affinity,
            most_active: self.most_active,
            regions: self.regions,
        };
        let services = fabrics
            .iter()
            .map(|fabric| {
                Ok((
                    fabric.attributes().name.clone(),
                    fabric.serve(setup.clone())?,
                ))
            })
            .collect::<Result<Vec<_>, ServeError>>()?;
        let services: Services = Arc::new(services);
        let stop = StopHandle::new()?;
        let thread = std::thread::Builder::new()
            .name("dunlin-accept".into())
            .spawn({
                let (acceptor, services, stop) =
                    (Arc::clone(&acceptor), Arc::clone(&services), stop.clone());
                move || {
                    let opened = acceptor.run(&stop, |request| open(&services, &request));
                    if let Err(error) = opened {
                        tracing::error!(%error, "the server takes no more clients");
                    }
                }
            })?;
        Ok(RunningServer {
            acceptor,
            services,
            stop,
            thread: Some(thread),
        })
    }
}

type Services = Arc<Vec<(String, Box<dyn Service>)>>;

/// Opens a connection for a client that has proved itself.
fn open(services: &Services, request: &OpenRequest) -> Result<OpenReply, Refusal> {
    if request.preset.parse::<Preset>().is_err() {
        let known = Preset::ALL
            .iter()
            .map(|preset| preset.name().to_string())
            .collect();
        return Err(Refusal::UnknownPreset {
            asked: request.preset.clone(),
            known,
        });
    }
    let service = services.iter().find(|(name, _)| *name == request.device);
    let (_, service) =
        service.ok_or_else(|| Refusal::rejected(format!("no device '{}'", request.device)))?;
    let (endpoint, parameters) = service
        .accept(&request.endpoint, &request.parameters)
        .map_err(|error| Refusal::rejected(error.to_string()))?;
    Ok(OpenReply {
        endpoint,
        parameters,
    })
}

/// A server at work. Dropping it ends it at once; [`RunningServer::shutdown`] ends it with grace.
pub struct RunningServer {
    acceptor: Arc<Acceptor>,
    services: Services,
    stop: StopHandle,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for RunningServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunningServer")
            .field("address", self.acceptor.local_address())
            .field("connections", &self.connections())
            .finish_non_exhaustive()
    }
}

/// How long [`RunningServer::shutdown`] waits for answers to be taken.
const DRAIN: Duration = Duration::from_secs(10);

impl RunningServer {
    /// Where it listens, with the port that the system chose.
    pub fn address(&self) -> Address {
        self.acceptor.local_address().clone()
    }

    /// Connections now.
    pub fn connections(&self) -> usize {
        self.services
            .iter()
            .map(|(_, service)| service.connections())
            .sum()
    }

    /// What was counted so far.
    pub fn statistics(&self) -> ServerStatistics {
        let mut sum = ServerStatistics::default();
        for (_, service) in self.services.iter() {
            service.count(&mut sum);
        }
        sum
    }

    /// The clients that the queue-pair scheduler knows: those whose preset counts credits.
    pub fn senders(&self) -> Vec<SenderReport> {
        let services = self.services.iter();
        services
            .flat_map(|(_, service)| service.senders())
            .collect()
    }

    /// How handshakes ended so far.
    pub fn handshakes(&self) -> Counts {
        self.acceptor.counters()
    }

    /// Names of the devices that it serves over.
    pub fn devices(&self) -> Vec<String> {
        self.services.iter().map(|(name, _)| name.clone()).collect()
    }

    /// Takes no new clients and no new requests, answers what was taken, and ends. `true` when everything was answered and read within
    /// ten seconds; what is left then is cut off.
    pub fn shutdown(mut self) -> bool {
        self.stop_accepting();
        for (_, service) in self.services.iter() {
            service.drain();
        }
        let deadline = Instant::now() + DRAIN;
        let over = || self.services.iter().all(|(_, service)| service.is_over());
        while !over() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        over()
    }

    fn stop_accepting(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            if thread.join().is_err() {
                tracing::error!("the accepting thread panicked");
            }
        }
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.stop_accepting();
        for (_, service) in self.services.iter() {
            service.end();
        }
    }
}
