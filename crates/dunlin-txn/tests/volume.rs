//! A machine that has much is killed under load and comes back, and then all of them do: how long it takes until it is
//! whole, what the clients of the others have of it meanwhile, and that everything is there in the end. Each machine
//! has a log on a disk. `DUNLIN_TXN_BYTES` says how much each has, such as 1000000000; without it is little.
#[path = "common/etcd.rs"]
mod etcd;
#[path = "../../dunlin-shm/tests/common/process.rs"]
mod process;
#[path = "common/transfers.rs"]
mod transfers;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use dunlin_rpc::Server;
use dunlin_txn::membership::file::FileMembership;
use dunlin_txn::server::{Replicated, StoreConfig, StoreServer, TableSpec};
use dunlin_txn::{Database, DatabaseError, Key, Table, Value};
use etcd::{ports, Folder};
use process::{listen, role, say, Other};
use transfers::{is_whole, transfers, Ends, Seen, LEASE};

const MACHINES: u16 = 3;
const ACCOUNTS: u64 = 1000;
const CLIENTS: u64 = 3;
const HELD: i64 = 1000;
/// Bytes of a value of the table that is large.
const VALUE_BYTES: usize = 1000;
/// Between two looks at how much the clients have done.
const TICK: Duration = Duration::from_millis(100);
/// No step takes so long; a hang does.
const BOUND: Duration = Duration::from_secs(300);

/// Values of the large table.
fn values() -> u64 {
    let bytes = std::env::var("DUNLIN_TXN_BYTES").map_or(2_000_000, |n| n.parse().unwrap());
    bytes / VALUE_BYTES as u64
}

/// The value of a key of the large table, after so many changes.
fn value(key: u64, changes: u64) -> Vec<u8> {
    let mut value = vec![key as u8; VALUE_BYTES];
    value[..8].copy_from_slice(&key.to_le_bytes());
    value[8..16].copy_from_slice(&changes.to_le_bytes());
    value
}

fn serve(number: u16, port: &str, folder: &Path) -> Result<StoreServer, String> {
    let of = StoreConfig {
        machine: number,
        machines: MACHINES,
        replicas: MACHINES,
        tables: vec![
            TableSpec::new(0, "accounts", ACCOUNTS * 2, 8),
            TableSpec::new(1, "counters", 100, 8),
            TableSpec::new(2, "large", values(), VALUE_BYTES),
        ],
        one_sided_writes: false,
    };
    let membership = FileMembership::open(folder.join("membership")).unwrap();
    let mut with = Replicated::new(membership).log_file(folder.join(format!("log{number}")));
    with.lease = LEASE;
    with.client = with.client.device("shm");
    let bound = Server::bind(&format!("dunlin://127.0.0.1:{port}"));
    let initial = || {
        let held = |key| (Key::number(0, key), Value::from(&HELD.to_le_bytes()[..]));
        let large = |key| (Key::number(2, key), Value::from(value(key, 0)));
        (0..ACCOUNTS).map(held).chain((0..values()).map(large))
    };
    let bound = bound.map_err(|error| error.to_string())?.device("shm");
    let served = StoreServer::serve_replicated(bound, of, with, initial);
    served.map_err(|error| error.to_string())
}

