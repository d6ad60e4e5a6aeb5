//! Opening a database: every machine is asked to describe itself, and together they must be one database.

use std::sync::Arc;
use std::time::Duration;

use super::view::{view_of, Remote, RemoteMachine, View};
use super::{Cluster, Database, OpenError, DEADLINE};
use crate::host::{Here, Host};
use crate::membership::Configuration;
use crate::placement::Placement;
use crate::protocol::{Commit, Protocol, Validate};
use crate::server::catalogue::{region_name, Catalogue};
use crate::server::{TableSpec, CATALOGUE};
use crate::types::MachineId;
use dunlin_rpc::{Client, ClientBuilder, Preset, ThreadFuture};
use dunlin_verbs::thread;

/// Time that a starting machine may take to describe itself.
const OPENING: Duration = Duration::from_secs(10);
/// Pause between two requests.
const PAUSE: Duration = Duration::from_millis(20);
/// Time that connecting to a machine may take. A thread that runs many transactions waits meanwhile.
const CONNECTING: Duration = Duration::from_secs(2);
/// The largest number of machines whose memory `auto` reads. With more, each machine gets so few requests of a thread
/// at once that one datagram queue pair, with one doorbell for all machines, is worth more than reads that bypass their
/// processors (`docs/notes/auto.md`).
const READ_MOST: usize = 8;

/// Options for opening a database. Created by [`Database::builder`].
#[derive(Debug)]
#[must_use = "a database is not opened until open() is called"]
pub struct DatabaseBuilder {
    pub(super) protocol: String,
    pub(super) client: ClientBuilder,
    pub(super) deadline: Duration,
    pub(super) alone: bool,
    /// The host of the program.
    pub(super) host: Arc<dyn Host>,
}

impl Default for DatabaseBuilder {
    fn default() -> Self {
        Self {
            protocol: "auto".to_owned(),
            client: Client::builder(),
            deadline: DEADLINE,
            alone: false,
            host: Arc::new(Here),
        }
    }
}

impl DatabaseBuilder {
    /// The protocol: `fasst`, `flocktx`, `scaletx`, `scaletx-o`, or `auto`, which is the default.
    pub fn protocol(mut self, name: &str) -> Self {
        self.protocol = name.to_owned();
        self
    }

    /// The RPC preset of the calls to the machines.
    pub fn preset(mut self, preset: Preset) -> Self {
        self.client = self.client.preset(preset);
        self
    }

    /// Uses this device; opening fails if it cannot be used.
    pub fn device(mut self, name: &str) -> Self {
        self.client = self.client.device(name);
        self
    }

    /// Time within which a transaction may be retried: 5 s by default.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Sends each request of a thread separately, as with FLOCK's interface, where a coroutine sends and waits. By
    /// default everything that a thread's transactions want to send between two polls is sent together.
    pub fn one_by_one(mut self, alone: bool) -> Self {
        self.alone = alone;
        self
    }

    /// Changes any other option of the RPC clients.
    pub fn client(mut self, change: impl FnOnce(ClientBuilder) -> ClientBuilder) -> Self {
        self.client = change(self.client);
        self
    }

    /// Opens the database whose machines are at these addresses.
    ///
    /// # Errors
    /// When one of them cannot be reached, or they are not the machines of one database.
    pub fn open<A: AsRef<str>>(
        self,
        addresses: impl IntoIterator<Item = A>,
    ) -> Result<Database, OpenError> {
        let given: Vec<String> = addresses
            .into_iter()
            .map(|address| address.as_ref().to_owned())
            .collect();
        let (this, named) = self.decided(given.len())?;
        let mut found: Vec<(Catalogue, Client, String)> = Vec::new();
        let mut unreached = None;
        for address in given.iter().cloned() {
            let builder = this.client.clone().connect_timeout(CONNECTING);
            let asked = this.host.connect(builder, &address);
            let asked = asked.map_err(|source| OpenError::Connect {
                address: address.clone(),
                source: Box::new(source),
            });
            match asked.and_then(|client| Ok((ask(&client, &address)?, client))) {
                Ok((catalogue, client)) => found.push((catalogue, client, address)),
                Err(error) => drop(unreached.get_or_insert(error)),
            }
        }
        found.sort_by_key(|(catalogue, ..)| catalogue.machine);
        let replicated = found.iter().any(|(catalogue, ..)| catalogue.replicated);
        match unreached {
            Some(error) if !replicated => return Err(error),
            _ if replicated => return this.open_replicated(named, found, given),
            _ => {}
        }
        check(&found)?;
        let Some((first, ..)) = found.first() else {
            return Err(OpenError::NoAddress);
        };
        let (tables, replicas) = (first.tables.clone(), first.replicas);
        let machines = found.into_iter().enumerate();
        let machines = machines.map(|(number, (catalogue, client, address))| RemoteMachine {
            id: MachineId(number as u16),
            client,
            address,
            incarnation: catalogue.incarnation,
            regions: Vec::new(),
        });
        this.of_machines(named, (tables, replicas), machines.collect())
    }

