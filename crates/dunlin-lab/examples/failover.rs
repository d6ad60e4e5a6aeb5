//! A database on simulated hosts one of which crashes, from the crash until everything is as before: the lease ends, an
//! epoch begins, and the machine restarts on another host and copies. Prints the clients' rate meanwhile.
//!
//! ```sh
//! cargo run --release -p dunlin-lab --example failover -- 200 1000 1
//! ```
//!
//! Arguments: megabytes of values of 1000 bytes, the lease in milliseconds, client threads with four transactions at
//! once on each of two client machines. Three machines with eight pollers and a copy of every key each serve YCSB A by
//! FLOCKTX. Machines, agents, clients and their drivers are those of `dunlin-txn`; the membership is one place, 200 us
//! away. The core time of requests and copying is in its `effort.rs`. The example `recovery`, which only copies,
//! measures larger amounts.

#[path = "../tests/common/machines.rs"]
mod machines;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dunlin::txn::membership::Role;
use dunlin::txn::workload::{Mix, Workload, Ycsb};
use dunlin::txn::{Database, Report, TransactionError};
use dunlin::{ChannelConfig, Preset, WaitMode};
use dunlin_verbs::thread;
use machines::{is_whole, serves, Plan, World, CLIENT_HOSTS, MACHINES, SPARE};

const VALUE_BYTES: u64 = 1000;
const POLLERS: usize = 8;
const AT_ONCE: u16 = 4;
const WINDOW_MS: u64 = 20;
const VICTIM: usize = 1;
type Failure = Box<dyn std::error::Error>;

/// Results of clients since the last call.
#[derive(Default)]
struct Seen {
    committed: AtomicU64,
    superseded: AtomicU64,
    failed: Mutex<Vec<String>>,
    latencies_ns: Mutex<Vec<u64>>,
    /// The last commit, and the longest time without one so far.
    quiet: Mutex<(Option<Instant>, Duration)>,
}

