//! Three machines as processes and clients in threads, each protocol over the RPC: histories are serializable, money is
//! conserved, and who is killed makes nobody wait for ever.
#[path = "../../dunlin-shm/tests/common/process.rs"]
mod process;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use dunlin_rpc::{Preset, Server};
use dunlin_txn::checker::History;
use dunlin_txn::server::{StoreConfig, StoreServer};
use dunlin_txn::workload::{Random, SmallBank, Workload};
use dunlin_txn::{Committed, Database, DatabaseError, Key, Report, Table, TransactionError};
use process::{listen, role, say, Other};

/// No run takes so long; a hang does.
const BOUND: Duration = Duration::from_secs(60);
const MACHINES: u16 = 3;
const CLIENTS: u64 = 3;
/// Transactions of a client that commit: of keys that are wanted by all at once many do not.
const COMMITTED: usize = 150;

fn load_of(name: &str) -> Box<dyn Workload> {
    match name {
        "random" => Box::new(Random::new(24)),
        _ => Box::new(SmallBank::new(30)),
    }
}

/// A machine, in a process of its own: `MACHINE DEVICE LOAD`.
fn machine(argument: &str) {
    let parts: Vec<&str> = argument.split(' ').collect();
    let load = load_of(parts[2]);
    let config = StoreConfig {
        machine: parts[0].parse().unwrap(),
        machines: MACHINES,
        replicas: 3,
        tables: load.tables(),
        one_sided_writes: true,
    };
    let builder = Server::bind("dunlin://127.0.0.1:0")
        .unwrap()
        .device(parts[1]);
    let store = StoreServer::serve(builder, config).unwrap();
    store.load(load.load()).unwrap();
    say(&store.server().address().to_string());
    while listen().is_some() {}
}

struct Cluster {
    machines: Vec<Other>,
    addresses: Vec<String>,
}

impl Cluster {
    fn start(test: &str, device: &str, load: &str) -> Cluster {
        let start = |n| Other::start(test, "machine", &format!("{n} {device} {load}"));
        let mut machines: Vec<Other> = (0..MACHINES).map(start).collect();
        let addresses = machines.iter_mut().map(Other::hear).collect();
        Cluster {
            machines,
            addresses,
        }
    }

    fn open(&self, protocol: &str, preset: Preset, device: &str) -> Database {
        let builder = Database::builder()
            .protocol(protocol)
            .preset(preset)
            .device(device);
        builder.open(&self.addresses).unwrap()
    }
}

/// Whether this process is another one, which has done its part.
fn is_other() -> bool {
    match role() {
        Some((role, argument)) if role == "machine" => {
            machine(&argument);
            true
        }
        _ => false,
    }
}

/// What one client saw.
#[derive(Default)]
struct Seen {
    history: History,
    aborted: usize,
}

impl Seen {
    fn take(&mut self, id: dunlin_txn::TransactionId, report: Report) {
        match report {
            Report::Ended(Ok(committed)) | Report::Settled(committed) => {
                self.history.unknown.remove(&id);
                self.history.committed.insert(id, committed);
            }
            Report::Ended(Err(TransactionError::Unknown { .. })) => {
                self.history.unknown.insert(id, Committed::default());
            }
            Report::Ended(Err(_)) => self.aborted += 1,
            Report::Undone => drop(self.history.unknown.remove(&id)),
        }
    }
}

fn client(database: &Database, mut load: Box<dyn Workload>, seed: u64) -> Seen {
    let mut driver = database.driver(8).unwrap();
    let mut random = fastrand::Rng::with_seed(seed);
    let mut seen = Seen::default();
    let began = Instant::now();
    while seen.history.committed.len() < COMMITTED || driver.running() > 0 {
        assert!(began.elapsed() < BOUND, "{driver:?}");
        while seen.history.committed.len() < COMMITTED && driver.free() > 0 {
            driver.begin(0, load.next(&mut random));
        }
        if !driver.poll(|_, id, report| seen.take(id, report)) {
            driver.rest();
        }
    }
    seen
}

fn balances(database: &Database, tables: [&str; 2]) -> i64 {
    let mut sum = 0;
    for name in tables {
        let table: Table<u64, i64> = database.table(name).unwrap();
        let keys: Vec<u64> = (0..30).collect();
        let found = database.read(|t| t.get_many(&table, &keys));
        let found: Result<Vec<Option<i64>>, DatabaseError> = found;
        sum += found.unwrap().into_iter().flatten().sum::<i64>();
    }
    sum
}