    /// Like [`DatabaseBuilder::open`], but returns a future: a separate thread opens the database, so no thread of an
    /// executor blocks.
    pub fn open_async<A: Into<String>>(
        self,
        addresses: impl IntoIterator<Item = A>,
    ) -> ThreadFuture<Result<Database, OpenError>> {
        let addresses: Vec<String> = addresses.into_iter().map(Into::into).collect();
        let failed = |error: std::io::Error| Err(OpenError::Thread(error.to_string()));
        ThreadFuture::start("dunlin-open", failed, move || self.open(addresses))
    }

    /// Opens the database that consists of exactly these machines, in order.
    pub(super) fn of_machines(
        self,
        named: Option<Protocol>,
        (tables, replicas): (Vec<TableSpec>, u16),
        mut machines: Vec<RemoteMachine>,
    ) -> Result<Database, OpenError> {
        let addresses: Vec<_> = machines.iter().map(|m| m.address.clone()).collect();
        let placement = Placement::round(machines.len() as u16, replicas).map_err(|error| {
            OpenError::Description {
                address: addresses.join(", "),
                why: error.to_string(),
            }
        })?;
        let protocol = choose(named, &mut machines, &tables)?;
        let view = View {
            configuration: None,
            placement,
            machines,
        };
        let below = (addresses, self.client);
        let host = (self.alone, Arc::clone(&self.host));
        let remote = Remote::new((protocol, tables), below, host, view);
        Ok(Database::new(Cluster::Remote(remote), protocol, self.host).within(self.deadline))
    }

    /// Returns the protocol by name, `None` for `auto`, and RPC clients that support what it needs with this number of
    /// machines. `auto` uses the machines' memory if it is accessible and there are few machines.
    pub(super) fn decided(
        mut self,
        machines: usize,
    ) -> Result<(Self, Option<Protocol>), OpenError> {
        let named = match self.protocol.as_str() {
            "auto" => None,
            name => {
                let found = Protocol::named(name);
                Some(found.ok_or_else(|| OpenError::NoProtocol(name.to_owned()))?)
            }
        };
        self.client = match named {
            None if machines > READ_MOST => self.client.servers(machines),
            None => self.client.one_sided(true),
            Some(protocol) if uses_memory(protocol) => self.client.one_sided(true),
            Some(_) => self.client,
        };
        Ok((self, named))
    }

    /// Opens a database whose machines are replaced when they fail: any of them that serves knows the other members.
    fn open_replicated(
        self,
        named: Option<Protocol>,
        found: Vec<(Catalogue, Client, String)>,
        given: Vec<String>,
    ) -> Result<Database, OpenError> {
        if let Some(protocol) = named.filter(|protocol| protocol.commit == Commit::Write) {
            return Err(OpenError::LateWrites(protocol.name));
        }
        let until = thread::now() + OPENING;
        let client = self.client.clone().connect_timeout(CONNECTING);
        let mut why = None;
        let (told, tables, view, protocol) = loop {
            // The epoch that a machine serves may have ended since the request.
            let asked = found.iter().filter_map(|(_, client, address)| {
                let catalogue = ask(client, address).ok()?;
                Some((catalogue.configuration?, catalogue.tables))
            });
            if let Some((told, tables)) = asked.max_by_key(|(of, _)| of.epoch) {
                match reach(&told, (&client, &*self.host), named, &tables) {
                    Ok((view, protocol)) => break (told, tables, view, protocol),
                    // A member that has failed is removed from the configuration soon.
                    Err(error @ OpenError::Connect { .. }) => why = Some(error),
                    Err(error) => return Err(error),
                }
            }
            if thread::now() > until {
                return Err(why.unwrap_or(OpenError::NotServed {
                    within: OPENING,
                    addresses: given,
                }));
            }
            thread::sleep(PAUSE);
        };
        let addresses = told.members.iter().map(|m| m.address.clone()).collect();
        let host = (self.alone, Arc::clone(&self.host));
        let remote = Remote::new((protocol, tables), (addresses, client), host, view);
        Ok(Database::new(Cluster::Remote(remote), protocol, self.host).within(self.deadline))
    }
}