/// Runs transactions until told to stop.
fn transact(database: &Database, number: u64, mut load: Ycsb, seen: &Seen, over: &AtomicBool) {
    let mut driver = database.driver_numbered(number, AT_ONCE).unwrap();
    let mut random = fastrand::Rng::with_seed(number + 1);
    let mut begun: Vec<Option<Instant>> = vec![None; usize::from(AT_ONCE)];
    loop {
        let ends = over.load(Ordering::Relaxed);
        if ends && driver.running() == 0 {
            return;
        }
        while !ends && driver.free() > 0 {
            let Some(name) = begun.iter().position(Option::is_none) else {
                break;
            };
            begun[name] = Some(thread::now());
            driver.begin(name as u64, load.next(&mut random));
        }
        let busy = driver.poll(|name, _, report| {
            let Report::Ended(result) = report else {
                return;
            };
            let now = thread::now();
            let since = begun[name as usize].take();
            match result {
                Ok(_) => {
                    seen.committed.fetch_add(1, Ordering::Relaxed);
                    let took = since.map_or(0, |since| (now - since).as_nanos() as u64);
                    seen.latencies_ns.lock().unwrap().push(took);
                    let (last, longest) = &mut *seen.quiet.lock().unwrap();
                    let quiet = last.replace(now).map_or(Duration::ZERO, |last| now - last);
                    *longest = quiet.max(*longest);
                }
                Err(TransactionError::Locked { .. } | TransactionError::Changed { .. }) => {}
                Err(TransactionError::Superseded | TransactionError::Unknown { .. }) => {
                    seen.superseded.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => seen.failed.lock().unwrap().push(error.to_string()),
            }
        });
        if !busy {
            driver.rest();
        }
    }
}

/// Runs for a window, and prints the clients' results; returns their rate in thousands per second.
fn window(world: &mut World, seen: &Seen, what: &str) -> f64 {
    world.run_for(WINDOW_MS);
    let mut all = std::mem::take(&mut *seen.latencies_ns.lock().unwrap());
    all.sort_unstable();
    let at = |share: f64| {
        let place = (all.len() as f64 * share) as usize;
        let place = place.min(all.len().saturating_sub(1));
        all.get(place).map_or(0.0, |&ns| ns as f64 / 1e3)
    };
    let rate = seen.committed.swap(0, Ordering::Relaxed) as f64 / WINDOW_MS as f64;
    let (now, median, high) = (world.now_ms, at(0.5), at(0.99));
    println!("{now:>8} {rate:>12.1} {median:>10.1} {high:>10.1}  {what}");
    rate
}

/// Runs windows until the condition holds; returns the mean rate.
fn windows(world: &mut World, seen: &Seen, what: &str, is: impl Fn(&World) -> bool) -> f64 {
    let (mut sum, mut count) = (0.0, 0.0);
    while !is(world) {
        sum += window(world, seen, what);
        count += 1.0;
    }
    sum / f64::max(count, 1.0)
}

fn loaded(megabytes: u64) -> Ycsb {
    Ycsb::new(Mix::A, megabytes * 1_000_000 / VALUE_BYTES)
}

fn main() -> Result<(), Failure> {
    let number = |at: usize, default: u64| -> Result<u64, std::num::ParseIntError> {
        let argument = std::env::args().nth(at);
        argument.map_or(Ok(default), |text| text.parse())
    };
    let (megabytes, lease, threads) = (number(1, 20)?, number(2, 200)?, number(3, 1)?);
    let load = loaded(megabytes);
    let plan = Plan {
        tables: load.tables(),
        rows: Arc::new(move || {
            let load = loaded(megabytes);
            let values: Vec<_> = load.load().collect();
            Box::new(values.into_iter())
        }),
        lease: Duration::from_millis(lease),
        pollers: POLLERS,
    };
    let mut world = World::new(1, plan);
    let mut lives: Vec<_> = (0..MACHINES)
        .map(|n| world.start(n, usize::from(n)))
        .collect();
    let membership = world.membership.clone();
    world.run_until("the database begins", || is_whole(&membership));
    let (seen, over) = (Arc::new(Seen::default()), Arc::new(AtomicBool::new(false)));
    let mut clients = Vec::new();
    for (at, host) in CLIENT_HOSTS.enumerate() {
        for core in 0..threads {
            let (load, seen, over) = (load.clone(), Arc::clone(&seen), Arc::clone(&over));
            let number = at as u64 * threads + core;
            let channel = ChannelConfig {
                wait: WaitMode::Spin,
                ..ChannelConfig::default()
            };
            let builder = Database::builder().protocol("flocktx");
            let builder = builder.client(|client| client.preset(Preset::Flock).channel(channel));
            clients.push(
                world.client((host, core as usize), builder, move |database| {
                    transact(&database, number, load, &seen, &over);
                }),
            );
        }
    }
    println!(
        "{:>8} {:>12} {:>10} {:>10}",
        "ms", "k commits/s", "p50 us", "p99 us"
    );
    window(&mut world, &seen, "begins");
    let before = window(&mut world, &seen, "before");
    *seen.quiet.lock().unwrap() = (None, Duration::ZERO);
    world.cluster.crash(world.host(VICTIM));
    let crashed = world.now_ms;
    windows(&mut world, &seen, "crashed", |_| {
        serves(&membership, |at, role| {
            (at == VICTIM) == (role == Role::Out)
        })
    });
    let epoch = world.now_ms - crashed;
    let soon = world.now_ms + 5 * WINDOW_MS;
    windows(&mut world, &seen, "without it", |world| {
        world.now_ms >= soon
    });
    let two = window(&mut world, &seen, "without it");
    let (_, quiet) = *seen.quiet.lock().unwrap();
    let comes = world.now_ms;
    lives.push(world.start(VICTIM as u16, SPARE));
    let copying = windows(&mut world, &seen, "copying", |_| is_whole(&membership));
    let copied = world.now_ms - comes;
    let end = world.now_ms + 5 * WINDOW_MS;
    windows(&mut world, &seen, "whole", |world| world.now_ms >= end);
    over.store(true, Ordering::Relaxed);
    let running = Arc::clone(&world.running);
    world.run_until("clients end", || running.load(Ordering::Relaxed) == 0);
    let superseded = seen.superseded.load(Ordering::Relaxed);
    println!(
        "the others' epoch served {epoch} ms after the crash, and nothing committed for {:.1} ms; {superseded} \
         transactions ended with an epoch; {megabytes} MB were there again {copied} ms after the machine came, at {:.2} \
         of the rate without it and {:.2} of that before",
        quiet.as_secs_f64() * 1e3,
        copying / two,
        copying / before,
    );
    let failed = seen.failed.lock().unwrap();
    match failed.first() {
        Some(first) => Err(format!("{} transactions failed: {first}", failed.len()).into()),
        None => Ok(()),
    }
}
