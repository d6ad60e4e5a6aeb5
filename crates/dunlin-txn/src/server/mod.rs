//! A machine that stores: tables in registered memory, participants over them, and the handlers of a server by which
//! coordinators reach both.

mod asking;
pub(crate) mod catalogue;
mod disk;
mod error;
mod handlers;
mod joining;
mod load;
mod local;
mod member;
mod notes;
mod returning;
pub(crate) mod shape;
mod tables;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use dunlin_rpc::{
    Client, ClientBuilder, HandlerId, Region, RunningServer, ServeError, ServerBuilder,
};

use dunlin_verbs::Work;

use crate::host::Here;
pub use crate::log::{LogError, LogStatistics};
use crate::membership::{Configuration, Membership};
use crate::participant::Participant;
use crate::placement::Placement;
use crate::types::{Key, MachineId, Value};
use catalogue::Catalogue;
use disk::Disk;
pub use disk::LogFolder;
pub use error::StoreServerError;
use joining::{Given, Joining, Running};
use load::load;
pub use local::LocalStore;
use member::{Member, Participants, TableParticipant};
pub use shape::TableSpec;
use tables::{TableStore, Tables};

/// The handler that executes a step of a transaction. Request: the incarnation of the machine (8 bytes), then a
/// [`crate::wire::Request`]; answer: a [`crate::wire::Answer`].
pub const TRANSACT: HandlerId = 40;
/// The handler that returns the machine's description of itself.
pub const CATALOGUE: HandlerId = 41;
/// The handler for requests between machines that are replaced when they fail. Request: the incarnation of the receiver
/// (8 bytes), then a [`crate::membership::peer::PeerRequest`]; answer: a [`crate::membership::peer::PeerAnswer`].
pub const PEER: HandlerId = 42;

/// Number of participants of a machine, each for a share of the coordinators, so that polling threads wait for each
/// other less.
const PARTICIPANTS: usize = 4;

/// The configuration of a machine of a store: the same for all except for the number.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// The machine's number, from zero.
    pub machine: u16,
    /// Number of machines.
    pub machines: u16,
    /// Number of copies of each key, including the primary's.
    pub replicas: u16,
    /// The tables.
    pub tables: Vec<TableSpec>,
    /// Whether clients may WRITE items themselves, as the protocol `scaletx` does. They can then write anything into
    /// the tables.
    pub one_sided_writes: bool,
}

/// What the handlers share, once the tables exist.
#[derive(Debug)]
struct Service {
    participants: Arc<Participants>,
    /// Present if machines are replaced when they fail.
    member: Option<Arc<Member>>,
    /// Present if the log is on a disk: answers wait for it.
    disk: Option<Arc<Disk>>,
    /// Charges work to a simulated core; `None` on real ones.
    charge: Option<fn(Work)>,
}

/// Configures how machines of a database replace each other.
#[derive(Debug)]
pub struct Replicated {
    /// Decides which machines are members.
    pub membership: Box<dyn Membership>,
    /// Time without contact after which the others go on without a machine.
    pub lease: Duration,
    /// The client settings for connections between machines.
    pub client: ClientBuilder,
    /// The address at which others reach this machine, if it is not the one where its server listens: clients cannot
    /// connect to a wildcard address (`dunlin://0.0.0.0:7400`).
    pub advertise: Option<String>,
    /// The machine's log on a disk; without one it is in memory. With it, what was acknowledged is on the disks of all
    /// machines that store it, and survives when all of them are stopped at once.
    pub log: Option<LogFolder>,
}

impl Replicated {
    /// Two seconds: shorter leases expire when a machine is stopped for a moment.
    pub const LEASE: Duration = Duration::from_secs(2);

    /// Creates the default settings with this membership.
    pub fn new(membership: impl Membership + 'static) -> Self {
        Self {
            membership: Box::new(membership),
            lease: Self::LEASE,
            client: Client::builder(),
            advertise: None,
            log: None,
        }
    }

    /// Keeps the log in this directory, which belongs to the machine alone.
    #[must_use]
    pub fn log_file(mut self, directory: impl Into<PathBuf>) -> Self {
        self.log = Some(LogFolder::new(directory));
        self
    }
}

/// A running machine.
#[derive(Debug)]
pub struct StoreServer {
    server: RunningServer,
    service: Arc<OnceLock<Service>>,
    machine: MachineId,
    placement: Placement,
    tables: Vec<TableSpec>,
    agent: Option<Running>,
    /// Its log on a disk. Dropped last: what the others have appended is written before it ends.
    log: Option<disk::Running>,
}

impl StoreServer {
    /// Adds handlers and regions to a server, starts it, and creates the tables.
    ///
    /// # Errors
    /// When the configuration contradicts itself, the server does not start, or there is no memory for the tables.
    pub fn serve(builder: ServerBuilder, config: StoreConfig) -> Result<Self, StoreServerError> {
        let (server, regions) = Self::start(builder, config, (None, false))?;
        let participants = tables_of(&server.tables, &regions, PARTICIPANTS)?.into_iter();
        let _ = server.service.set(Service {
            participants: Arc::new(participants.map(Mutex::new).collect()),
            member: None,
            disk: None,
            charge: None,
        });
        Ok(server)
    }

