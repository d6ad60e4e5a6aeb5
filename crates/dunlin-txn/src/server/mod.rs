//! A machine that stores: tables in registered memory, a participant over them, and the handlers of a server by which
//! coordinators reach both.

pub(crate) mod catalogue;
pub(crate) mod tables;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use dunlin_rpc::{
    HandlerError, HandlerId, Region, RegisteredRegion, RunningServer, ServeError, ServerBuilder,
};
use dunlin_store::StoreError;

use crate::membership::Epoch;
use crate::participant::Participant;
use crate::placement::{Placement, PlacementError};
use crate::types::{Key, MachineId, Value};
use crate::wire::{Answer, Refusal, Request, Response};
use catalogue::Catalogue;
pub use tables::TableSpec;
use tables::{TableStore, Tables};

/// The handler that answers a step of a transaction: the incarnation of the machine (8 bytes), then a [`Request`]; the
/// answer is an [`Answer`].
pub const TRANSACT: HandlerId = 40;
/// The handler that says what the machine is and has.
pub const CATALOGUE: HandlerId = 41;

/// Participants of a machine, each for its share of coordinators: polling threads wait for each other less.
const PARTICIPANTS: usize = 4;
/// A request that was not understood.
const MALFORMED: u32 = 1;
/// The tables are being made.
const NOT_READY: u32 = 2;

/// What a machine of a store is: the same for all but its number.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// Its number, from zero.
    pub machine: u16,
    /// How many machines there are.
    pub machines: u16,
    /// Copies of each key, the primary's with them.
    pub replicas: u16,
    /// The tables.
    pub tables: Vec<TableSpec>,
    /// Whether clients may WRITE items themselves, as the protocol `scaletx` does. They can write anything into the
    /// tables then.
    pub one_sided_writes: bool,
}

/// Why a machine cannot store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreServerError {
    /// The server does not start.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// A table cannot be made.
    #[error("table '{name}': {source}")]
    Table {
        /// Its name.
        name: String,
        /// Why.
        source: StoreError,
    },
    /// The machines cannot hold the copies.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// The number is none of theirs.
    #[error("machine {machine} of {machines}: numbers begin with 0")]
    Machine {
        /// The number.
        machine: u16,
        /// How many there are.
        machines: u16,
    },
    /// More copies than machines, or none.
    #[error("{replicas} copies on {machines} machines: each copy needs a machine of its own")]
    Replicas {
        /// The copies.
        replicas: u16,
        /// The machines.
        machines: u16,
    },
    /// Two tables have the same number or name.
    #[error("two tables have the number {id} or the name '{name}'")]
    Twice {
        /// The number of the second.
        id: u16,
        /// Its name.
        name: String,
    },
    /// The system has no random numbers.
    #[error("no random number for the machine's incarnation: {0}")]
    Random(String),
}

type Service = Vec<Mutex<Participant<TableStore<RegisteredRegion>>>>;

/// A machine that serves.
#[derive(Debug)]
pub struct StoreServer {
    server: RunningServer,
    service: Arc<OnceLock<Service>>,
    machine: MachineId,
    placement: Placement,
    tables: Vec<TableSpec>,
}

impl StoreServer {
    /// Adds handlers and regions to a server, starts it, and makes the tables.
    ///
    /// # Errors
    /// When the configuration contradicts itself, the server does not start, or there is no memory for the tables.
    pub fn serve(builder: ServerBuilder, config: StoreConfig) -> Result<Self, StoreServerError> {
        let placement = check(&config)?;
        let incarnation = getrandom::u64().map_err(|e| StoreServerError::Random(e.to_string()))?;
        let mut regions = Vec::new();
        for spec in &config.tables {
            let layout = spec.layout().map_err(|source| StoreServerError::Table {
                name: spec.name.clone(),
                source,
            })?;
            let name = catalogue::region_name(incarnation, spec.id);
            let region = Region::new(&name, TableSpec::region_bytes(&layout));
            regions.push(match config.one_sided_writes {
                true => region.writable(),
                false => region,
            });
        }
        let catalogue = Catalogue {
            incarnation,
            machine: config.machine,
            machines: config.machines,
            replicas: config.replicas,
            tables: config.tables.clone(),
        };
        let service: Arc<OnceLock<Service>> = Arc::default();
        let builder = regions.iter().fold(builder, ServerBuilder::region);
        let server = on(builder, &service, &catalogue).serve()?;
        let registered: Option<Vec<_>> = regions.iter().map(Region::registered).collect();
        let Some(registered) = registered else {
            let words = "a region of the store was not registered".to_owned();
            return Err(ServeError::Setting(words).into());
        };
        let tables = Tables::create(&config.tables, registered).map_err(|source| {
            let name = "of the store".to_owned();
            StoreServerError::Table { name, source }
        })?;
        let participants = TableStore::divide(&Arc::new(tables), PARTICIPANTS).into_iter();
        let participants = participants.take(PARTICIPANTS).map(|store| {
            let most = store.owners_max();
            Mutex::new(Participant::new(store, most))
        });
        let _ = service.set(participants.collect());
        Ok(Self {
            server,
            service,
            machine: MachineId(config.machine),
            placement,
            tables: config.tables,
        })
    }

