//! Machines of a database on simulated hosts that replace each other: a host crashes under load, the others continue
//! when its lease has expired, and its machine restarts on another host and copies the data. No acknowledged change is
//! lost and no money is created, for several seeds; a seed gives the same run again.

#[path = "common/machines.rs"]
mod machines;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dunlin::txn::membership::Role;
use dunlin::txn::server::TableSpec;
use dunlin::txn::{Database, DatabaseError, Key, Outcome, Table, Value};
use dunlin_verbs::thread;
use machines::{is_whole, serves, Plan, World, CLIENT_HOSTS, MACHINES, SPARE};

const ACCOUNTS: u64 = 20;
const BALANCE: i64 = 1000;
const LEASE: Duration = Duration::from_millis(100);

fn plan() -> Plan {
    let value = || Value::from(BALANCE.to_le_bytes().to_vec());
    Plan {
        tables: vec![
            TableSpec::new(0, "accounts", 1000, 8),
            TableSpec::new(1, "counters", 100, 8),
        ],
        rows: Arc::new(move || {
            Box::new((0..ACCOUNTS).map(move |key| (Key::number(0, key), value())))
        }),
        lease: LEASE,
        pollers: 2,
    }
}

/// Record of one client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Seen {
    acknowledged: i64,
    unknown: i64,
    others: Vec<String>,
    /// End of each transaction that committed.
    at: Vec<Instant>,
}

/// Moves money until told to stop, every other client by futures, and counts the transfers in the same transactions.
fn transfer(
    database: &Database,
    (client, seed): (u64, u64),
    (begun, over): (&AtomicU64, &AtomicBool),
) -> Seen {
    let accounts: &Table<u64, i64> = &database.table("accounts").unwrap();
    let counters: &Table<u64, i64> = &database.table("counters").unwrap();
    let mut random = fastrand::Rng::with_seed(seed << 8 | client);
    let mut seen = Seen::default();
    while !over.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_micros(300));
        let (from, to) = (random.u64(..ACCOUNTS), random.u64(..ACCOUNTS));
        let moved: Result<(), DatabaseError> = match client % 2 {
            0 => database.run(|t| {
                let left = t.get(accounts, &from)?.unwrap_or(0) - 1;
                t.put(accounts, &from, &left)?;
                let right = t.get(accounts, &to)?.unwrap_or(0) + 1;
                t.put(accounts, &to, &right)?;
                let count = t.get(counters, &client)?.unwrap_or(0) + 1;
                t.put(counters, &client, &count)
            }),
            _ => thread::block_on(database.run_async(|t| async move {
                let left = t.get(accounts, &from).await?.unwrap_or(0) - 1;
                t.put(accounts, &from, &left)?;
                let right = t.get(accounts, &to).await?.unwrap_or(0) + 1;
                t.put(accounts, &to, &right)?;
                let count = t.get(counters, &client).await?.unwrap_or(0) + 1;
                t.put(counters, &client, &count)
            })),
        };
        match moved {
            Ok(()) => {
                begun.fetch_add(u64::from(seen.acknowledged == 0), Ordering::Relaxed);
                seen.acknowledged += 1;
                seen.at.push(thread::now());
            }
            Err(DatabaseError::UnknownOutcome { transaction, .. }) => {
                match database.outcome(transaction, 5 * LEASE) {
                    Outcome::Committed => seen.acknowledged += 1,
                    _ => seen.unknown += 1,
                }
            }
            Err(error) => seen.others.push(error.to_string()),
        }
    }
    seen
}

/// The final state as seen by a reader: the money, and the counters.
fn read(database: &Database, clients: u64) -> (i64, Vec<i64>) {
    let accounts: &Table<u64, i64> = &database.table("accounts").unwrap();
    let counters: &Table<u64, i64> = &database.table("counters").unwrap();
    let keys: Vec<u64> = (0..ACCOUNTS).collect();
    let numbers: Vec<u64> = (0..clients).collect();
    let found: Result<_, DatabaseError> = database.read(|t| {
        let money = t.get_many(accounts, &keys)?.into_iter().flatten().sum();
        let counts = t.get_many(counters, &numbers)?;
        Ok((money, counts.into_iter().map(|n| n.unwrap_or(0)).collect()))
    });
    found.unwrap()
}

