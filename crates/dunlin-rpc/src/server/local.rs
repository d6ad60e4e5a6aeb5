//! The acceptor, which opens a server's connections for clients from any source, and the server without a port.

use std::sync::{Arc, Weak};
use std::time::Instant;

use dunlin_bootstrap::{OpenReply, OpenRequest, Peer, Refusal};
use dunlin_verbs::process::Owned;
use dunlin_verbs::{Device, EndpointAddress, PeerConfirmation, VerbsError};

use super::callbacks::CallableClients;
use super::caller::{Arrival, Caller};
use super::rights::RightsTable;
use super::service::{Service, PATIENCE};
use super::services::NamedService;
use super::statistics::ServerStatistics;
use crate::admission::SenderReport;
use crate::call::callbacks::CLIENT_PARAMETER;
use crate::client::{Client, ClientBuilder, Opener};
use crate::devices;
use crate::error::ConnectError;
use crate::fabric::fabric_on;
use crate::identity::{Identity, SERVER_PARAMETER};
use crate::preset::Preset;

/// Accepts clients: called by the accepting thread for clients that come over TCP, and directly by clients of this
/// process that share a device with the server ([`crate::ClientBuilder::connect_on`]). Clones are the same acceptor.
#[derive(Clone)]
pub struct LocalAcceptor {
    identity: Identity,
    services: Arc<Owned<Vec<NamedService>>>,
    rights: Option<Arc<RightsTable>>,
    callable: Option<CallableClients>,
}

impl std::fmt::Debug for LocalAcceptor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

impl LocalAcceptor {
    pub(super) fn new(
        identity: Identity,
        services: Vec<NamedService>,
        rights: Option<Arc<RightsTable>>,
        callable: Option<CallableClients>,
    ) -> Self {
        Self {
            identity,
            services: Arc::new(Owned::new(services)),
            rights,
            callable,
        }
    }

    /// Tells the clients that the server calls that it no longer does. Otherwise a shutdown would wait for their calls
    /// that wait for this.
    pub(super) fn call_no_more(&self) {
        if let Some(callable) = &self.callable {
            callable.close();
        }
    }

    /// Whether it was made by this process, not by its parent before a fork.
    pub(super) fn is_here(&self) -> bool {
        self.services.is_here()
    }

    /// The names of the devices over which it serves.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.services.iter().map(|entry| &*entry.name)
    }

    fn running(&self) -> impl Iterator<Item = &dyn Service> {
        self.services.iter().filter_map(NamedService::running)
    }

    /// A weak reference to the services, for observing them.
    pub(super) fn downgrade(&self) -> Weak<Owned<Vec<NamedService>>> {
        Arc::downgrade(&self.services)
    }

    /// Ends all threads without waiting for answers. Threads that are stuck in a handler are abandoned.
    pub(super) fn end(&self) {
        self.call_no_more();
        let running = self.services.iter().filter_map(NamedService::close);
        running.for_each(Service::stop);
        let deadline = Instant::now() + PATIENCE;
        self.running().for_each(|service| service.end(deadline));
    }

    /// Stops taking clients and requests; the threads end when what was taken is answered.
    pub(super) fn drain(&self) {
        self.call_no_more();
        let running = self.services.iter().filter_map(NamedService::close);
        running.for_each(Service::drain);
    }

    /// Whether all threads have ended.
    pub(super) fn is_over(&self) -> bool {
        self.running().all(Service::is_over)
    }

    /// The name of the device for clients of a server that was given a device: that device, or Flor over it.
    pub(crate) fn device(&self, flor: bool) -> &str {
        let alike = self.names().find(|name| devices::is_flor(name) == flor);
        alike.or_else(|| self.names().next()).unwrap_or("")
    }

    /// Number of connections at present.
    pub(super) fn connections(&self) -> usize {
        self.running().map(Service::connections).sum()
    }

    /// What the server has counted so far.
    pub(super) fn statistics(&self) -> ServerStatistics {
        let mut sum = ServerStatistics::default();
        self.running().for_each(|service| service.count(&mut sum));
        sum
    }

    /// The clients known to the queue-pair scheduler: those whose preset uses credits.
    pub(super) fn senders(&self) -> Vec<SenderReport> {
        if !self.is_here() {
            return Vec::new();
        }
        self.running().flat_map(Service::senders).collect()
    }

    /// Opens a connection for a client that has passed authentication.
    pub(crate) fn open(&self, request: &OpenRequest, peer: Peer) -> Result<OpenReply, Refusal> {
        let Ok(preset) = request.preset.parse::<Preset>() else {
            let known = Preset::ALL
                .iter()
                .map(|preset| preset.name().to_string())
                .collect();
            return Err(Refusal::UnknownPreset {
                asked: request.preset.clone(),
                known,
            });
        };
        let mut services = self.services.iter();
        let named = services.find(|named| named.name == request.device);
        let named =
            named.ok_or_else(|| Refusal::rejected(format!("no device '{}'", request.device)))?;
        let rejected = |error: VerbsError| Refusal::rejected(error.to_string());
        let service = named.for_client().map_err(rejected)?;
        let peer = match service.confirm(&request.endpoint) {
            Ok(PeerConfirmation::Confirmed { user }) => peer.with_user(user),
            Ok(PeerConfirmation::Silent) => return Err(Refusal::Unconfirmed),
            Err(error) => return Err(rejected(error)),
        };
        let arrival = Arrival {
            device: request.device.clone(),
            endpoint: Some(request.endpoint),
            callable: self.callable.clone(),
        };
        let peer = peer.with_client(request.parameters.get(CLIENT_PARAMETER).copied());
        let caller = Caller::new(peer, self.rights.as_ref(), arrival);
        let (endpoint, mut parameters) = service.accept(
            preset.channel(),
            &request.endpoint,
            &request.parameters,
            caller,
        )?;
        parameters.insert(SERVER_PARAMETER.to_owned(), self.identity.number());
        Ok(OpenReply {
            endpoint,
            parameters,
        })
    }
}

