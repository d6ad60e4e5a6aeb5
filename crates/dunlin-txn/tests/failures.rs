//! Three machines that replace each other, as processes, under load: one is killed or stopped, again and again, and so
//! is a client with its locks. No money is made, no acknowledged change is lost, and service goes on. They are on one
//! host and share memory, or each is in a network namespace of its own and they speak RoCEv2 over UDP.
//! `DUNLIN_TXN_ROUNDS` says how many rounds; each prints for how long no transaction committed.
#[path = "common/etcd.rs"]
mod etcd;
#[path = "../../dunlin-shm/tests/common/namespaces.rs"]
mod namespaces;
#[path = "../../dunlin-shm/tests/common/process.rs"]
mod process;
#[path = "common/transfers.rs"]
mod transfers;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dunlin_rpc::Server;
use dunlin_txn::membership::file::FileMembership;
use dunlin_txn::server::{Replicated, StoreConfig, StoreServer, TableSpec};
use dunlin_txn::{Database, DatabaseError, Key, Table, Value};
use etcd::{ports, Etcd, Folder};
use namespaces::{within, Star};
use process::{listen, role, say, Other};
use rustix::process::{kill_process, Pid, Signal};
use transfers::{is_whole, transfers, until, Ends, Seen, LEASE};

const MACHINES: u16 = 3;
const ACCOUNTS: u64 = 40;
const CLIENTS: u64 = 3;
const HELD: i64 = 1000;

/// What a place begins with that is the members of an etcd cluster.
const ETCD: &str = "etcd:";
#[cfg(feature = "etcd")]
const ETCD_MEMBERS: usize = 3;

/// A machine's membership in a folder, or in etcd.
fn replicated(place: &str) -> Replicated {
    match place.strip_prefix(ETCD) {
        #[cfg(feature = "etcd")]
        Some(members) => {
            use dunlin_txn::membership::etcd::EtcdMembership;
            Replicated::new(EtcdMembership::open(members.split(','), "bank").unwrap())
        }
        _ => Replicated::new(FileMembership::open(place).unwrap()),
    }
}