/// Returns the named protocol, or the best available one, with the memory that it needs attached.
fn choose(
    named: Option<Protocol>,
    machines: &mut [RemoteMachine],
    tables: &[TableSpec],
) -> Result<Protocol, OpenError> {
    let mut attach_all = |protocol: Protocol| {
        let mut each = machines.iter_mut();
        each.try_for_each(|machine| attach(machine, tables, protocol))
    };
    match named {
        Some(protocol) => {
            if uses_memory(protocol) {
                attach_all(protocol)?;
            }
            Ok(protocol)
        }
        None => match attach_all(Protocol::AUTO_ONE_SIDED) {
            Ok(()) => Ok(Protocol::AUTO_ONE_SIDED),
            Err(_) => Ok(Protocol::AUTO_MESSAGES),
        },
    }
}

/// Connects to all members, with the named protocol or the best available one.
fn reach(
    told: &Configuration,
    client: (&ClientBuilder, &dyn Host),
    named: Option<Protocol>,
    tables: &[TableSpec],
) -> Result<(View, Protocol), OpenError> {
    let with = |protocol| Ok((view_of(told.clone(), client, protocol, tables)?, protocol));
    match named {
        Some(protocol) => with(protocol),
        None => match with(Protocol::AUTO_ONE_SIDED) {
            Err(OpenError::OneSided { .. }) => with(Protocol::AUTO_MESSAGES),
            other => other,
        },
    }
}

pub(super) fn uses_memory(protocol: Protocol) -> bool {
    protocol.validate == Validate::Read || protocol.commit == Commit::Write
}

/// Asks a machine to describe itself. One that is still creating its tables is asked again.
pub(super) fn ask(client: &Client, address: &str) -> Result<Catalogue, OpenError> {
    let until = thread::now() + OPENING;
    let answer = loop {
        match client.call(CATALOGUE, &[]) {
            Ok(answer) => break answer,
            Err(dunlin_rpc::CallError::Handler { .. }) if thread::now() < until => {
                thread::sleep(PAUSE);
            }
            Err(source) => {
                let address = address.to_owned();
                let source = Box::new(source);
                return Err(OpenError::Ask { address, source });
            }
        }
    };
    Catalogue::decode(&answer).map_err(|error| OpenError::Description {
        address: address.to_owned(),
        why: error.to_string(),
    })
}

/// Checks that these are all machines of one database, in order.
fn check(found: &[(Catalogue, Client, String)]) -> Result<(), OpenError> {
    for (number, (catalogue, _, address)) in found.iter().enumerate() {
        let first = &found[0].0;
        let what = if usize::from(catalogue.machine) != number
            || usize::from(catalogue.machines) != found.len()
        {
            format!(
                "machine {} of {}, but {} addresses were given",
                catalogue.machine,
                catalogue.machines,
                found.len()
            )
        } else if catalogue.tables != first.tables || catalogue.replicas != first.replicas {
            "part of a database with other tables or a different number of copies".to_owned()
        } else {
            continue;
        };
        return Err(OpenError::Membership {
            address: address.clone(),
            what,
        });
    }
    Ok(())
}

pub(super) fn attach(
    machine: &mut RemoteMachine,
    tables: &[TableSpec],
    protocol: Protocol,
) -> Result<(), OpenError> {
    let client = &machine.client;
    let attached = tables
        .iter()
        .map(|spec| client.attach(&region_name(machine.incarnation, spec.id)));
    let attached: Result<Vec<_>, _> = attached.collect();
    machine.regions = attached.map_err(|source| OpenError::OneSided {
        protocol: protocol.name,
        address: machine.address.clone(),
        source: Box::new(source),
    })?;
    Ok(())
}
