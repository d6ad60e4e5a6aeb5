//! The public API: a database of several machines, typed tables, and transactions that are retried until they commit.

mod error;
mod explain;
mod finisher;
mod local;
mod open;
mod progress;
mod retry;
mod session;
mod table;
mod tasks;
mod transaction;
mod view;
mod write_set;

pub use error::{DatabaseError, OpenError};
pub use finisher::Outcome;
pub use open::DatabaseBuilder;
pub use table::{Table, TableKey, TableValue};
pub use tasks::{AsyncReadTransaction, AsyncTransaction};
pub use transaction::{ReadTransaction, Transaction};

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dunlin_rpc::ThreadFuture;
use dunlin_verbs::thread;

use crate::coordinator::Config;
use crate::driver::local::{LocalWire, Machines};
use crate::driver::wire::{Source, Wire};
use crate::driver::{Driver, TRANSACTIONS};
use crate::host::{Here, Host};
use crate::membership::Epoch;
use crate::memory::MemoryStore;
use crate::participant::Participant;
use crate::placement::Placement;
use crate::protocol::Protocol;
use crate::types::{MachineId, TransactionId};
use finisher::Finisher;
use progress::Progress;
use retry::Retry;
use view::Remote;

/// Number of headers of a database in one process: the maximum number of keys locked at once.
const LOCAL_HEADERS: usize = 1 << 16;
/// Maximum number of items of a database in one process.
const LOCAL_ITEMS: usize = 1 << 24;
/// Default time within which a transaction may be retried.
const DEADLINE: Duration = Duration::from_secs(5);
/// Number of times that a request is sent before its machine counts as unavailable.
const ATTEMPTS: u32 = 8;
/// Number of idle drivers kept for the next transactions.
const IDLE_MAX: usize = 64;

/// A database. Cheap to clone; any thread may use any clone, and threads do not wait for each other.
#[derive(Clone, Debug)]
pub struct Database {
    inner: Arc<Inner>,
    deadline: Duration,
}

#[derive(Debug)]
struct Inner {
    cluster: Cluster,
    protocol: Protocol,
    idle: Mutex<Vec<Driver>>,
    finisher: Finisher,
    progress: Progress,
    host: Arc<dyn Host>,
}

#[derive(Debug)]
enum Cluster {
    Local {
        machines: Machines,
        tables: Mutex<Vec<String>>,
    },
    Remote(Arc<Remote>),
}

impl Database {
    /// Opens the database whose machines are at these addresses, all of them in any order (`dunlin serve store`).
    ///
    /// # Errors
    /// When one of them cannot be reached, or they are not the machines of one database.
    pub fn open<A: AsRef<str>>(addresses: impl IntoIterator<Item = A>) -> Result<Self, OpenError> {
        Self::builder().open(addresses)
    }

    /// Like [`Database::open`], but returns a future: a separate thread opens the database, so no thread of an executor
    /// blocks.
    pub fn open_async<A: Into<String>>(
        addresses: impl IntoIterator<Item = A>,
    ) -> ThreadFuture<Result<Self, OpenError>> {
        Self::builder().open_async(addresses)
    }

    /// Returns a builder for everything that is not default: protocol, preset, device, deadline, secret.
    pub fn builder() -> DatabaseBuilder {
        DatabaseBuilder::default()
    }

    /// Creates a database in the memory of this process, without servers, which is freed with its last clone: for tests
    /// and small programs. Every requested table exists.
    pub fn in_process() -> Self {
        // A single machine is a valid placement.
        let placement = Placement::round(1, 1).unwrap_or_else(|_| unreachable!("one shard"));
        let store = MemoryStore::new(&placement, LOCAL_HEADERS, LOCAL_ITEMS);
        let participant = Participant::new(store, Participant::<MemoryStore>::SLOTS_MAX);
        let cluster = Cluster::Local {
            machines: Arc::new([Mutex::new(participant)]),
            tables: Mutex::default(),
        };
        Self::new(cluster, Protocol::SCALETX_O, Arc::new(Here))
    }

    fn new(cluster: Cluster, protocol: Protocol, host: Arc<dyn Host>) -> Self {
        Self {
            inner: Arc::new(Inner {
                cluster,
                protocol,
                idle: Mutex::default(),
                finisher: Finisher::default(),
                progress: Progress::default(),
                host,
            }),
            deadline: DEADLINE,
        }
    }