/// A machine, in a process of its own: `MACHINE PORT FOLDER`. When it is fenced it begins anew.
fn machine(argument: &str) {
    let parts: Vec<&str> = argument.split(' ').collect();
    let number = parts[0].parse().unwrap();
    std::thread::spawn(|| {
        while listen().is_some() {}
        std::process::exit(0);
    });
    for _ in 0..1000 {
        let began = Instant::now();
        match serve(number, parts[1], Path::new(parts[2])) {
            Ok(store) => {
                eprintln!("machine {number} has begun within {:?}", began.elapsed());
                say("serving");
                while !store.is_fenced() {
                    std::thread::sleep(Duration::from_millis(5));
                }
                eprintln!("machine {number} begins anew");
            }
            // The address may be in use for a moment.
            Err(error) => {
                eprintln!("machine {number}: {error}");
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }
    panic!("machine {number} does not begin");
}

/// Changes values of the large table, one after the other, until it is over. How often each was changed.
fn changes(database: &Database, over: &AtomicBool, committed: &AtomicI64) -> Vec<(u64, u64)> {
    let large: Table<u64, Vec<u8>> = database.table("large").unwrap();
    let mut random = fastrand::Rng::with_seed(7);
    let mut known = Vec::new();
    let mut count = 0;
    while !over.load(Ordering::Relaxed) {
        let key = random.u64(0..values());
        count += 1;
        let changed: Result<(), DatabaseError> =
            database.run(|t| t.put(&large, &key, &value(key, count)));
        known.retain(|(other, _)| *other != key);
        match changed {
            Ok(()) => {
                known.push((key, count));
                committed.fetch_add(1, Ordering::Relaxed);
            }
            // Either value may be there.
            Err(DatabaseError::UnknownOutcome { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        if known.len() > 10_000 {
            known.remove(0);
        }
    }
    known
}

/// What the clients have done, tick by tick.
struct Watch<'a> {
    committed: &'a AtomicI64,
    last: i64,
    ticks: Vec<i64>,
}

impl Watch<'_> {
    fn tick(&mut self) {
        std::thread::sleep(TICK);
        let now = self.committed.load(Ordering::Relaxed);
        self.ticks.push(now - self.last);
        self.last = now;
    }

    fn until(&mut self, what: &str, mut is: impl FnMut() -> bool) -> Duration {
        let began = Instant::now();
        while !is() {
            assert!(began.elapsed() < BOUND, "{what}");
            self.tick();
        }
        began.elapsed()
    }

    /// A second's worth of what was done in these ticks: in all, and in the least of them.
    fn say(&mut self, what: &str) {
        let ticks = std::mem::take(&mut self.ticks);
        let seconds = ticks.len() as f64 * TICK.as_secs_f64();
        let rate = ticks.iter().sum::<i64>() as f64 / seconds.max(1e-9);
        let empty = ticks.iter().filter(|tick| **tick == 0).count();
        let without = empty as f64 * TICK.as_secs_f64();
        println!(
            "{what}: {seconds:.1} s, {rate:.0} transactions a second, {without:.1} s without any"
        );
    }
}

struct Cluster {
    folder: Folder,
    ports: Vec<u16>,
    machines: Vec<Other>,
}

impl Cluster {
    fn start() -> Cluster {
        let mut cluster = Cluster {
            folder: Folder::new("volume"),
            ports: ports(usize::from(MACHINES)),
            machines: Vec::new(),
        };
        cluster.machines = (0..MACHINES).map(|n| cluster.machine(n)).collect();
        cluster.machines.iter_mut().for_each(|m| drop(m.hear()));
        cluster
    }

    fn machine(&self, number: u16) -> Other {
        let (port, folder) = (self.ports[usize::from(number)], self.folder.0.display());
        let test = "a_machine_with_much_comes_back_under_load";
        Other::start(test, "machine", &format!("{number} {port} {folder}"))
    }

    fn addresses(&self) -> Vec<String> {
        let address = |port: &u16| format!("dunlin://127.0.0.1:{port}");
        self.ports.iter().map(address).collect()
    }
}

/// Kills one and starts it again, and then all; what there is to be said of each is printed.
fn fail(cluster: &mut Cluster, database: &Database, committed: &AtomicI64) {
    let mut watch = Watch {
        committed,
        last: committed.load(Ordering::Relaxed),
        ticks: Vec::new(),
    };
    let epoch = || database.configuration().unwrap().epoch;
    (0..20).for_each(|_| watch.tick());
    watch.say("before");
    let (before, began) = (epoch(), Instant::now());
    cluster.machines[1].kill();
    watch.until("nobody goes on", || epoch() > before);
    watch.say("one killed, until the others go on");
    cluster.machines[1] = cluster.machine(1);
    watch.until("it does not come back", || is_whole(database));
    watch.say("until it is whole again");
    println!("in all {:.1} s", began.elapsed().as_secs_f64());
    (0..20).for_each(|_| watch.tick());
    watch.say("after");
    let began = Instant::now();
    let machines = cluster.machines.iter_mut();
    machines.for_each(|machine| machine.child.kill().unwrap());
    cluster.machines.iter_mut().for_each(Other::kill);
    let done = committed.load(Ordering::Relaxed);
    cluster.machines = (0..MACHINES).map(|n| cluster.machine(n)).collect();
    let more = || committed.load(Ordering::Relaxed) > done + CLIENTS as i64 + 1;
    watch.until("no service", more);
    let again = began.elapsed();
    watch.until("not all come back", || is_whole(database));
    watch.say("all killed, until all are whole");
    let (again, whole) = (again.as_secs_f64(), began.elapsed().as_secs_f64());
    println!("without service for {again:.1} s, whole after {whole:.1} s");
}

#[test]
fn a_machine_with_much_comes_back_under_load() {
    if let Some((_, argument)) = role() {
        return machine(&argument);
    }
    println!("{} values of {VALUE_BYTES} bytes", values());
    let mut cluster = Cluster::start();
    let database = Database::builder().device("shm").open(cluster.addresses());
    let database = database.unwrap().within(BOUND);
    let (over, committed) = (AtomicBool::new(false), AtomicI64::new(0));
    let (seen, known): (Vec<Seen>, Vec<(u64, u64)>) = std::thread::scope(|scope| {
        let (database, over, committed) = (&database, &over, &committed);
        let _ends = Ends(over);
        let run = |client| {
            let count = || {
                committed.fetch_add(1, Ordering::Relaxed);
            };
            scope.spawn(move || transfers(database, client, (ACCOUNTS, 1..5), over, count))
        };
        let clients: Vec<_> = (0..CLIENTS).map(run).collect();
        let changes = scope.spawn(move || changes(database, over, committed));
        fail(&mut cluster, database, committed);
        over.store(true, Ordering::Relaxed);
        let seen = clients.into_iter().map(|client| client.join().unwrap());
        (seen.collect(), changes.join().unwrap())
    });
    let accounts: Table<u64, i64> = database.table("accounts").unwrap();
    let large: Table<u64, Vec<u8>> = database.table("large").unwrap();
    let keys: Vec<u64> = (0..ACCOUNTS).collect();
    let held: Result<_, DatabaseError> = database.read(|t| t.get_many(&accounts, &keys));
    let held: i64 = held.unwrap().into_iter().map(Option::unwrap).sum();
    assert_eq!(held, ACCOUNTS as i64 * HELD);
    for client in &seen {
        assert_eq!(client.others.first(), None, "a transaction gave up");
        assert!(client.acknowledged > 0);
    }
    let at = |keys: &[u64]| -> Vec<Vec<u8>> {
        let found: Result<_, DatabaseError> = database.read(|t| t.get_many(&large, keys));
        found.unwrap().into_iter().map(Option::unwrap).collect()
    };
    assert!(!known.is_empty());
    for (key, changes) in &known {
        assert!(at(&[*key])[0] == value(*key, *changes), "{key}");
    }
    // Of the rest each is its own, whatever the count of its changes.
    for first in (0..values()).step_by(100) {
        let keys: Vec<u64> = (first..(first + 100).min(values())).collect();
        for (key, found) in keys.iter().zip(at(&keys)) {
            let changes = u64::from_le_bytes(found[8..16].try_into().unwrap());
            assert!(found == value(*key, changes), "{key}");
        }
    }
}