/// A machine, in a process of its own: `MACHINE ADDRESS DEVICE PLACE`. When it is fenced it begins anew.
fn machine(argument: &str) {
    let parts: Vec<&str> = argument.split(' ').collect();
    let number: u16 = parts[0].parse().unwrap();
    std::thread::spawn(|| {
        while listen().is_some() {}
        std::process::exit(0);
    });
    loop {
        let config = StoreConfig {
            machine: number,
            machines: MACHINES,
            replicas: 3,
            tables: vec![
                TableSpec::new(0, "accounts", 100, 8),
                TableSpec::new(1, "counters", 100, 8),
            ],
            one_sided_writes: false,
        };
        let (address, device) = (parts[1], parts[2]);
        let mut replicated = replicated(parts[3]);
        replicated.lease = LEASE;
        replicated.client = replicated.client.device(device);
        let bound = Server::bind(address);
        let initial = || {
            let value = |amount: i64| Value::from(amount.to_le_bytes().to_vec());
            (0..ACCOUNTS).map(move |key| (Key::number(0, key), value(HELD)))
        };
        let builder = bound.unwrap().device(device);
        match StoreServer::serve_replicated(builder, config, replicated, initial) {
            Ok(store) => {
                say("serving");
                while !store.is_fenced() {
                    std::thread::sleep(Duration::from_millis(5));
                }
                eprintln!("machine {number} begins anew");
                drop(store);
            }
            // The address may be in use for a moment.
            Err(error) => {
                eprintln!("machine {number}: {error}");
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }
}

/// A client that takes a lock and does nothing more.
fn holder(argument: &str) {
    let database = Database::open(argument.split(' ')).unwrap();
    let accounts: Table<u64, i64> = database.table("accounts").unwrap();
    loop {
        let mut t = database.begin().unwrap();
        if t.get_for_update(&accounts, &7).is_ok() {
            say("locked");
            while listen().is_some() {}
            return;
        }
    }
}

/// Where machines are, and how they are reached.
struct Site {
    device: &'static str,
    /// Of each machine: its address, and the words that run it there.
    machines: Vec<(String, Vec<String>)>,
}

impl Site {
    /// All on this host.
    fn here() -> Self {
        let ports = ports(usize::from(MACHINES)).into_iter();
        let machine = |port| (format!("dunlin://127.0.0.1:{port}"), Vec::new());
        Self {
            device: "shm",
            machines: ports.map(machine).collect(),
        }
    }

    /// Each in a namespace of its own, whose names these are.
    fn apart(spaces: &str) -> Self {
        let spaces = spaces.split(' ').enumerate();
        let machine = |(number, space)| {
            let address = format!("dunlin://{}:7000", Star::host(number));
            (address, within(space))
        };
        Self {
            device: "roce",
            machines: spaces.map(machine).collect(),
        }
    }
}

struct Cluster {
    test: &'static str,
    place: String,
    site: Site,
    machines: Vec<Other>,
}

impl Cluster {
    fn start(test: &'static str, site: Site, place: &str) -> Cluster {
        let mut cluster = Cluster {
            test,
            place: place.to_owned(),
            site,
            machines: Vec::new(),
        };
        for number in 0..MACHINES {
            let machine = cluster.machine(number);
            cluster.machines.push(machine);
        }
        cluster.machines.iter_mut().for_each(|m| drop(m.hear()));
        cluster
    }

    fn machine(&self, number: u16) -> Other {
        let (device, place) = (self.site.device, &self.place);
        let (address, within) = &self.site.machines[usize::from(number)];
        let argument = format!("{number} {address} {device} {place}");
        Other::start_within(within, self.test, "machine", &argument)
    }

    fn addresses(&self) -> Vec<String> {
        let machines = self.site.machines.iter();
        machines.map(|(address, _)| address.clone()).collect()
    }

    fn signal(&self, number: usize, signal: Signal) {
        let id = Pid::from_child(&self.machines[number].child);
        kill_process(id, signal).unwrap();
    }
}

/// The process that the test is where it has a role: then there is nothing more to do.
fn played(test: &'static str) -> bool {
    match role() {
        Some((role, argument)) if role == "machine" => machine(&argument),
        Some((role, argument)) if role == "load" => load(test, Site::apart(&argument)),
        Some((_, argument)) => holder(&argument),
        None => return false,
    }
    true
}

#[test]
fn machines_and_clients_that_fail_lose_nothing() {
    let test = "machines_and_clients_that_fail_lose_nothing";
    if !played(test) {
        fail_with_files(test, Site::here());
    }
}

fn fail_with_files(test: &'static str, site: Site) {
    let folder = Folder::new(test);
    let what = ["killed", "stopped", "holder killed", "killed twice"];
    bears(
        Cluster::start(test, site, &folder.0.display().to_string()),
        &what,
        None,
    );
}

#[cfg(feature = "etcd")]
#[test]
fn with_etcd_they_lose_nothing_either_and_its_leader_may_fail_too() {
    let test = "with_etcd_they_lose_nothing_either_and_its_leader_may_fail_too";
    if played(test) {
        return;
    }
    if let Some(etcd) = Etcd::start(test, ETCD_MEMBERS) {
        fail_with_etcd(test, Site::here(), etcd);
    }
}

#[cfg(feature = "etcd")]
fn fail_with_etcd(test: &'static str, site: Site, mut etcd: Etcd) {
    let place = format!("{ETCD}{}", etcd.members().join(","));
    let what = [
        "killed",
        "leader of etcd killed",
        "stopped",
        "holder killed",
        "killed twice",
    ];
    bears(Cluster::start(test, site, &place), &what, Some(&mut etcd));
}

/// The test itself runs in the hub, as another process: clients, and etcd where it is.
#[test]
fn between_namespaces_they_lose_nothing_either() {
    let test = "between_namespaces_they_lose_nothing_either";
    if played(test) {
        return;
    }
    let star = match Star::new("dunlin-txn", usize::from(MACHINES)) {
        Ok(star) => star,
        Err(why) => return println!("skipped: network namespaces: {}", why.trim()),
    };
    let (hub, hosts) = star.names().split_first().expect("a hub");
    let load = Other::start_within(&within(hub), test, "load", &hosts.join(" "));
    assert!(load.watch(), "it failed between the namespaces");
}

/// In the hub.
fn load(test: &'static str, site: Site) {
    #[cfg(feature = "etcd")]
    if let Some(etcd) = Etcd::start_on(Star::HUB, test, ETCD_MEMBERS) {
        return fail_with_etcd(test, site, etcd);
    }
    fail_with_files(test, site);
}

/// Rounds of failures, each of the next kind.
fn bears(mut cluster: Cluster, kinds: &[&'static str], mut etcd: Option<&mut Etcd>) {
    let rounds = std::env::var("DUNLIN_TXN_ROUNDS");
    let rounds: usize = rounds.map_or(kinds.len(), |n| n.parse().unwrap());
    let test = cluster.test;
    let builder = Database::builder().device(cluster.site.device);
    let database = builder.open(cluster.addresses());
    let database = database.unwrap().within(LEASE * 60);
    let over = AtomicBool::new(false);
    let mut began = Vec::new();
    let seen: Vec<(Seen, Vec<Instant>)> = std::thread::scope(|scope| {
        let (database, over) = (&database, &over);
        let _ends = Ends(over);
        let run = |client| {
            scope.spawn(move || {
                let mut at = Vec::new();
                let one = (ACCOUNTS, 1..2);
                let seen = transfers(database, client, one, over, || at.push(Instant::now()));
                (seen, at)
            })
        };
        let clients: Vec<_> = (0..CLIENTS).map(run).collect();
        for round in 0..rounds {
            std::thread::sleep(LEASE / 4);
            let before = database.configuration().unwrap().epoch;
            let number = round / kinds.len() % usize::from(MACHINES);
            let what = kinds[round % kinds.len()];
            began.push((Instant::now(), what));
            match what {
                "killed" => {
                    cluster.machines[number].kill();
                    cluster.machines[number] = cluster.machine(number as u16);
                }
                "stopped" => {
                    cluster.signal(number, Signal::STOP);
                    until("nobody goes on", || {
                        database.configuration().unwrap().epoch > before
                    });
                    cluster.signal(number, Signal::CONT);
                }
                "leader of etcd killed" => {
                    let etcd = etcd.as_mut().expect("there is one");
                    let leader = etcd.kill_leader();
                    std::thread::sleep(LEASE * 3);
                    etcd.restart(leader);
                    // The machines' leases last, so no epoch need end.
                    until("it does not go on", || is_whole(database));
                    continue;
                }
                "holder killed" => {
                    let addresses = cluster.addresses().join(" ");
                    let mut holder = Other::start(test, "holder", &addresses);
                    assert_eq!(holder.hear(), "locked");
                    holder.kill();
                    until("the locks stay", || {
                        database.configuration().unwrap().epoch > before
                    });
                }
                // Again while the others still copy to it.
                _ => {
                    for _ in 0..2 {
                        cluster.machines[number].kill();
                        cluster.machines[number] = cluster.machine(number as u16);
                        std::thread::sleep(LEASE / 2);
                    }
                }
            }
            until("an epoch without it", || {
                database.configuration().unwrap().epoch > before
            });
            until("it does not come back", || is_whole(database));
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
    let mut all: Vec<Instant> = Vec::new();
    for (client, (seen, at)) in seen.into_iter().enumerate() {
        let count: Result<Option<i64>, DatabaseError> =
            database.read(|t| t.get(&counters, &(client as u64)));
        let count = count.unwrap().unwrap_or(0);
        let (least, most) = (seen.acknowledged, seen.acknowledged + seen.unknown);
        println!("client {client}: {least} acknowledged, {most} at most, {count} there");
        assert!(
            (least..=most).contains(&count),
            "{least} to {most}: {count}"
        );
        let gave_up = seen.others.first();
        assert_eq!(gave_up, None, "a transaction gave up");
        assert!(least > 0);
        all.extend(at);
    }
    all.sort_unstable();
    let epoch = database.configuration().unwrap().epoch;
    println!("{} transactions, {epoch}", all.len());
    for (number, (at, what)) in began.iter().enumerate() {
        let next = began.get(number + 1).map(|(at, _)| *at);
        let within: Vec<Instant> = all
            .iter()
            .copied()
            .filter(|one| one >= at && next.is_none_or(|next| *one < next))
            .collect();
        let mut last = *at;
        let mut longest = Duration::ZERO;
        for one in within {
            longest = longest.max(one - last);
            last = one;
        }
        println!("round {number}, {what}: without service for {longest:?}");
    }
}