    /// Returns a clone whose transactions may be retried for this long.
    #[must_use = "it is a clone that has the deadline"]
    pub fn within(&self, deadline: Duration) -> Self {
        Self {
            deadline,
            ..self.clone()
        }
    }

    /// The protocol: how transactions validate, log and commit.
    pub fn protocol(&self) -> Protocol {
        self.inner.protocol
    }

    /// The transport that the connection to the first machine uses, and why; `None` for a database in one process.
    pub fn connection(&self) -> Option<dunlin_rpc::ConnectionInfo> {
        match &self.inner.cluster {
            Cluster::Remote(remote) => Some(remote.view().machines.first()?.client.info()),
            Cluster::Local { .. } => None,
        }
    }

    /// What the lanes of connection handles have sent, for all machines together: messages, and requests in them. Empty
    /// where threads have lanes of their own, and in one process.
    pub fn lanes(&self) -> Vec<(u64, u64)> {
        let Cluster::Remote(remote) = &self.inner.cluster else {
            return Vec::new();
        };
        let view = remote.view();
        let handles = view.machines.iter();
        let handles = handles.filter_map(|machine| machine.client.figures());
        let lanes = handles.flat_map(|handle| handle.lanes);
        lanes.map(|lane| (lane.messages, lane.requests)).collect()
    }

    /// The membership as far as this client knows it; `None` unless machines are replaced when they fail.
    pub fn configuration(&self) -> Option<crate::membership::Configuration> {
        match &self.inner.cluster {
            Cluster::Remote(remote) => remote.view().configuration.clone(),
            Cluster::Local { .. } => None,
        }
    }

    /// Returns the table of this name.
    ///
    /// # Errors
    /// When the machines have no such table.
    pub fn table<K: TableKey, V: TableValue>(
        &self,
        name: &str,
    ) -> Result<Table<K, V>, DatabaseError> {
        match &self.inner.cluster {
            Cluster::Local { tables, .. } => {
                let mut tables = tables.lock().unwrap_or_else(PoisonError::into_inner);
                let known = tables.iter().position(|known| known == name);
                let id = known.unwrap_or_else(|| {
                    tables.push(name.to_owned());
                    tables.len() - 1
                });
                Ok(Table::new(id as u16, name, None))
            }
            Cluster::Remote(remote) => {
                let tables = &remote.tables;
                let found = tables.iter().find(|spec| spec.name == name);
                let spec = found.ok_or_else(|| DatabaseError::NoTable {
                    name: name.to_owned(),
                    known: tables.iter().map(|spec| spec.name.clone()).collect(),
                })?;
                Ok(Table::new(spec.id, name, Some(spec.value_bytes)))
            }
        }
    }

    /// Runs a transaction: everything it reads and writes happens at one moment, or not at all. If it conflicts with
    /// another transaction it is retried, so the function may run several times, and should have no effects except
    /// through its transaction. An error returned by the function aborts the transaction and is returned.
    ///
    /// # Errors
    /// The function's own error; or the reason why the transaction did not commit within the deadline
    /// ([`Database::within`]).
    pub fn run<T, E: From<DatabaseError>>(
        &self,
        mut function: impl FnMut(&mut Transaction) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut retry = Retry::within(self.deadline, &*self.inner.host);
        loop {
            let mut transaction = self.begin()?;
            let result = function(&mut transaction);
            let failed = match (transaction.take_failure(), result) {
                (None, Err(error)) => return Err(error),
                (None, Ok(value)) => match transaction.commit() {
                    Ok(()) => return Ok(value),
                    Err(error) => error,
                },
                (Some(error), _) => error,
            };
            thread::sleep(retry.pause(failed, || self.is_replicated())?);
        }
    }