impl Opener for LocalAcceptor {
    fn open(&self, request: OpenRequest, _: Option<Instant>) -> Result<OpenReply, ConnectError> {
        let device = self.device(devices::is_flor(&request.device)).to_string();
        let request = OpenRequest { device, ..request };
        Self::open(self, &request, Peer::local()).map_err(ConnectError::Refused)
    }

    fn peer(&self) -> Option<EndpointAddress> {
        None
    }

    fn is_local(&self) -> bool {
        true
    }
}

impl ClientBuilder {
    /// Connects over a device that the caller has opened to a server of this process: instead of a handshake, the
    /// server's acceptor is called directly. This is how clients run on simulated hosts. There, each simulated thread
    /// needs a [`crate::Pipeline`] of its own, made beforehand; the lanes of threads and futures belong to the real
    /// thread that drives the cluster.
    ///
    /// # Errors
    /// If a setting is out of range, the server refuses, or the device fails.
    pub fn connect_on<D: Device>(
        self,
        device: D,
        acceptor: &LocalAcceptor,
    ) -> Result<Client, ConnectError> {
        let given = move |preset: Preset| fabric_on(&device, preset.is_over_flor());
        self.connect_by(Arc::new(acceptor.clone()), given)
    }
}

/// A server without a port. Dropping it ends it at once, with its clients' connections; see [`crate::RunningServer`]
/// about handlers that do not return.
#[derive(Debug)]
pub struct LocalServer {
    acceptor: LocalAcceptor,
}

impl LocalServer {
    pub(crate) fn new(acceptor: LocalAcceptor) -> Self {
        Self { acceptor }
    }

    /// The acceptor for its clients.
    pub fn acceptor(&self) -> LocalAcceptor {
        self.acceptor.clone()
    }

    /// Number of connections at present.
    pub fn connections(&self) -> usize {
        self.acceptor.connections()
    }

    /// What the server has counted so far.
    pub fn statistics(&self) -> ServerStatistics {
        self.acceptor.statistics()
    }

    /// The clients known to the queue-pair scheduler: those whose preset uses credits.
    pub fn senders(&self) -> Vec<SenderReport> {
        self.acceptor.senders()
    }
}

impl Drop for LocalServer {
    fn drop(&mut self) {
        if !self.acceptor.is_here() {
            return;
        }
        self.acceptor.end();
    }
}
