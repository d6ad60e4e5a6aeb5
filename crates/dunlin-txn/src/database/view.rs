//! The current machines of a database: the members, and the connections to them.
//!
//! If machines are replaced when they fail, a thread asks them for the membership: at long intervals, and more often
//! while something fails. Drivers switch to the configuration that it finds.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use dunlin_rpc::{Client, ClientBuilder, ConnectError, Peers, RemoteRegion};
use dunlin_verbs::thread;

use super::open::{attach, uses_memory};
use super::{OpenError, ATTEMPTS};
use crate::coordinator::Config;
use crate::driver::remote::RemoteWire;
use crate::driver::wire::{Source, Way};
use crate::host::Host;
use crate::membership::{Configuration, Epoch};
use crate::placement::Placement;
use crate::protocol::{Log, Protocol};
use crate::server::catalogue::Catalogue;
use crate::server::{TableSpec, CATALOGUE};
use crate::types::MachineId;

/// Interval between two requests in normal operation; the next one applies after a failure.
const CALM: Duration = Duration::from_millis(200);
const SUSPICIOUS: Duration = Duration::from_millis(5);
/// Number of requests at the short interval after a failure: they cover more time than most leases, but are bounded,
/// since the failure may not lead to a change of the membership.
const SUSPICIONS: u32 = 400;
/// Time that a machine may take to answer, initially and at most: one that was stopped never answers, and others are
/// still to be asked.
const ANSWER_WITHIN: (Duration, Duration) = (Duration::from_millis(25), Duration::from_millis(400));

/// A machine as seen by clients.
#[derive(Clone, Debug)]
pub(super) struct RemoteMachine {
    pub(super) id: MachineId,
    pub(super) client: Client,
    pub(super) address: String,
    pub(super) incarnation: u64,
    pub(super) regions: Vec<RemoteRegion>,
}

/// The machines of one epoch.
#[derive(Debug)]
pub(super) struct View {
    /// `None` unless machines are replaced.
    pub(super) configuration: Option<Configuration>,
    pub(super) placement: Placement,
    pub(super) machines: Vec<RemoteMachine>,
}

impl View {
    pub(super) fn epoch(&self) -> Epoch {
        let configuration = self.configuration.as_ref();
        configuration.map_or(Epoch::FIXED, |of| of.epoch)
    }
}

/// Machines reached by RPC.
#[derive(Debug)]
pub(super) struct Remote {
    pub(super) protocol: Protocol,
    pub(super) tables: Vec<TableSpec>,
    /// By the number of the machine, if machines are not replaced.
    addresses: Vec<String>,
    pub(super) client: ClientBuilder,
    /// Each request is sent separately.
    alone: bool,
    host: Arc<dyn Host>,
    view: Mutex<Arc<View>>,
    epoch: AtomicU64,
    /// Number of requests left at the short interval.
    suspicions: AtomicU32,
}

impl Remote {
    pub(super) fn new(
        (protocol, tables): (Protocol, Vec<TableSpec>),
        (addresses, client): (Vec<String>, ClientBuilder),
        (alone, host): (bool, Arc<dyn Host>),
        view: View,
    ) -> Arc<Remote> {
        let is_replicated = view.configuration.is_some();
        let remote = Arc::new(Remote {
            protocol,
            tables,
            addresses,
            client,
            alone,
            host,
            epoch: AtomicU64::new(view.epoch().0),
            view: Mutex::new(Arc::new(view)),
            suspicions: AtomicU32::new(0),
        });
        if is_replicated {
            let weak = Arc::downgrade(&remote);
            let watching = Box::new(move || watch(&weak));
            if let Err(error) = remote.host.start("dunlin-members", watching) {
                tracing::warn!(%error, "cannot follow changes of the membership");
            }
        }
        remote
    }

    /// Addresses by the number of the machine, as far as they are known.
    pub(super) fn addresses(&self) -> Vec<String> {
        match &self.view().configuration {
            Some(of) => of.members.iter().map(|m| m.address.clone()).collect(),
            None => self.addresses.clone(),
        }
    }

    pub(super) fn view(&self) -> Arc<View> {
        Arc::clone(&thread::lock(&self.view))
    }

