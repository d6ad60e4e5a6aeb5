//! Machines with their log on a disk: all of them are killed at once under a load of SmallBank's transfers and started
//! again, round after round, and one of them comes back behind the others. No acknowledged change is lost and no money
//! is made. `DUNLIN_TXN_ROUNDS` says how many rounds; each prints how long it was until a transaction committed again.
//! And what a machine refuses to begin with.
#[path = "common/etcd.rs"]
mod etcd;
#[path = "../../dunlin-shm/tests/common/process.rs"]
mod process;
#[path = "common/transfers.rs"]
mod transfers;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use dunlin_rpc::Server;
use dunlin_txn::membership::file::FileMembership;
use dunlin_txn::server::{
    LogError, Replicated, StoreConfig, StoreServer, StoreServerError, TableSpec,
};
use dunlin_txn::{Database, DatabaseError, Key, Table, Value};
use etcd::{ports, Folder};
use process::{listen, role, say, Other};
use transfers::{is_whole, transfers, until, Ends, Seen, LEASE};

const MACHINES: u16 = 3;
const ACCOUNTS: u64 = 200;
const CLIENTS: u64 = 4;
const HELD: i64 = 1000;
/// So small that snapshots are made in every round.
const SNAPSHOT_BYTES: u64 = 8 << 10;

fn config(machine: u16, machines: u16) -> StoreConfig {
    StoreConfig {
        machine,
        machines,
        replicas: machines,
        tables: vec![
            TableSpec::new(0, "accounts", 300, 8),
            TableSpec::new(1, "counters", 100, 8),
        ],
        one_sided_writes: false,
    }
}

fn replicated(folder: &Path, machine: u16) -> Replicated {
    let membership = FileMembership::open(folder.join("membership")).unwrap();
    let mut replicated = Replicated::new(membership).log_file(folder.join(format!("log{machine}")));
    replicated.lease = LEASE;
    replicated.client = replicated.client.device("shm");
    replicated.log.as_mut().unwrap().snapshot_bytes = SNAPSHOT_BYTES;
    replicated
}

fn serve(port: u16, of: StoreConfig, with: Replicated) -> Result<StoreServer, StoreServerError> {
    let bound = Server::bind(&format!("dunlin://127.0.0.1:{port}"));
    let initial = || {
        let value = |amount: i64| Value::from(amount.to_le_bytes().to_vec());
        (0..ACCOUNTS).map(move |key| (Key::number(0, key), value(HELD)))
    };
    StoreServer::serve_replicated(bound.unwrap().device("shm"), of, with, initial)
}