/// A run: the record of each client, and the time for which nothing committed after the crash, in milliseconds.
fn run(seed: u64) -> (Vec<Seen>, f64) {
    let mut world = World::new(seed, plan());
    let mut lives: Vec<_> = (0..MACHINES)
        .map(|n| world.start(n, usize::from(n)))
        .collect();
    let membership = world.membership.clone();
    world.run_until("the database begins", || is_whole(&membership));
    let mut clients = Vec::new();
    let over = Arc::new(AtomicBool::new(false));
    let begun = Arc::new(AtomicU64::new(0));
    for host in CLIENT_HOSTS {
        for core in 0..2 {
            let client = clients.len() as u64;
            let (over, begun) = (Arc::clone(&over), Arc::clone(&begun));
            clients.push(
                world.client((host, core), Database::builder(), move |database| {
                    transfer(&database, (client, seed), (&begun, &over))
                }),
            );
        }
    }
    let mut random = fastrand::Rng::with_seed(seed);
    let count = clients.len() as u64;
    world.run_until("all clients transfer", || {
        begun.load(Ordering::Relaxed) == count
    });
    world.run_for(random.u64(..20));
    let victim = random.usize(..usize::from(MACHINES));
    world.cluster.crash(world.host(victim));
    world.run_until("the others go on", || {
        serves(&membership, |number, role| {
            (number == victim) == (role == Role::Out)
        })
    });
    world.run_for(30);
    lives.push(world.start(victim as u16, SPARE));
    world.run_until("it comes back", || is_whole(&membership));
    world.run_for(20);
    over.store(true, Ordering::Relaxed);
    let running = Arc::clone(&world.running);
    world.run_until("clients end", || running.load(Ordering::Relaxed) == 0);
    let (place, builder) = ((CLIENT_HOSTS.start, 2), Database::builder());
    let end = world.client(place, builder, move |database| read(&database, count));
    world.run_until("a reader ends", || end.lock().unwrap().is_some());
    let (money, counts) = end.lock().unwrap().take().unwrap();
    assert_eq!(money, BALANCE * ACCOUNTS as i64, "seed {seed}");
    let seen: Vec<Seen> = clients
        .iter()
        .map(|one| one.lock().unwrap().take().unwrap())
        .collect();
    for (client, (seen, count)) in seen.iter().zip(counts).enumerate() {
        let may = seen.acknowledged..=seen.acknowledged + seen.unknown;
        assert!(
            may.contains(&count),
            "seed {seed}: client {client} counts {count} of {may:?}"
        );
        assert!(
            seen.acknowledged > 0 && seen.others.is_empty(),
            "seed {seed}: {:?}",
            seen.others
        );
    }
    let mut all: Vec<Instant> = seen.iter().flat_map(|one| one.at.iter().copied()).collect();
    all.sort_unstable();
    let longest = all.windows(2).map(|pair| pair[1] - pair[0]).max();
    (seen, longest.unwrap_or_default().as_secs_f64() * 1e3)
}

#[test]
fn a_host_that_crashes_loses_nothing_and_its_machine_comes_back() {
    let seeds = std::env::var("DUNLIN_SEEDS").map_or(2, |text| text.parse().unwrap());
    let from = std::env::var("DUNLIN_SEED").map_or(1, |text| text.parse().unwrap());
    for seed in from..from + seeds {
        let (seen, longest) = run(seed);
        println!("seed {seed}: nothing committed for {longest:.1} ms");
        if seed == 1 {
            assert_eq!(run(seed).0, seen, "another run");
        }
    }
}