    /// Like [`Database::run`], for a transaction that changes nothing: it takes no locks.
    ///
    /// # Errors
    /// As for [`Database::run`].
    pub fn read<T, E: From<DatabaseError>>(
        &self,
        mut function: impl FnMut(&mut ReadTransaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.run(|transaction| function(&mut ReadTransaction::new(transaction)))
    }

    /// Begins a transaction that reads, writes and commits step by step, and is not retried. If it is dropped before it
    /// has committed it has no effect.
    ///
    /// # Errors
    /// When no connection can be established.
    pub fn begin(&self) -> Result<Transaction, DatabaseError> {
        let idle = self.inner.idle().pop();
        let driver = match idle {
            Some(driver) => driver,
            None => self.driver(TRANSACTIONS)?,
        };
        Ok(Transaction::new(driver, self.clone()))
    }

    fn is_replicated(&self) -> bool {
        self.configuration().is_some()
    }

    /// Returns the outcome of a transaction that was reported as unknown ([`DatabaseError::UnknownOutcome`]). Waits for
    /// at most `wait` until its machines have confirmed it; with a zero `wait` it returns at once what is known.
    pub fn outcome(&self, transaction: TransactionId, wait: Duration) -> Outcome {
        self.inner.finisher.outcome(transaction, wait)
    }

    /// Returns a driver for a thread that runs many transactions at once: it takes [`crate::Logic`] and returns
    /// outcomes.
    ///
    /// # Errors
    /// When no connection can be established.
    pub fn driver(&self, transactions: u16) -> Result<Driver, DatabaseError> {
        self.inner.driver(transactions)
    }

    /// Like [`Database::driver`], under a number chosen by the caller, which no other coordinator of the database has
    /// or has had: so that a simulation is reproducible.
    ///
    /// # Errors
    /// When no connection can be established.
    pub fn driver_numbered(
        &self,
        coordinator: u64,
        transactions: u16,
    ) -> Result<Driver, DatabaseError> {
        self.inner.driver_numbered(coordinator, transactions)
    }
}

/// Two copies of a coordinator's log, provided that there are two machines.
fn log_replicas(coordinator: u64, placement: &Placement) -> Vec<MachineId> {
    let machines = placement.shards() as u64;
    let replica = |n| MachineId(((coordinator + n) % machines) as u16);
    (0..machines.min(2)).map(replica).collect()
}

impl Inner {
    fn driver(&self, transactions: u16) -> Result<Driver, DatabaseError> {
        let coordinator = self
            .host
            .number()
            .map_err(|error| OpenError::Random(error.to_string()))?;
        self.driver_numbered(coordinator, transactions)
    }

    fn driver_numbered(
        &self,
        coordinator: u64,
        transactions: u16,
    ) -> Result<Driver, DatabaseError> {
        let (way, source) = match &self.cluster {
            Cluster::Local { machines, .. } => {
                // A single machine is a valid placement.
                let placement =
                    Placement::round(1, 1).unwrap_or_else(|_| unreachable!("one shard"));
                let config = Config {
                    protocol: self.protocol,
                    log_replicas: Vec::new(),
                    placement,
                    epoch: Epoch::FIXED,
                    attempts: ATTEMPTS,
                    mistakes: crate::Mistakes::NONE,
                };
                let wire: Box<dyn Wire> = Box::new(LocalWire::new(machines));
                ((wire, Arc::new(config)), None)
            }
            Cluster::Remote(remote) => {
                let way = remote
                    .way(coordinator)
                    .map_err(|error| OpenError::Connect {
                        address: "a machine of the database".to_owned(),
                        source: Box::new(error),
                    })?;
                let source: Arc<dyn Source> = Arc::<Remote>::clone(remote);
                let changes = remote.view().configuration.is_some();
                (way, changes.then_some(source))
            }
        };
        Ok(Driver::new(way, source, coordinator, transactions).charging(self.host.charge()))
    }

    pub(super) fn address(&self, machine: MachineId) -> String {
        match &self.cluster {
            Cluster::Remote(remote) => {
                let mut addresses = remote.addresses().into_iter();
                addresses.nth(usize::from(machine.0)).unwrap_or_default()
            }
            Cluster::Local { .. } => String::new(),
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Driver>> {
        thread::lock(&self.idle)
    }

    /// Puts a driver whose last transaction is over back into the pool for the next transactions.
    fn give_back(&self, driver: Driver) {
        let mut idle = self.idle();
        if idle.len() < IDLE_MAX {
            idle.push(driver);
        }
    }
}
