//! Transactions: the unchanged coordinators and participants of `dunlin-txn`, on simulated hosts.
//!
//! A client's thread runs many transactions at once by a [`dunlin::txn::Driver`], as a thread of FaSST or FLOCKTX runs
//! coroutines. A machine's participants are called by the pollers of its server. Their work beyond verbs and calls is
//! charged by `dunlin-txn` itself (`effort.rs` there).

mod measuring;
mod thread;
mod work;

use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

use dunlin::txn::server::{LocalStore, StoreConfig};
use dunlin::txn::workload::Workload;
use dunlin::txn::Database;
use dunlin::{ChannelConfig, Client, Grouping, Pace, Preset, Server, WaitMode};
use dunlin_sim::{Cluster, HostId};
use dunlin_verbs::Device;

use super::rpc::{end_in, take_in};
use super::shared::Shared;
pub use measuring::TransactionsResult;
use thread::{Counts, Thread};
pub use work::Work;

/// Virtual milliseconds within which threads end: longer than the detection of lost calls takes.
const ENDING_MS: usize = 4_000;

/// Settings of the machines. The first hosts of the cluster are the storing machines.
#[derive(Clone, Debug)]
pub struct Transactions {
    /// Preset of the requests.
    pub preset: Preset,
    /// Protocol of validation, logging and commit: a name of `dunlin-txn`.
    pub protocol: &'static str,
    /// Whether each request of a thread is sent on its own.
    pub alone: bool,
    /// Number of machines that store.
    pub stores: usize,
    /// Number of copies of each key.
    pub replicas: usize,
    /// Whether the storing machines also run transactions, on the cores behind those that poll; otherwise the other
    /// machines do.
    pub symmetric: bool,
    /// Maximum number of client machines.
    pub most_machines: usize,
    /// Threads of a client machine, each in a process of its own.
    pub threads: usize,
    /// Maximum number of threads in all.
    pub most_threads: usize,
    /// Concurrent transactions of a thread.
    pub transactions: u16,
    /// Polling cores of a machine.
    pub pollers: usize,
    /// Maximum number of active queue pairs of a machine (FLOCK's MAX_AQP).
    pub most_active: usize,
    /// Maximum number of calls of a thread outstanding to a machine.
    pub max_outstanding: usize,
    /// Bytes of a ring, or of its counterpart in a pool.
    pub ring_bytes: usize,
    /// Whether machines change turns together, with this number of groups (ScaleRPC §4.2); their clocks are set to the
    /// first machine's at this interval, or only once.
    pub together: Option<(usize, Option<Duration>)>,
    /// ScaleRPC's groups and turns.
    pub grouping: Grouping,
    /// Whether presets over datagrams run until their receive queues have been used once.
    pub uses_queues: bool,
    /// The workload.
    pub work: Work,
}

/// A cluster with running storing machines and clients.
#[derive(Debug)]
pub struct TransactionsBench {
    cluster: Cluster,
    plan: Transactions,
    stores: Vec<LocalStore>,
    databases: Vec<(Database, HostId)>,
    shared: Arc<Shared>,
    counts: Arc<Counts>,
}