    /// Returns a connection to the machines for the coordinator of this number.
    pub(super) fn way(&self, coordinator: u64) -> Result<Way, ConnectError> {
        let view = self.view();
        let peers = Peers::reachable(view.machines.iter().map(|machine| &machine.client))?;
        let machine =
            |machine: &RemoteMachine| (machine.id, machine.incarnation, machine.regions.clone());
        let database = view.configuration.as_ref().map(|of| of.database);
        let machines = view.machines.iter().map(machine).collect();
        let log_replicas = match (self.protocol.log, &view.configuration) {
            (Log::Coordinator, Some(of)) => of.log_replicas(coordinator),
            (Log::Coordinator, None) => super::log_replicas(coordinator, &view.placement),
            _ => Vec::new(),
        };
        let config = Config {
            protocol: self.protocol,
            placement: view.placement.clone(),
            log_replicas,
            epoch: view.epoch(),
            attempts: ATTEMPTS,
            mistakes: crate::Mistakes::NONE,
        };
        let wire = RemoteWire::new(peers, database, machines, self.alone);
        Ok((Box::new(wire), Arc::new(config)))
    }

    /// Switches to a configuration reported by a machine, once all of its members are connected.
    fn follow(&self, of: Configuration) -> Result<(), OpenError> {
        let view = view_of(of, (&self.client, &*self.host), self.protocol, &self.tables)?;
        let epoch = view.epoch();
        *thread::lock(&self.view) = Arc::new(view);
        self.epoch.store(epoch.0, Ordering::Release);
        self.suspicions.store(0, Ordering::Release);
        tracing::info!(%epoch, "the membership has changed");
        Ok(())
    }
}

/// Connects to all members of a configuration.
pub(super) fn view_of(
    of: Configuration,
    (client, host): (&ClientBuilder, &dyn Host),
    protocol: Protocol,
    tables: &[TableSpec],
) -> Result<View, OpenError> {
    let placement = of.placement().map_err(|error| OpenError::Description {
        address: String::new(),
        why: error.to_string(),
    })?;
    let mut machines = Vec::new();
    for (id, member) in of.present() {
        let address = member.address.clone();
        let connected = host.connect(client.clone(), &address);
        let mut machine = RemoteMachine {
            id,
            client: connected.map_err(|source| OpenError::Connect {
                address: address.clone(),
                source: Box::new(source),
            })?,
            address,
            incarnation: member.incarnation,
            regions: Vec::new(),
        };
        if uses_memory(protocol) {
            attach(&mut machine, tables, protocol)?;
        }
        machines.push(machine);
    }
    Ok(View {
        configuration: Some(of),
        placement,
        machines,
    })
}

impl Source for Remote {
    fn newer(&self, than: Epoch, coordinator: u64) -> Option<Way> {
        if self.epoch.load(Ordering::Acquire) <= than.0 {
            return None;
        }
        self.way(coordinator).ok()
    }

    fn suspect(&self) {
        self.suspicions.store(SUSPICIONS, Ordering::Release);
    }
}

/// Asks machines for the membership until the database is gone.
fn watch(remote: &Weak<Remote>) {
    let mut clients: BTreeMap<String, Client> = BTreeMap::new();
    let mut turn = 0;
    let mut waited = Duration::ZERO;
    loop {
        thread::sleep(SUSPICIOUS);
        waited += SUSPICIOUS;
        let Some(remote) = remote.upgrade() else {
            return;
        };
        let suspicions = remote.suspicions.load(Ordering::Acquire);
        if waited < CALM && suspicions == 0 {
            continue;
        }
        // A suspicion raised concurrently may be counted one request short.
        let left = suspicions.saturating_sub(1);
        remote.suspicions.store(left, Ordering::Release);
        waited = Duration::ZERO;
        let addresses = remote.addresses();
        if addresses.is_empty() {
            return;
        }
        let address = &addresses[turn % addresses.len()];
        // Each is tried with a short timeout before any is waited for longer.
        let round = u32::try_from(turn / addresses.len()).unwrap_or(u32::MAX);
        let patience = ANSWER_WITHIN.0.saturating_mul(2u32.saturating_pow(round));
        let patience = patience.min(ANSWER_WITHIN.1);
        let known = match clients.remove(address) {
            Some(client) => Ok(client),
            None => {
                let client = remote.client.clone().connect_timeout(patience);
                remote.host.connect(client, address)
            }
        };
        let told = known.ok().and_then(|client| {
            let answer = client.call_within(patience, CATALOGUE, &[]).ok()?;
            let told = Catalogue::decode(&answer).ok()?.configuration;
            clients.insert(address.clone(), client);
            told
        });
        let Some(told) = told else {
            turn += 1;
            continue;
        };
        turn %= addresses.len();
        if told.epoch.0 > remote.epoch.load(Ordering::Acquire) {
            if let Err(error) = remote.follow(told) {
                tracing::debug!(%error, "cannot connect to a member");
            }
        }
    }
}
