//! The async interface of the database on simulated hosts: threads of two clients move money between accounts of three
//! machines, for several seeds.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use dunlin::txn::server::{LocalStore, StoreConfig, TableSpec};
use dunlin::txn::{Database, DatabaseError, Table};
use dunlin::{Preset, Server};
use dunlin_sim::{Cluster, HostParameters, NicParameters, SwitchParameters};
use dunlin_verbs::thread;

const MACHINES: u16 = 3;
const CLIENTS: usize = 2;
const THREADS: usize = 3;
const TRANSFERS: u64 = 20;
const ACCOUNTS: u64 = 12;
const BALANCE: i64 = 1000;

fn serve(cluster: &Cluster, machine: u16) -> LocalStore {
    let config = StoreConfig {
        machine,
        machines: MACHINES,
        replicas: 2,
        tables: vec![TableSpec::new(0, "accounts", 100, 8)],
        one_sided_writes: true,
    };
    let server = Server::unbound().pollers(2).pin_pollers(0);
    let device = cluster.device(cluster.hosts()[usize::from(machine)]);
    LocalStore::serve_on(device, server, &config, 2).unwrap()
}

/// Moves money at random, each transfer a transaction of a future; returns the time at which each had committed.
fn transfer(database: &Database, seed: u64) -> Vec<u64> {
    let accounts: &Table<u64, i64> = &database.table("accounts").unwrap();
    let mut random = fastrand::Rng::with_seed(seed);
    let begun = thread::now();
    let one = |_| {
        let (from, to) = (random.u64(..ACCOUNTS), random.u64(..ACCOUNTS));
        let moved = database.run_async(|t| async move {
            let left = t.get(accounts, &from).await?.unwrap_or(BALANCE) - 1;
            t.put(accounts, &from, &left)?;
            let right = t.get(accounts, &to).await?.unwrap_or(BALANCE) + 1;
            t.put(accounts, &to, &right)?;
            Ok::<_, DatabaseError>(())
        });
        thread::block_on(moved).unwrap();
        (thread::now() - begun).as_nanos() as u64
    };
    (0..TRANSFERS).map(one).collect()
}

/// All times of a run, and the money at its end.
fn run(seed: u64, (protocol, preset): (&str, Preset)) -> (Vec<Vec<u64>>, i64) {
    let (host, nic) = (HostParameters::epyc_7452(), NicParameters::connectx_5());
    let hosts = usize::from(MACHINES) + CLIENTS;
    let cluster = Cluster::star(seed, hosts, &host, &nic, &SwitchParameters::z9264f());
    let stores: Vec<_> = (0..MACHINES).map(|n| serve(&cluster, n)).collect();
    let open = |host: usize| {
        let device = cluster.device(cluster.hosts()[host]);
        let builder = Database::builder().protocol(protocol);
        let builder = builder.client(|client| client.preset(preset).servers(3));
        builder.open_on(&device, &stores).unwrap()
    };
    let databases: Vec<_> = (usize::from(MACHINES)..hosts).map(open).collect();
    let times = Arc::new(Mutex::new(vec![Vec::new(); CLIENTS * THREADS]));
    let left = Arc::new(AtomicU64::new((CLIENTS * THREADS) as u64));
    for (client, database) in databases.iter().enumerate() {
        for number in 0..THREADS {
            let (database, times, left) = (database.clone(), times.clone(), left.clone());
            let place = client * THREADS + number;
            let host = cluster.hosts()[usize::from(MACHINES) + client];
            cluster.spawn_thread(host, number, move || {
                let took = transfer(&database, seed << 8 | place as u64);
                times.lock().unwrap()[place] = took;
                left.fetch_sub(1, Ordering::Relaxed);
            });
        }
    }
    let mut ms = 0;
    while left.load(Ordering::Relaxed) > 0 {
        cluster.run_for(1_000_000);
        ms += 1;
        assert!(
            ms < 10_000,
            "seed {seed}: not over after 10 s of virtual time"
        );
    }
    let sum = Arc::new(Mutex::new(None));
    let (reader, found) = (databases[0].clone(), sum.clone());
    cluster.spawn_thread(cluster.hosts()[usize::from(MACHINES)], 0, move || {
        let accounts: &Table<u64, i64> = &reader.table("accounts").unwrap();
        let keys: Vec<u64> = (0..ACCOUNTS).collect();
        let keys = &keys;
        let all = reader.read_async(|t| async move { t.get_many(accounts, keys).await });
        let all: Result<Vec<Option<i64>>, DatabaseError> = thread::block_on(all);
        let all = all.unwrap().into_iter();
        *found.lock().unwrap() = Some(all.map(|value| value.unwrap_or(BALANCE)).sum());
    });
    let sum = loop {
        cluster.run_for(1_000_000);
        if let Some(sum) = *sum.lock().unwrap() {
            break sum;
        }
        ms += 1;
        assert!(ms < 10_000, "seed {seed}: the reader has not ended");
    };
    let times = times.lock().unwrap().clone();
    (times, sum)
}

#[test]
fn futures_move_money_and_a_seed_repeats_them() {
    let seeds = std::env::var("DUNLIN_SEEDS").map_or(2, |text| text.parse().unwrap());
    let ways = [
        ("fasst", Preset::Fasst),
        ("flocktx", Preset::Flock),
        ("scaletx", Preset::ScaleRpc),
        ("auto", Preset::Auto),
    ];
    for seed in 1..=seeds {
        for way in ways {
            let (times, sum) = run(seed, way);
            assert_eq!(sum, BALANCE * ACCOUNTS as i64, "seed {seed}, {way:?}");
            if seed == 1 {
                assert_eq!(run(seed, way).0, times, "{way:?}: another run");
            }
        }
    }
}