impl TransactionsBench {
    /// Puts machines and clients on the hosts of a cluster; the threads begin when its time next advances, paced.
    ///
    /// # Panics
    /// When a device, the RPC or a table refuses.
    pub fn new(cluster: Cluster, plan: &Transactions) -> Self {
        let hosts = cluster.hosts();
        let workload = plan.work.workload();
        let pace = |(groups, _)| Pace::new(groups, plan.grouping.slice);
        let paces: Vec<Option<Pace>> = (0..plan.stores).map(|_| plan.together.map(pace)).collect();
        let stores: Vec<LocalStore> = (0..plan.stores)
            .map(|machine| {
                let what = (&*workload, paces[machine].as_ref());
                let store = serve(&cluster, hosts[machine], plan, machine, what);
                store.load(workload.load()).expect("room for all");
                store
            })
            .collect();
        let (first, places) = match plan.symmetric {
            true => (plan.pollers, &hosts[..plan.stores]),
            false => (0, &hosts[plan.stores..]),
        };
        let places: Vec<HostId> = places.iter().copied().take(plan.most_machines).collect();
        let open = |&host: &HostId| {
            let database = Database::builder()
                .protocol(plan.protocol)
                .one_by_one(plan.alone)
                .client(|client| {
                    let client = client.preset(plan.preset).channel(channel(plan));
                    client
                        .lanes(plan.threads.clamp(1, 256))
                        .servers(plan.stores)
                })
                .open_on(&cluster.device(host), &stores)
                .expect("a database");
            (database, host)
        };
        let databases: Vec<(Database, HostId)> = places.iter().map(open).collect();
        let shared = Arc::new(Shared::default());
        shared.paced.store(true, Ordering::Relaxed);
        for (at, pace) in paces.into_iter().enumerate().skip(1) {
            let Some((pace, (_, often))) = pace.zip(plan.together) else {
                break;
            };
            let first = Client::builder()
                .connect_on(cluster.device(hosts[at]), &stores[0].server().acceptor());
            let first = first.expect("a client");
            let running = Arc::clone(&shared);
            running.running.fetch_add(1, Ordering::Relaxed);
            let core = plan.pollers % cluster.device(hosts[at]).cores();
            cluster.spawn_thread(hosts[at], core, move || {
                follow(&pace, first, often, &running)
            });
        }
        let counts = Arc::new(Counts::default());
        let mut came = databases.len();
        let mut spawned = 0;
        // One thread of each in turn: as clients of the same age arrive.
        for number in 0..plan.threads {
            for (machine, (database, host)) in databases.iter().enumerate() {
                if spawned == plan.most_threads {
                    break;
                }
                spawned += 1;
                let preset = match database.connection() {
                    Some(connection) => connection.preset,
                    None => plan.preset,
                };
                take_in(&cluster, preset, &mut came, plan.pollers);
                came += 1;
                let coordinator = (number * databases.len() + machine) as u64;
                let driver = database.driver_numbered(coordinator, plan.transactions);
                let load = Thread {
                    driver: driver.expect("lanes"),
                    workload: plan.work.workload(),
                    random: fastrand::Rng::with_seed(coordinator + 1),
                    begun: vec![None; usize::from(plan.transactions)],
                    shared: Arc::clone(&shared),
                    counts: Arc::clone(&counts),
                };
                shared.running.fetch_add(1, Ordering::Relaxed);
                let core = (first + number) % cluster.device(*host).cores();
                cluster.spawn_thread(*host, core, move || load.run());
            }
        }
        Self {
            cluster,
            plan: plan.clone(),
            stores,
            databases,
            shared,
            counts,
        }
    }

    /// The preset of calls, as `auto` has chosen it, and the protocol.
    pub fn chosen(&self) -> (Option<Preset>, &'static str) {
        let (database, _) = &self.databases[0];
        let preset = database.connection().map(|connection| connection.preset);
        (preset, database.protocol().name)
    }

    /// Ends the threads: each waits for the end of what it has begun. Returns the number of transactions that failed.
    ///
    /// # Panics
    /// When a thread does not end.
    pub fn stop(&self) -> u64 {
        self.shared.stop(&self.cluster, ENDING_MS);
        self.shared.failed.load(Ordering::Relaxed)
    }
}

impl Drop for TransactionsBench {
    fn drop(&mut self) {
        let databases = std::mem::take(&mut self.databases);
        if std::thread::panicking() {
            // Waiting for a thread that panicked would never end.
            databases.into_iter().for_each(std::mem::forget);
            return;
        }
        self.stop();
        end_in(&self.cluster, databases);
        let hosts = self.cluster.hosts();
        end_in(
            &self.cluster,
            std::mem::take(&mut self.stores).into_iter().zip(hosts),
        );
    }
}

fn channel(plan: &Transactions) -> ChannelConfig {
    ChannelConfig {
        ring_bytes: plan.ring_bytes,
        max_outstanding: plan.max_outstanding,
        wait: WaitMode::Spin,
        ..ChannelConfig::default()
    }
}

fn serve(
    cluster: &Cluster,
    host: HostId,
    plan: &Transactions,
    machine: usize,
    (workload, pace): (&dyn Workload, Option<&Pace>),
) -> LocalStore {
    let mut server = Server::unbound()
        .channel(channel(plan))
        .pollers(plan.pollers)
        .pin_pollers(0)
        .max_active_queue_pairs(plan.most_active)
        .grouping(plan.grouping);
    if let Some(pace) = pace {
        server = server.pace(pace);
    }
    let config = StoreConfig {
        machine: machine as u16,
        machines: plan.stores as u16,
        replicas: plan.replicas as u16,
        tables: workload.tables(),
        one_sided_writes: plan.protocol == "scaletx",
    };
    let device = cluster.device(host);
    // One for each coordinator, so that no poller waits for another, as in FaSST.
    let machines = match plan.symmetric {
        true => plan.stores,
        false => cluster.hosts().len() - plan.stores,
    };
    let threads = plan.threads * machines.min(plan.most_machines);
    let participants = threads.min(plan.most_threads);
    LocalStore::serve_on(device, server, &config, participants).expect("a machine")
}