/// A machine, in a process of its own: `MACHINE PORT FOLDER`. When it is fenced it begins anew.
fn machine(argument: &str) {
    static ASKED: AtomicBool = AtomicBool::new(false);
    let parts: Vec<&str> = argument.split(' ').collect();
    let (number, port) = (parts[0].parse().unwrap(), parts[1].parse().unwrap());
    std::thread::spawn(|| {
        while listen().is_some() {
            ASKED.store(true, Ordering::Relaxed);
        }
        std::process::exit(0);
    });
    loop {
        let with = replicated(Path::new(parts[2]), number);
        match serve(port, config(number, MACHINES), with) {
            Ok(store) => {
                say("serving");
                while !store.is_fenced() {
                    std::thread::sleep(Duration::from_millis(5));
                    if ASKED.swap(false, Ordering::Relaxed) {
                        say(&format!("{:?}", store.log_statistics().unwrap()));
                    }
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
}

struct Cluster {
    folder: PathBuf,
    ports: Vec<u16>,
    machines: Vec<Other>,
}

impl Cluster {
    fn start(folder: &Path) -> Cluster {
        let mut cluster = Cluster {
            folder: folder.to_owned(),
            ports: ports(usize::from(MACHINES)),
            machines: Vec::new(),
        };
        cluster.machines = (0..MACHINES).map(|n| cluster.machine(n)).collect();
        cluster.machines.iter_mut().for_each(|m| drop(m.hear()));
        cluster
    }

    fn machine(&self, number: u16) -> Other {
        let (port, folder) = (self.ports[usize::from(number)], self.folder.display());
        let test = "what_was_acknowledged_outlives_all_processes";
        Other::start(test, "machine", &format!("{number} {port} {folder}"))
    }

    /// All die before one of them is waited for.
    fn kill_all(&mut self) {
        let machines = self.machines.iter_mut();
        machines.for_each(|machine| machine.child.kill().unwrap());
        self.machines.iter_mut().for_each(Other::kill);
    }

    fn restart_all(&mut self) {
        self.machines = (0..MACHINES).map(|n| self.machine(n)).collect();
    }

    fn addresses(&self) -> Vec<String> {
        let address = |port: &u16| format!("dunlin://127.0.0.1:{port}");
        self.ports.iter().map(address).collect()
    }
}

#[test]
fn what_was_acknowledged_outlives_all_processes() {
    if let Some((_, argument)) = role() {
        return machine(&argument);
    }
    let rounds = std::env::var("DUNLIN_TXN_ROUNDS");
    let rounds: usize = rounds.map_or(3, |rounds| rounds.parse().unwrap());
    let folder = Folder::new("durability");
    let mut cluster = Cluster::start(&folder.0);
    let database = Database::builder().device("shm").open(cluster.addresses());
    let database = database.unwrap().within(LEASE * 20);
    let (over, committed) = (AtomicBool::new(false), AtomicI64::new(0));
    let seen: Vec<Seen> = std::thread::scope(|scope| {
        let (database, over, committed) = (&database, &over, &committed);
        let _ends = Ends(over);
        let run = |client| {
            let count = || {
                committed.fetch_add(1, Ordering::Relaxed);
            };
            scope.spawn(move || transfers(database, client, (ACCOUNTS, 1..5), over, count))
        };
        let clients: Vec<_> = (0..CLIENTS).map(run).collect();
        for round in 0..rounds {
            let before = committed.load(Ordering::Relaxed);
            std::thread::sleep(LEASE / 2);
            until("no load", || committed.load(Ordering::Relaxed) > before);
            // Every other time one of them is behind when all are killed.
            let behind = round % 2 == 1;
            let out = round % usize::from(MACHINES);
            if behind {
                let epoch = database.configuration().unwrap().epoch;
                cluster.machines[out].kill();
                until("nobody goes on", || {
                    database.configuration().unwrap().epoch > epoch
                });
                let before = committed.load(Ordering::Relaxed);
                until("no load", || {
                    committed.load(Ordering::Relaxed) > before + 20
                });
            }
            let began = Instant::now();
            cluster.kill_all();
            let before = committed.load(Ordering::Relaxed);
            cluster.restart_all();
            // What was on its way when they were killed may still be counted.
            until("no service", || {
                committed.load(Ordering::Relaxed) > before + CLIENTS as i64
            });
            let again = began.elapsed();
            until("not all come back", || is_whole(database));
            let whole = began.elapsed();
            println!("round {round}, one behind {behind}: without service for {again:?}, whole after {whole:?}");
        }
        std::thread::sleep(LEASE / 4);
        over.store(true, Ordering::Relaxed);
        clients.into_iter().map(|c| c.join().unwrap()).collect()
    });
    let accounts: Table<u64, i64> = database.table("accounts").unwrap();
    let counters: Table<u64, i64> = database.table("counters").unwrap();
    let keys: Vec<u64> = (0..ACCOUNTS).collect();
    let held: Result<_, DatabaseError> = database.read(|t| t.get_many(&accounts, &keys));
    let held: i64 = held.unwrap().into_iter().map(Option::unwrap).sum();
    assert_eq!(held, ACCOUNTS as i64 * HELD);
    for (client, seen) in seen.into_iter().enumerate() {
        let count: Result<Option<i64>, DatabaseError> =
            database.read(|t| t.get(&counters, &(client as u64)));
        let count = count.unwrap().unwrap_or(0);
        let (least, most) = (seen.acknowledged, seen.acknowledged + seen.unknown);
        println!("client {client}: {least} acknowledged, {most} at most, {count} there");
        assert!(
            (least..=most).contains(&count),
            "{least} to {most}: {count}"
        );
        assert_eq!(seen.others.first(), None, "a transaction gave up");
    }
    for machine in &mut cluster.machines {
        machine.say("statistics");
        while !{
            let heard = machine.hear();
            println!("{heard}");
            heard.starts_with("LogStatistics")
        } {}
    }
}

/// The only machine of a database: nobody takes over from it, so its lease is not to end while a busy host stops it.
fn alone(folder: &Path) -> Result<StoreServer, StoreServerError> {
    let mut replicated = replicated(folder, 0);
    replicated.lease = LEASE * 60;
    serve(0, config(0, 1), replicated)
}

fn open(store: &StoreServer) -> Database {
    until("it does not serve", || store.configuration().is_some());
    let address = store.server().address().to_string();
    let database = Database::builder().device("shm").open([address]);
    database.unwrap().within(LEASE * 60)
}

fn refusal(folder: &Path) -> LogError {
    match alone(folder) {
        Err(StoreServerError::Log(error)) => error,
        other => panic!("{other:?}"),
    }
}

/// The file of a kind with the highest number.
fn last(folder: &Path, kind: &str) -> PathBuf {
    let listed = fs::read_dir(folder.join("log0")).unwrap();
    let paths = listed.map(|entry| entry.unwrap().path());
    let is = |path: &PathBuf| {
        path.file_name()
            .unwrap()
            .to_string_lossy()
            .starts_with(kind)
    };
    paths.filter(is).max().unwrap()
}

#[test]
fn a_machine_finds_what_it_had_and_refuses_what_it_had_not() {
    let folder = Folder::new("durability-alone");
    let folder = folder.0.as_path();
    let count = |store: &StoreServer, more: u64| -> i64 {
        let database = open(store);
        let counters: Table<u64, i64> = database.table("counters").unwrap();
        let mut last = 0;
        for _ in 0..=more {
            let counted: Result<i64, DatabaseError> = database.run(|t| {
                let count = t.get(&counters, &0)?.unwrap_or(0) + 1;
                t.put(&counters, &0, &count)?;
                // One that comes and goes.
                match count % 2 {
                    0 => t.put(&counters, &1, &count)?,
                    _ => t.delete(&counters, &1)?,
                }
                Ok(count)
            });
            last = counted.unwrap();
        }
        last
    };
    let store = alone(folder).unwrap();
    assert_eq!(count(&store, 9), 10);
    assert!(matches!(refusal(folder), LogError::InUse { .. }));
    drop(store);

    // Snapshots were made by then, and the log goes on. What is loaded while it runs is in it too.
    let store = alone(folder).unwrap();
    let more = (ACCOUNTS..ACCOUNTS + 50).map(|n| (Key::number(0, n), Value::from(vec![7; 8])));
    assert_eq!(store.load(more).unwrap(), 50);
    assert_eq!(count(&store, 599), 610);
    assert!(store.log_statistics().unwrap().groups > 0);
    drop(store);
    assert!(fs::metadata(last(folder, "snapshot-")).unwrap().len() > 0);

    // A write that was under way.
    let log = last(folder, "log-");
    let whole = fs::read(&log).unwrap();
    fs::write(&log, [&whole[..], &whole[..whole.len().min(30)]].concat()).unwrap();
    let store = alone(folder).unwrap();
    assert_eq!(count(&store, 0), 611);
    let accounts: Table<u64, i64> = open(&store).table("accounts").unwrap();
    let keys: Vec<u64> = (ACCOUNTS..ACCOUNTS + 50).collect();
    let loaded: Result<_, DatabaseError> = open(&store).read(|t| t.get_many(&accounts, &keys));
    assert_eq!(loaded.unwrap(), vec![Some(i64::from_le_bytes([7; 8])); 50]);
    drop(store);

    // Other tables, another machine.
    let mut of = config(0, 1);
    of.tables[0].rows += 1;
    let refused = serve(0, of, replicated(folder, 0)).unwrap_err().to_string();
    assert!(refused.contains("301 of 8 bytes"), "{refused}");

    // Another database, and none.
    let (known, others) = (folder.join("membership"), folder.join("others"));
    fs::rename(&known, &others).unwrap();
    assert!(matches!(refusal(folder), LogError::NoDatabase { .. }));
    let other = Folder::new("durability-other");
    drop(open(&alone(&other.0).unwrap()));
    let rename = |from: PathBuf, to: &Path| fs::rename(from, to).unwrap();
    let _ = fs::remove_dir_all(&known);
    rename(other.0.join("membership"), &known);
    assert!(matches!(refusal(folder), LogError::OtherDatabase { .. }));
    fs::remove_dir_all(&known).unwrap();
    rename(others, &known);

    // Something else than a log.
    let foreign = Folder::new("durability-foreign");
    fs::create_dir_all(foreign.0.join("log0")).unwrap();
    fs::write(foreign.0.join("log0/letter"), "").unwrap();
    assert!(matches!(refusal(&foreign.0), LogError::Foreign { .. }));

    // Damage before the end.
    let log = last(folder, "snapshot-");
    let mut bytes = fs::read(&log).unwrap();
    bytes[25] ^= 1;
    fs::write(&log, bytes).unwrap();
    let refused = refusal(folder);
    let name = log.display().to_string();
    assert!(refused.to_string().contains(&name), "{refused}");
    assert!(matches!(refused, LogError::Damaged { offset: 0, .. }));
}