fn is_serializable(test: &str, protocol: &str, preset: Preset, device: &str) {
    if is_other() {
        return;
    }
    for load in ["random", "smallbank"] {
        let cluster = Cluster::start(test, device, load);
        let database = cluster.open(protocol, preset, device);
        let seed = dunlin_verbs::random::number().unwrap();
        println!("{protocol} {load}: seed {seed}");
        let seen: Vec<Seen> = std::thread::scope(|scope| {
            let run = |n| {
                let database = &database;
                scope.spawn(move || client(database, load_of(load), seed.wrapping_add(n)))
            };
            let threads: Vec<_> = (0..CLIENTS).map(run).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        let mut history = History {
            initial: load_of(load).load().collect::<BTreeMap<Key, _>>(),
            ..History::default()
        };
        let mut aborted = 0;
        for one in seen {
            history.committed.extend(one.history.committed);
            history.unknown.extend(one.history.unknown);
            aborted += one.aborted;
        }
        println!("{} committed, {aborted} aborted", history.committed.len());
        assert!(history.unknown.is_empty());
        assert!(history.committed.len() >= COMMITTED * CLIENTS as usize);
        if let Some(violation) = history.check().first() {
            panic!("{protocol} {load}, seed {seed}: {violation}");
        }
        if load == "smallbank" {
            let made: i64 = history.committed.values().map(SmallBank::made).sum();
            let sum = balances(&database, ["savings", "checking"]);
            assert_eq!(sum, 60 * 10_000 + made);
        }
    }
}

macro_rules! serializable {
    ($($name:ident: $protocol:expr, $preset:ident, $device:expr;)*) => {$(
        #[test]
        fn $name() {
            is_serializable(stringify!($name), $protocol, Preset::$preset, $device);
        }
    )*};
}

serializable! {
    fasst_over_datagrams: "fasst", Fasst, "shm";
    flocktx_over_connection_handles: "flocktx", Flock, "shm";
    scaletx_over_groups: "scaletx", ScaleRpc, "shm";
    scaletx_over_shared_handles: "scaletx", Flock, "shm";
    scaletx_o_over_rawwrite: "scaletx-o", RawWrite, "shm";
    auto_protocol_and_preset: "auto", Auto, "shm";
    fasst_over_roce: "fasst", Plain, "roce";
    flocktx_over_roce: "flocktx", Plain, "roce";
    scaletx_over_roce: "scaletx", Plain, "roce";
    auto_over_roce: "auto", Auto, "roce";
}

/// A machine that is killed under load: transactions that need it end with typed errors within a bound, and those that
/// do not go on.
#[test]
fn a_killed_machine_makes_nobody_wait() {
    if is_other() {
        return;
    }
    let mut cluster = Cluster::start("a_killed_machine_makes_nobody_wait", "shm", "smallbank");
    let database = cluster
        .open("auto", Preset::Auto, "shm")
        .within(Duration::from_secs(2));
    let table: Table<u64, i64> = database.table("checking").unwrap();
    let add = |key: u64| -> Result<(), DatabaseError> {
        database.run(|t| {
            let before = t.get(&table, &key)?.unwrap_or(0);
            t.put(&table, &key, &(before + 1))
        })
    };
    (0..30).for_each(|key| add(key).unwrap());
    let began = Instant::now();
    cluster.machines[2].kill();
    let mut unavailable = 0;
    for key in 0..6 {
        // Every key has a copy there.
        match add(key) {
            Err(DatabaseError::Unavailable {
                machine,
                address,
                why,
                ..
            }) => {
                assert_eq!((machine.0, &address), (2, &cluster.addresses[2]), "{why}");
                unavailable += 1;
            }
            Err(DatabaseError::UnknownOutcome {
                machine,
                transaction,
                ..
            }) => {
                assert_eq!(machine.0, 2);
                let wait = Duration::from_millis(1);
                assert_eq!(
                    database.outcome(transaction, wait),
                    dunlin_txn::Outcome::Unknown
                );
            }
            // A lock of a transaction whose outcome is unknown.
            Err(DatabaseError::Aborted { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
    // Keys whose primary lives are read as before, unless a lock is left on them.
    let read =
        |key: u64| -> Result<Option<i64>, DatabaseError> { database.read(|t| t.get(&table, &key)) };
    let readable = (6..30).filter(|key| read(*key).is_ok()).count();
    println!("{unavailable} unavailable, {readable} readable");
    assert!(readable >= 8 && began.elapsed() < BOUND);
}

/// A client that is killed: its locks stay, which others are told; all else goes on.
#[test]
fn a_killed_client_leaves_locks_and_no_more() {
    match role() {
        Some((role, argument)) if role == "client" => {
            let database = Database::open(argument.split(' ')).unwrap();
            let table: Table<u64, i64> = database.table("checking").unwrap();
            let mut t = database.begin().unwrap();
            t.get_for_update(&table, &7).unwrap();
            say("locked");
            while listen().is_some() {}
            return;
        }
        Some(_) => return assert!(is_other()),
        None => {}
    }
    let name = "a_killed_client_leaves_locks_and_no_more";
    let cluster = Cluster::start(name, "shm", "smallbank");
    let mut client = Other::start(name, "client", &cluster.addresses.join(" "));
    assert_eq!(client.hear(), "locked");
    client.kill();
    let database = cluster
        .open("auto", Preset::Auto, "shm")
        .within(Duration::from_secs(2));
    let table: Table<u64, i64> = database.table("checking").unwrap();
    let add = |key: u64| -> Result<(), DatabaseError> {
        database.run(|t| {
            let before = t.get(&table, &key)?.unwrap_or(0);
            t.put(&table, &key, &(before + 1))
        })
    };
    let refused = add(7);
    let is_locked = |error: &DatabaseError| matches!(error, DatabaseError::Aborted { by: TransactionError::Locked { .. }, attempts, .. } if *attempts > 1);
    assert!(refused.as_ref().is_err_and(is_locked), "{refused:?}");
    (0..30)
        .filter(|key| *key != 7)
        .for_each(|key| add(key).unwrap());
}
