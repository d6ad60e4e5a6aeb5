//! The live figures that a running server exposes: to its own process ([`RunningServer::figures`], [`ServerObserver`]),
//! and to any client that asks ([`crate::Client::server_figures`], `dunlin top`) through a handler that every server
//! has.
//!
//! [`RunningServer::figures`]: super::RunningServer::figures

use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use dunlin_bootstrap::device_name::below;
use dunlin_bootstrap::{Acceptor, Counts};
use dunlin_verbs::process::Owned;
use serde::{Deserialize, Serialize};

use super::handler::{Execution, HandlerError};
use super::local::LocalAcceptor;
use super::reports::Reports;
use super::services::NamedService;
use super::ServerStatistics;
use crate::admission::SenderReport;
use crate::client::{Client, ClientReport};
use crate::error::CallError;
use crate::{versioned, HandlerId};

/// Id of the built-in handler that answers with [`ServerFigures`]. Servers cannot register a handler of their own under
/// it.
pub const FIGURES: HandlerId = HandlerId::MAX;

/// Version of the answer's format.
const VERSION: u8 = 2;

/// Live figures of a server. Counters start at zero when the server starts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ServerFigures {
    /// Time since the server started.
    pub uptime: Duration,
    /// The devices over which it serves, apart from those that are started with their first client and had none: every
    /// server has one of Flor's over each of its devices, about which there is nothing to say until then.
    /// [`RunningServer::devices`](super::RunningServer::devices) has all names.
    pub devices: Vec<DeviceFigures>,
    /// Maximum number of connections.
    pub max_connections: usize,
    /// Sums over the devices.
    pub statistics: ServerStatistics,
    /// Counts of handshakes, by outcome.
    pub handshakes: Counts,
    /// Maximum number of active queue pairs (FLOCK's MAX_AQP).
    pub max_active_queue_pairs: usize,
    /// Clients whose preset uses credits.
    pub senders: Vec<SenderReport>,
    /// What clients have reported about themselves ([`crate::ClientBuilder::reports_figures`]) in the last ten seconds.
    pub clients: Vec<ClientReport>,
    /// Resident memory of the process in bytes; zero if the system does not report it.
    pub resident_bytes: u64,
}

/// A server's figures on one device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DeviceFigures {
    /// The device's name.
    pub name: String,
    /// Number of connections at present.
    pub connections: usize,
    /// What was counted on this device.
    pub statistics: ServerStatistics,
    /// The device's packet counters since it was opened, by name: drops, and `retransmission`. Empty if it has none.
    pub packets: Vec<(String, u64)>,
}

impl ServerFigures {
    /// Number of connections at present, on all devices.
    pub fn connections(&self) -> usize {
        // The numbers may come from an untrusted server.
        let each = self.devices.iter().map(|device| device.connections);
        each.fold(0, usize::saturating_add)
    }

    /// Number of queue pairs that are active at present, of clients whose preset uses credits.
    pub fn active_queue_pairs(&self) -> usize {
        let lanes = self.senders.iter().flat_map(|sender| &sender.lanes);
        lanes.filter(|lane| lane.active).count()
    }

    fn encode(&self) -> Result<Vec<u8>, String> {
        versioned::encode(VERSION, self)
    }

    /// Decodes an answer of [`FIGURES`], which may come from an untrusted server.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        versioned::decode(VERSION, bytes, "figures")
    }
}

impl Client {
    /// Returns the server's live figures: load, connections, clients of the queue-pair scheduler.
    ///
    /// # Errors
    /// As for [`Client::call`]; [`CallError::UnknownHandler`] if the server does not show them,
    /// [`CallError::Unreadable`] if it is of another version.
    pub fn server_figures(&self) -> Result<ServerFigures, CallError> {
        let answer = self.call(FIGURES, &[])?;
        ServerFigures::decode(&answer).map_err(CallError::Unreadable)
    }
}

/// Observes a running server from anywhere in its process, and does not keep it alive.
#[derive(Clone)]
pub struct ServerObserver {
    acceptor: Weak<Acceptor>,
    services: Weak<Owned<Vec<NamedService>>>,
    reports: Arc<Reports>,
    began: Instant,
    max_connections: usize,
    most_active: usize,
}

impl std::fmt::Debug for ServerObserver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerObserver")
            .field("began", &self.began)
            .finish_non_exhaustive()
    }
}

impl ServerObserver {
    pub(super) fn new(
        acceptor: &Arc<Acceptor>,
        local: &LocalAcceptor,
        reports: Arc<Reports>,
        (max_connections, most_active): (usize, usize),
    ) -> Self {
        Self {
            acceptor: Arc::downgrade(acceptor),
            services: local.downgrade(),
            reports,
            began: Instant::now(),
            max_connections,
            most_active,
        }
    }

    /// The figures at present; `None` if the server has ended, or runs in the process that this one was forked from.
    pub fn figures(&self) -> Option<ServerFigures> {
        let (acceptor, services) = (self.acceptor.upgrade()?, self.services.upgrade()?);
        services.check().ok()?;
        let mut figures = ServerFigures {
            uptime: self.began.elapsed(),
            max_connections: self.max_connections,
            handshakes: acceptor.counters(),
            max_active_queue_pairs: self.most_active,
            clients: self.reports.all(),
            resident_bytes: resident_bytes(),
            ..ServerFigures::default()
        };
        for named in services.iter() {
            let Some(service) = named.running() else {
                continue;
            };
            // Flor's device reports the counters of the device below it: they are listed only once.
            let below = below(&named.name);
            let shown = services.iter().any(|other| Some(&*other.name) == below);
            let mut packets = Vec::new();
            if !shown {
                packets = service.packet_counts();
            }
            let mut statistics = ServerStatistics::default();
            service.count(&mut statistics);
            service.count(&mut figures.statistics);
            figures.senders.extend(service.senders());
            figures.devices.push(DeviceFigures {
                name: named.name.clone(),
                connections: service.connections(),
                statistics,
                packets: (packets.into_iter())
                    .map(|(name, count)| (name.to_owned(), count))
                    .collect(),
            });
        }
        Some(figures)
    }
}

/// The handler of [`FIGURES`]; `observed` is set once the server runs.
pub(super) fn handler(observed: Arc<OnceLock<ServerObserver>>) -> Execution {
    Execution::Inline(Arc::new(move |_, reply| {
        let figures = observed.get().and_then(ServerObserver::figures);
        let figures = figures.ok_or_else(|| HandlerError::new(1, "the server is not running"))?;
        let encoded = figures.encode();
        reply.write(&encoded.map_err(|error| HandlerError::new(2, error))?)
    }))
}

/// Second word of `/proc/self/statm`, in pages.
fn resident_bytes() -> u64 {
    let words = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = words.split_whitespace().nth(1);
    let pages: u64 = pages.and_then(|word| word.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}
