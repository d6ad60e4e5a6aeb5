//! Machines of a database on simulated hosts that replace each other, and the threads of its clients.
#![allow(missing_docs, unreachable_pub)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dunlin::txn::membership::memory::MemoryMembership;
use dunlin::txn::membership::Role;
use dunlin::txn::server::{LocalStore, Replicated, StoreConfig, TableSpec};
use dunlin::txn::{Database, DatabaseBuilder, Key, LocalAddresses, Value};
use dunlin::Server;
use dunlin_sim::{Cluster, HostId, HostParameters, NicParameters, SwitchParameters};

pub const MACHINES: u16 = 3;
/// The host on which a machine restarts, and those of clients.
pub const SPARE: usize = 3;
pub const CLIENT_HOSTS: std::ops::Range<usize> = 4..6;
/// The core of threads that start something; pollers have those before it.
const BEGINNER: usize = 16;
const STEP_NS: u64 = 1_000_000;
/// No step takes this much virtual time, unless it hangs.
const BOUND_MS: u64 = 20_000;
/// Latency of the membership.
const AWAY: Duration = Duration::from_micros(200);

/// The result of a thread when it has ended.
pub type Place<T> = Arc<Mutex<Option<T>>>;

/// Keys with their values.
pub type Rows = Box<dyn Iterator<Item = (Key, Value)>>;

/// Settings of all machines.
#[derive(Clone)]
pub struct Plan {
    pub tables: Vec<TableSpec>,
    /// Initial rows of the database.
    pub rows: Arc<dyn Fn() -> Rows + Send + Sync>,
    pub lease: Duration,
    pub pollers: usize,
}

pub struct World {
    pub cluster: Cluster,
    pub membership: MemoryMembership,
    addresses: LocalAddresses,
    plan: Plan,
    /// Number of threads of clients that have not ended.
    pub running: Arc<AtomicU64>,
    pub now_ms: u64,
}

impl World {
    pub fn new(seed: u64, plan: Plan) -> Self {
        let (host, nic) = (HostParameters::epyc_7452(), NicParameters::connectx_5());
        let switch = SwitchParameters::z9264f();
        Self {
            cluster: Cluster::star(seed, CLIENT_HOSTS.end, &host, &nic, &switch),
            membership: MemoryMembership::default().away(AWAY),
            addresses: LocalAddresses::default(),
            plan,
            running: Arc::default(),
            now_ms: 0,
        }
    }

    pub fn host(&self, number: usize) -> HostId {
        self.cluster.hosts()[number]
    }

    /// Starts a machine in a thread of a host. It runs as long as the returned value is kept.
    pub fn start(&self, machine: u16, host: usize) -> Place<LocalStore> {
        let device = self.cluster.device(self.host(host));
        let (addresses, membership) = (self.addresses.clone(), self.membership.clone());
        let plan = self.plan.clone();
        self.spawn((host, BEGINNER), move || {
            let config = StoreConfig {
                machine,
                machines: MACHINES,
                replicas: MACHINES,
                tables: plan.tables.clone(),
                one_sided_writes: false,
            };
            let mut replicated = Replicated::new(membership);
            replicated.lease = plan.lease;
            replicated.advertise = Some(format!("sim://machine{machine}/{host}"));
            let server = Server::unbound().pollers(plan.pollers).pin_pollers(0);
            let (here, shares) = ((device, &addresses), plan.pollers);
            let config = (&config, shares);
            LocalStore::serve_replicated_on(here, server, config, replicated, || (plan.rows)())
                .unwrap()
        })
    }

    /// Starts a thread on a client host, which opens a database of its own.
    pub fn client<T: Send + 'static>(
        &self,
        (host, core): (usize, usize),
        builder: DatabaseBuilder,
        run: impl FnOnce(Database) -> T + Send + 'static,
    ) -> Place<T> {
        let device = self.cluster.device(self.host(host));
        let (addresses, running) = (self.addresses.clone(), Arc::clone(&self.running));
        running.fetch_add(1, Ordering::Relaxed);
        self.spawn((host, core), move || {
            let machines = (0..MACHINES).map(|n| format!("sim://machine{n}/{n}"));
            let opened = builder.on(&device, &addresses).open(machines);
            let ran = run(opened.unwrap());
            running.fetch_sub(1, Ordering::Relaxed);
            ran
        })
    }

    fn spawn<T: Send + 'static>(
        &self,
        (host, core): (usize, usize),
        run: impl FnOnce() -> T + Send + 'static,
    ) -> Place<T> {
        let place: Place<T> = Arc::default();
        let put = Arc::clone(&place);
        self.cluster.spawn_thread(self.host(host), core, move || {
            let ran = run();
            *put.lock().unwrap() = Some(ran);
        });
        place
    }

    pub fn run_until(&mut self, what: &str, mut is: impl FnMut() -> bool) {
        let began = self.now_ms;
        while !is() {
            self.run_for(1);
            assert!(
                self.now_ms - began < BOUND_MS,
                "{what}: not within {BOUND_MS} ms"
            );
        }
    }

    pub fn run_for(&mut self, ms: u64) {
        self.cluster.run_for(ms * STEP_NS);
        self.now_ms += ms;
    }
}

/// Whether the database serves with all machines in these roles.
pub fn serves(membership: &MemoryMembership, is: impl Fn(usize, Role) -> bool) -> bool {
    membership.configuration().is_some_and(|of| {
        let mut members = of.members.iter().enumerate();
        of.serving && members.all(|(number, member)| is(number, member.role))
    })
}

pub fn is_whole(membership: &MemoryMembership) -> bool {
    serves(membership, |_, role| role == Role::Whole)
}