    /// The server below: its address, its figures.
    pub fn server(&self) -> &RunningServer {
        &self.server
    }

    /// The tables.
    pub fn tables(&self) -> &[TableSpec] {
        &self.tables
    }

    /// Puts values there that this machine has a copy of, and leaves the others out: what is in the tables before the
    /// first transaction. All machines must be given the same.
    ///
    /// # Errors
    /// When a table does not take a key or is full.
    pub fn load(&self, items: impl Iterator<Item = (Key, Value)>) -> Result<u64, StoreServerError> {
        let Some(first) = self.service.get().and_then(|service| service.first()) else {
            return Ok(0);
        };
        let mut participant = first.lock().unwrap_or_else(PoisonError::into_inner);
        let mut loaded = 0;
        for (key, value) in items {
            let primary = self.placement.primary(&key) == self.machine;
            if !primary && !self.placement.backups(&key).contains(&self.machine) {
                continue;
            }
            let put = participant.store_mut().load(&key, &value);
            put.map_err(|source| StoreServerError::Table {
                name: format!("number {}", key.table()),
                source,
            })?;
            loaded += 1;
        }
        Ok(loaded)
    }

    /// The server below, which goes on.
    pub fn into_server(self) -> RunningServer {
        self.server
    }

    /// Ends it; `false` when some answers could not be delivered.
    pub fn shutdown(self) -> bool {
        self.server.shutdown()
    }
}

fn check(config: &StoreConfig) -> Result<Placement, StoreServerError> {
    let (machine, machines, replicas) = (config.machine, config.machines, config.replicas);
    if machine >= machines {
        return Err(StoreServerError::Machine { machine, machines });
    }
    if replicas == 0 || replicas > machines {
        return Err(StoreServerError::Replicas { replicas, machines });
    }
    for (number, spec) in config.tables.iter().enumerate() {
        let same = |other: &TableSpec| other.id == spec.id || other.name == spec.name;
        if config.tables[..number].iter().any(same) {
            return Err(StoreServerError::Twice {
                id: spec.id,
                name: spec.name.clone(),
            });
        }
    }
    Ok(Placement::round(machines, replicas)?)
}

fn on(
    builder: ServerBuilder,
    service: &Arc<OnceLock<Service>>,
    catalogue: &Catalogue,
) -> ServerBuilder {
    let (ready, incarnation) = (Arc::clone(service), catalogue.incarnation);
    let (known, described) = (Arc::clone(service), catalogue.encode());
    builder
        .handle(TRANSACT, move |request, reply| {
            let service = ready.get().ok_or_else(not_ready)?;
            reply.write(&transact(service, incarnation, request.payload())?)
        })
        .handle(CATALOGUE, move |_, reply| {
            known.get().ok_or_else(not_ready)?;
            reply.write(&described)
        })
}

fn not_ready() -> HandlerError {
    HandlerError::new(NOT_READY, "the tables are being made: try again")
}

fn transact(service: &Service, incarnation: u64, payload: &[u8]) -> Result<Vec<u8>, HandlerError> {
    let malformed = |error: &dyn std::fmt::Display| HandlerError::new(MALFORMED, error.to_string());
    let (meant, request) = payload
        .split_first_chunk::<8>()
        .ok_or_else(|| malformed(&"no incarnation"))?;
    let request = Request::decode(request).map_err(|error| malformed(&error))?;
    let answer = match u64::from_le_bytes(*meant) == incarnation {
        true => {
            let share = request.transaction.coordinator as usize % service.len();
            let mut participant = service[share]
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            participant.handle(&request, Epoch::FIXED)
        }
        false => Answer {
            transaction: request.transaction,
            step: request.step,
            response: Response::Refused(Refusal::Restarted),
        },
    };
    let mut bytes = Vec::with_capacity(128);
    answer.encode(&mut bytes);
    Ok(bytes)
}