    /// Like [`StoreServer::serve`], for a machine that the others replace when it fails, and that joins them when it
    /// starts. `initial` is the initial contents of the database, the same for all machines; a machine that joins later
    /// copies from the others. It begins to serve once all machines have been present.
    ///
    /// With a log on a disk ([`Replicated::log_file`]) a machine that comes back is whole at once, unless the others
    /// have gone on without it, and so is a database whose machines were all stopped.
    ///
    /// When the others have gone on without it ([`StoreServer::is_fenced`]), its data is out of date: drop it and start
    /// a new one.
    ///
    /// # Errors
    /// As for [`StoreServer::serve`], and when the membership does not answer, or the directory of the log is not this
    /// machine's, is in use, or is damaged.
    pub fn serve_replicated<I: Iterator<Item = (Key, Value)>>(
        builder: ServerBuilder,
        config: StoreConfig,
        replicated: Replicated,
        initial: impl FnOnce() -> I,
    ) -> Result<Self, StoreServerError> {
        let joining = Joining::look(Arc::new(Here), &config, replicated)?;
        let prepared = (Some(joining.incarnation), joining.defers());
        let (mut server, regions) = Self::start(builder, config, prepared)?;
        let given = Given {
            service: &server.service,
            regions: &regions,
            placement: &server.placement,
            address: server.server.address().to_string(),
            participants: PARTICIPANTS,
        };
        let (agent, log) = joining.join(given, initial)?;
        (server.agent, server.log) = (Some(agent), log);
        Ok(server)
    }

    /// Whether the others have gone on without this life of the machine, so that it no longer serves. Always false if
    /// the membership never changes.
    pub fn is_fenced(&self) -> bool {
        self.agent
            .as_ref()
            .is_some_and(|agent| agent.member.is_ended())
    }

    /// The configuration that this machine currently serves; `None` unless machines are replaced when they fail.
    pub fn configuration(&self) -> Option<Configuration> {
        self.agent.as_ref()?.member.serving()
    }

    fn start(
        builder: ServerBuilder,
        config: StoreConfig,
        (incarnation, defers): (Option<u64>, bool),
    ) -> Result<(Self, Vec<Region>), StoreServerError> {
        let random =
            || dunlin_verbs::random::number().map_err(|e| StoreServerError::Random(e.to_string()));
        let incarnation = incarnation.map_or_else(random, Ok)?;
        let prepared = Prepared::new(builder, &config, incarnation, defers)?;
        let server = prepared.builder.serve()?;
        let (service, placement) = (prepared.service, prepared.placement);
        let regions = prepared.regions;
        let server = Self {
            server,
            service,
            machine: MachineId(config.machine),
            placement,
            tables: config.tables,
            agent: None,
            log: None,
        };
        Ok((server, regions))
    }

    /// The underlying server: its address, its statistics.
    pub fn server(&self) -> &RunningServer {
        &self.server
    }

    /// The tables.
    pub fn tables(&self) -> &[TableSpec] {
        &self.tables
    }

    /// Loads the values of which this machine has a copy, and ignores the others: the contents of the tables before the
    /// first transaction. All machines must be given the same values. If the machine has a log on a disk, they are
    /// durable when this returns.
    ///
    /// # Errors
    /// When a table does not accept a key or is full, or the disk fails.
    pub fn load(&self, items: impl Iterator<Item = (Key, Value)>) -> Result<u64, StoreServerError> {
        match self.service.get() {
            Some(service) => {
                let disk = service.disk.as_deref();
                let place = (self.machine, &self.placement);
                load(&service.participants, place, items, disk)
            }
            None => Ok(0),
        }
    }

    /// What its log has written in this life; `None` unless it is on a disk.
    pub fn log_statistics(&self) -> Option<LogStatistics> {
        let log = self.log.as_ref()?;
        Some(log.file().shared().statistics())
    }

    /// Returns the underlying server, which keeps running. A machine that is replaced when it fails is no longer a
    /// member.
    pub fn into_server(self) -> RunningServer {
        self.server
    }

    /// Shuts the machine down; returns `false` if some answers could not be delivered.
    pub fn shutdown(self) -> bool {
        drop(self.agent);
        // Answers that wait for the disk are sent first.
        drop(self.log);
        self.server.shutdown()
    }
}

/// A server that is about to start: it has its handlers, but not the memory.
struct Prepared {
    builder: ServerBuilder,
    service: Arc<OnceLock<Service>>,
    catalogue: Catalogue,
    placement: Placement,
    regions: Vec<Region>,
}

impl Prepared {
    fn new(
        builder: ServerBuilder,
        config: &StoreConfig,
        incarnation: u64,
        defers: bool,
    ) -> Result<Self, StoreServerError> {
        let placement = check(config)?;
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
            replicated: false,
            configuration: None,
        };
        let service: Arc<OnceLock<Service>> = Arc::default();
        let builder = regions.iter().fold(builder, ServerBuilder::region);
        let builder = handlers::on(builder, (&service, defers), &catalogue);
        Ok(Self {
            builder,
            service,
            catalogue,
            placement,
            regions,
        })
    }
}

/// Creates empty tables in the regions of a server that has started, and this many participants over them.
fn tables_of(
    specs: &[TableSpec],
    regions: &[Region],
    count: usize,
) -> Result<Vec<TableParticipant>, StoreServerError> {
    let registered: Option<Vec<_>> = regions.iter().map(Region::registered).collect();
    let Some(registered) = registered else {
        let words = "cannot register a region of the store".to_owned();
        return Err(ServeError::Setting(words).into());
    };
    let tables = Tables::create(specs, registered).map_err(|source| {
        let name = "of the store".to_owned();
        StoreServerError::Table { name, source }
    })?;
    let participants = TableStore::divide(&Arc::new(tables), count).into_iter();
    let participants = participants.take(count).map(|store| {
        let most = store.owners_max();
        Participant::new(store, most)
    });
    Ok(participants.collect())
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
