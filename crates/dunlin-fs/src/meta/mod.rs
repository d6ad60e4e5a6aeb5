//! The metadata server: the namespace behind handlers, its journal, and the threads that run both.

mod journal;
mod keeper;
mod service;
mod store;
mod waiting;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use dunlin::{RunningServer, Secret, ServeError, ServerBuilder};

pub use store::{Durability, StoreError};

use crate::namespace::{Findings, Namespace};
use crate::wire::meta;
use journal::Journal;
use keeper::Keeper;
use service::Service;
use store::Store;

/// Minimum lease: a client must be able to renew it on a busy machine.
pub const SHORTEST_LEASE: Duration = Duration::from_millis(200);

/// The options of a metadata server.
#[derive(Clone, Debug)]
pub struct MetaOptions {
    /// Folder of its journal; created if it does not exist.
    pub store: PathBuf,
    /// Addresses of the data servers.
    pub data: Vec<String>,
    /// When a change counts as durable.
    pub durability: Durability,
    /// Time that a session lasts after it was renewed.
    pub lease: Duration,
    /// The secret that the data servers require.
    pub secret: Option<Secret>,
}

impl MetaOptions {
    /// A server with this store and the defaults: no data servers, on disk, 10 s.
    pub fn new(store: impl Into<PathBuf>) -> Self {
        Self {
            store: store.into(),
            data: Vec::new(),
            durability: Durability::Power,
            lease: Duration::from_secs(10),
            secret: None,
        }
    }
}

/// A metadata server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum MetaError {
    /// The journal cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The RPC server could not be started.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The lease is too short.
    #[error("lease of {0:?} is too short: it must be at least {SHORTEST_LEASE:?}, so that a client can renew it")]
    Lease(Duration),
    /// A thread could not be started, or the system does not provide random numbers.
    #[error("system error: {0}")]
    System(#[from] std::io::Error),
}

/// A running metadata server. It ends when this is dropped.
#[derive(Debug)]
pub struct MetaServer {
    running: RunningServer,
    // After the server: there are no requests any more when the threads end.
    _keeper: Keeper,
}

impl MetaServer {
    /// The underlying RPC server.
    pub fn running(&self) -> &RunningServer {
        &self.running
    }

    /// Returns the underlying server and the threads beside it, which end when they are dropped: drop them after the
    /// server.
    pub fn split(self) -> (RunningServer, MetaThreads) {
        (self.running, MetaThreads(self._keeper))
    }

    /// Shuts down; returns whether all answers were delivered.
    pub fn shutdown(self) -> bool {
        self.running.shutdown()
    }
}

/// The threads of a metadata server.
#[derive(Debug)]
pub struct MetaThreads(#[allow(dead_code, reason = "it is there to be dropped")] Keeper);

/// Serves the file system of a store, with the settings of `server`.
///
/// # Errors
/// See [`MetaError`].
pub fn serve(server: ServerBuilder, options: &MetaOptions) -> Result<MetaServer, MetaError> {
    if options.lease < SHORTEST_LEASE {
        return Err(MetaError::Lease(options.lease));
    }
    let store = Store::open(&options.store)?;
    let now = service::now();
    let lease_ms = options.lease.as_millis() as u64;
    let mut namespace = load(&store, &options.store, now.steady_ms + lease_ms)?;
    namespace.set_lease_ms(lease_ms);
    namespace.begin(now);
    store.keep(namespace.take_records(), options.durability)?;
    let (journal, thread) = Journal::start(store, options.durability, namespace.sequence())?;
    let epoch = crate::random()?;
    let service = Arc::new(Service::new(namespace, journal, epoch, options.lease));
    let keeper = Keeper::start(&service, options, thread)?;
    let asked = Arc::clone(&service);
    let deferred = |run: fn(&Service, &[u8], dunlin::OwnedResponder)| {
        let service = Arc::clone(&service);
        move |request: dunlin::OwnedRequest, responder| run(&service, request.payload(), responder)
    };
    let running = server
        .handle(meta::ASK, move |request, reply| {
            asked.ask(request.payload(), reply)
        })
        .handle_deferred(meta::ASK_DURABLE, deferred(Service::ask_durable))
        .handle_deferred(meta::CHANGE, deferred(Service::change))
        .handle_deferred(meta::HELLO, deferred(Service::hello))
        .handle_deferred(meta::WATCH, deferred(Service::watch))
        .serve()?;
    Ok(MetaServer {
        running,
        _keeper: keeper,
    })
}

/// Loads the namespace of a store; creates a new one if there is none.
fn load(store: &Store, path: &Path, expires_ms: u64) -> Result<Namespace, StoreError> {
    let records = store.load()?;
    if records.is_empty() {
        return Ok(Namespace::new(service::now()));
    }
    let (namespace, mut faults) = Namespace::load(records, expires_ms);
    faults.extend(namespace.check().faults);
    match faults.first() {
        None => Ok(namespace),
        Some(first) => Err(StoreError::Damaged {
            path: path.to_owned(),
            first: first.clone(),
            count: faults.len(),
        }),
    }
}

/// Checks a store that no server has open.
///
/// # Errors
/// When it cannot be read. Problems *in* it are reported in the findings.
pub fn check(path: &Path) -> Result<Findings, StoreError> {
    if !path.is_dir() {
        return Err(StoreError::Absent(path.to_owned()));
    }
    let records = Store::open(path)?.load()?;
    if records.is_empty() {
        return Err(StoreError::Absent(path.to_owned()));
    }
    let (namespace, faults) = Namespace::load(records, 0);
    let mut findings = namespace.check();
    findings.faults.splice(0..0, faults);
    Ok(findings)
}
