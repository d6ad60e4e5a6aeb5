//! A machine that stores: tables in registered memory, a participant over them, and the handlers of a server by which
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

/// The handler that answers a step of a transaction: the incarnation of the machine (8 bytes), then a
/// [`crate::wire::Request`]; the answer is a [`crate::wire::Answer`].
pub const TRANSACT: HandlerId = 40;
/// The handler that says what the machine is and has.
pub const CATALOGUE: HandlerId = 41;
/// The handler by which machines that replace each other ask each other: the incarnation that is meant (8 bytes), then
/// a [`crate::membership::peer::PeerRequest`]; the answer is a [`crate::membership::peer::PeerAnswer`].
pub const PEER: HandlerId = 42;

/// Participants of a machine, each for its share of coordinators: polling threads wait for each other less.
const PARTICIPANTS: usize = 4;

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

/// What the handlers share, once the tables are made.
#[derive(Debug)]
struct Service {
    participants: Arc<Participants>,
    /// Where machines replace each other.
    member: Option<Arc<Member>>,
    /// Where the log is on a disk: answers wait for it.
    disk: Option<Arc<Disk>>,
    /// Where a simulated core is told what its work takes; none on real ones.
    charge: Option<fn(Work)>,
}

/// How machines of a database replace each other.
#[derive(Debug)]
pub struct Replicated {
    /// Who decides who is a member.
    pub membership: Box<dyn Membership>,
    /// How long a machine may be silent before others go on without it.
    pub lease: Duration,
    /// How machines reach each other.
    pub client: ClientBuilder,
    /// Where others reach this machine, if that is not where its server listens: all addresses of a host
    /// (`dunlin://0.0.0.0:7400`) are none that a client could connect to.
    pub advertise: Option<String>,
    /// Where the machine has its log on a disk; in memory without one. What was acknowledged is then on the disks of
    /// all machines that have it, and is there again when all of them were ended at once.
    pub log: Option<LogFolder>,
}

impl Replicated {
    /// Two seconds: shorter ones are lost where a machine is stopped for a moment.
    pub const LEASE: Duration = Duration::from_secs(2);

    /// By this membership.
    pub fn new(membership: impl Membership + 'static) -> Self {
        Self {
            membership: Box::new(membership),
            lease: Self::LEASE,
            client: Client::builder(),
            advertise: None,
            log: None,
        }
    }

    /// With its log in this directory, which is the machine's alone.
    #[must_use]
    pub fn log_file(mut self, directory: impl Into<PathBuf>) -> Self {
        self.log = Some(LogFolder::new(directory));
        self
    }
}

/// A machine that serves.
#[derive(Debug)]
pub struct StoreServer {
    server: RunningServer,
    service: Arc<OnceLock<Service>>,
    machine: MachineId,
    placement: Placement,
    tables: Vec<TableSpec>,
    agent: Option<Running>,
    /// Its log on a disk. The last one: what the others have appended is written before it ends.
    log: Option<disk::Running>,
}

impl StoreServer {
    /// Adds handlers and regions to a server, starts it, and makes the tables.
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

    /// As [`StoreServer::serve`] for a machine that others replace when it is gone, and that joins them when it comes.
    /// `initial` is what the database begins with, the same at all machines; a machine that comes later has it from the
    /// others. It serves when all machines were there once.
    ///
    /// With a log on a disk ([`Replicated::log_file`]) a machine that comes back is whole at once, if the others have
    /// not gone on without it, and so is a database all of whose machines were ended.
    ///
    /// When others have gone on without it ([`StoreServer::is_fenced`]), what it has is worth nothing any more: drop it
    /// and begin anew.
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

    /// Whether others have gone on without this life of the machine, so that it serves nobody any more. Without a
    /// membership that changes it never is.
    pub fn is_fenced(&self) -> bool {
        self.agent
            .as_ref()
            .is_some_and(|agent| agent.member.is_ended())
    }

    /// The configuration that this machine serves now, where machines replace each other.
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

    /// The server below: its address, its figures.
    pub fn server(&self) -> &RunningServer {
        &self.server
    }

    /// The tables.
    pub fn tables(&self) -> &[TableSpec] {
        &self.tables
    }

    /// Puts values there that this machine has a copy of, and leaves the others out: what is in the tables before the
    /// first transaction. All machines must be given the same. Where the machine has a log on a disk they are there
    /// when this returns.
    ///
    /// # Errors
    /// When a table does not take a key or is full, or the disk fails.
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

    /// How much its log has written in this life, where that is on a disk.
    pub fn log_statistics(&self) -> Option<LogStatistics> {
        let log = self.log.as_ref()?;
        Some(log.file().shared().statistics())
    }

    /// The server below, which goes on. A machine that others replace is none any more.
    pub fn into_server(self) -> RunningServer {
        self.server
    }

    /// Ends it; `false` when some answers could not be delivered.
    pub fn shutdown(self) -> bool {
        drop(self.agent);
        // Answers that wait for the disk are given first.
        drop(self.log);
        self.server.shutdown()
    }
}

/// A server that is about to start: the handlers are there, the memory is not.
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

/// Empty tables in the regions of a server that has started, and so many participants over them.
fn tables_of(
    specs: &[TableSpec],
    regions: &[Region],
    count: usize,
) -> Result<Vec<TableParticipant>, StoreServerError> {
    let registered: Option<Vec<_>> = regions.iter().map(Region::registered).collect();
    let Some(registered) = registered else {
        let words = "a region of the store was not registered".to_owned();
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