/// Sets the pace of a machine to that of the first one, once and then at the interval `often`.
fn follow(pace: &Pace, first: Client, often: Option<Duration>, shared: &Shared) {
    loop {
        if pace.synchronize(&first).is_err() {
            shared.failed.fetch_add(1, Ordering::Relaxed);
        }
        match often {
            Some(often) if !shared.stopping.load(Ordering::Relaxed) => {
                dunlin_verbs::thread::sleep(often)
            }
            _ => break,
        }
    }
    drop(first);
    shared.running.fetch_sub(1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use dunlin::txn::Protocol;
    use dunlin_sim::{HostParameters, NicParameters, SwitchParameters};

    fn plan(preset: Preset, protocol: &'static str) -> Transactions {
        Transactions {
            preset,
            protocol,
            alone: false,
            stores: 3,
            replicas: 3,
            symmetric: false,
            most_machines: usize::MAX,
            threads: 2,
            most_threads: usize::MAX,
            transactions: 4,
            pollers: 2,
            most_active: 256,
            max_outstanding: 64,
            ring_bytes: 64 << 10,
            together: None,
            grouping: Grouping::default(),
            uses_queues: false,
            work: Work::SmallBank {
                customers: 300,
                hot: 20,
                percent: 60,
            },
        }
    }

    fn cluster(machines: usize) -> Cluster {
        let (host, nic) = (HostParameters::epyc_7452(), NicParameters::connectx_5());
        Cluster::star(1, machines, &host, &nic, &SwitchParameters::z9264f())
    }

    #[test]
    fn transactions_commit_by_any_protocol_and_the_same_each_time() {
        for (preset, protocol) in [
            (Preset::Fasst, "fasst"),
            (Preset::Flock, "flocktx"),
            (Preset::ScaleRpc, "scaletx"),
            (Preset::RawWrite, "scaletx-o"),
            (Preset::Herd, "scaletx-o"),
            (Preset::Auto, "auto"),
        ] {
            let measured = || {
                let together = (preset == Preset::ScaleRpc).then_some((2, Some(thread::PACE)));
                let plan = Transactions {
                    together,
                    ..plan(preset, protocol)
                };
                let bench = TransactionsBench::new(cluster(5), &plan);
                let result = bench.measure(0, 200_000, 200_000);
                assert_eq!(bench.stop(), 0, "{preset}, {protocol}");
                result
            };
            let result = measured();
            assert!(result.mtps > 0.05, "{preset}, {protocol}: {result:?}");
            assert!(result.median_us > 1.0 && result.median_us <= result.p99_us);
            assert!(result.aborted > 0.0 && result.aborted < 0.9, "{result:?}");
            assert_eq!(measured().mtps, result.mtps, "{preset}, {protocol}");
        }
    }

    #[test]
    fn machines_store_and_run_transactions_at_once() {
        let plan = Transactions {
            symmetric: true,
            ..plan(Preset::Fasst, "fasst")
        };
        let bench = TransactionsBench::new(cluster(3), &plan);
        let result = bench.measure(0, 200_000, 200_000);
        assert!(result.mtps > 0.05, "{result:?}");
        assert!(result.server_cores > 1.0, "{result:?}");
        assert_eq!(bench.stop(), 0);
    }

    #[test]
    fn auto_reads_the_memory_of_few_machines_and_sends_datagrams_to_many() {
        for (stores, preset, protocol) in [
            (3, Preset::Auto, Protocol::AUTO_ONE_SIDED),
            (9, Preset::Fasst, Protocol::AUTO_MESSAGES),
        ] {
            let plan = Transactions {
                stores,
                symmetric: true,
                ..plan(Preset::Auto, "auto")
            };
            let bench = TransactionsBench::new(cluster(stores), &plan);
            let (chosen, _) = bench.chosen();
            assert_eq!(chosen, Some(preset), "{stores} machines");
            assert_eq!(bench.databases[0].0.protocol(), protocol);
            // A thread connects to each machine first.
            let result = bench.measure(0, 2_000_000, 200_000);
            assert!(result.mtps > 0.05, "{stores} machines: {result:?}");
            assert_eq!(bench.stop(), 0, "{stores} machines");
        }
    }

    #[test]
    fn one_poller_takes_in_many_clients_that_come_at_once() {
        for (preset, protocol) in [(Preset::Auto, "auto"), (Preset::Fasst, "fasst")] {
            let plan = Transactions {
                threads: 1,
                pollers: 1,
                ..plan(preset, protocol)
            };
            let bench = TransactionsBench::new(cluster(23), &plan);
            let result = bench.measure(0, 200_000, 200_000);
            assert!(result.mtps > 0.0, "{preset}: {result:?}");
            assert_eq!(bench.stop(), 0, "{preset}");
        }
    }
}
