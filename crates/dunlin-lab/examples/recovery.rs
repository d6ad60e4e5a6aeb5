//! A machine of a database restarts on simulated hosts: measures how long it takes to copy the data of the others, and
//! the effect on their clients.
//!
//! ```sh
//! cargo run --release -p dunlin-lab --example recovery -- 10 300000 1
//! ```
//!
//! Arguments: gigabytes to copy, number of items of 1000 bytes (copied repeatedly up to that amount), client threads
//! with four transactions at once on each of two client machines. Two machines have a copy of every key each and serve
//! YCSB A; a third one requests from both the keys of which they are primary, chunk by chunk, one chunk of each at a
//! time, as a machine that has joined a membership does (`dunlin_txn::recovery`). Stores, chunks and calls are those of
//! `dunlin-txn`; the core time of requests and of copying is in its `effort.rs` (the latter measured by its example
//! `copying`). Not included: the lease that must end before, the beginning of the epoch and the changes that reach the
//! third machine while it copies. Those are in the example `failover`, with fewer bytes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

use dunlin::txn::membership::peer::PeerAnswer;
use dunlin::txn::server::{LocalStore, StoreConfig};
use dunlin::txn::workload::{Mix, Workload, Ycsb};
use dunlin::txn::{Database, Driver, Report, TransactionError};
use dunlin::{ChannelConfig, Client, Preset, Server, WaitMode};
use dunlin_sim::{Cluster, HostId, HostParameters, NicParameters, SimDevice, SwitchParameters};
use dunlin_verbs::{thread, Device, Work};

const COPY: u16 = 7;
/// Times of an item of 1000 bytes: to find it, put it into a message, take it out of the message, and store it.
const FOUND_NS: u64 = 330;
const ENCODED_NS: u64 = 55;
const DECODED_NS: u64 = 95;
const STORED_NS: u64 = 260;
const POLLERS: usize = 8;
const AT_ONCE: u16 = 4;
const CLIENT_MACHINES: usize = 2;
const WINDOW_NS: u64 = 10_000_000;
type Failure = Box<dyn std::error::Error>;

/// Results of clients since the last call.
#[derive(Default)]
struct Seen {
    committed: AtomicU64,
    failed: AtomicU64,
    latencies_ns: Mutex<Vec<u64>>,
}

impl Seen {
    /// Thousands per second, median and 99th percentile of the latency in microseconds.
    fn take(&self, window_ns: u64) -> (f64, f64, f64) {
        let mut all = std::mem::take(&mut *self.latencies_ns.lock().expect("nobody panicked"));
        all.sort_unstable();
        let at = |share: f64| {
            let place = (all.len() as f64 * share) as usize;
            all.get(place.min(all.len().saturating_sub(1)))
                .map_or(0.0, |&ns| ns as f64 / 1e3)
        };
        let committed = self.committed.swap(0, Ordering::Relaxed) as f64;
        (committed * 1e6 / window_ns as f64, at(0.5), at(0.99))
    }
}

fn config(machine: u16, machines: u16, load: &Ycsb) -> StoreConfig {
    StoreConfig {
        machine,
        machines,
        replicas: machines,
        tables: load.tables(),
        one_sided_writes: false,
    }
}

/// Charges the core for this many items.
fn compute(items: usize, each_ns: u64) {
    SimDevice::charge(Work::Compute(items as u64 * each_ns));
}

fn channel() -> ChannelConfig {
    ChannelConfig {
        wait: WaitMode::Spin,
        ..ChannelConfig::default()
    }
}

/// The serving machines, once all of them exist.
type Stores = OnceLock<Weak<Vec<LocalStore>>>;

/// Starts a machine that serves, and sends chunks on request.
fn serve(
    cluster: &Cluster,
    host: HostId,
    machine: u16,
    (load, all): (&Ycsb, &Arc<Stores>),
) -> Result<LocalStore, Failure> {
    let all = Arc::clone(all);
    let server = Server::unbound()
        .channel(channel())
        .pollers(POLLERS)
        .pin_pollers(0)
        .handle(COPY, move |request, reply| {
            let cursor = request.payload().try_into().map_or(0, u64::from_le_bytes);
            let all = all.get().and_then(Weak::upgrade);
            let (items, next) = all.map_or((Vec::new(), None), |all| {
                all[usize::from(machine)].chunk(cursor, &|items| compute(items, FOUND_NS))
            });
            compute(items.len(), ENCODED_NS);
            let mut bytes = Vec::new();
            PeerAnswer::Chunk(items, next).encode(&mut bytes);
            reply.write(&bytes)
        });
    let device = cluster.device(host);
    let config = config(machine, 2, load);
    let store = LocalStore::serve_on(device, server, &config, POLLERS)?;
    store.load(load.load())?;
    Ok(store)
}

/// Runs transactions until told to stop.
fn transact(mut driver: Driver, mut load: Ycsb, seed: u64, seen: &Seen, over: &AtomicBool) {
    let mut random = fastrand::Rng::with_seed(seed);
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
            let since = begun[name as usize].take();
            match report {
                Report::Ended(Ok(_)) => {
                    seen.committed.fetch_add(1, Ordering::Relaxed);
                    let took = since.map_or(0, |since| (thread::now() - since).as_nanos() as u64);
                    let mut all = seen.latencies_ns.lock().expect("nobody panicked");
                    all.push(took);
                }
                Report::Ended(Err(TransactionError::Locked { .. }))
                | Report::Ended(Err(TransactionError::Changed { .. })) => {}
                Report::Ended(Err(_)) => {
                    seen.failed.fetch_add(1, Ordering::Relaxed);
                }
                _ => {}
            }
        });
        if !busy {
            driver.rest();
        }
    }
}

/// Copies from one machine until all have sent this many bytes together.
fn copy(client: &Client, to: &LocalStore, copied: &AtomicU64, bytes: u64) -> Result<(), Failure> {
    let mut cursor = 0u64;
    while copied.load(Ordering::Relaxed) < bytes {
        let answer = client.call(COPY, &cursor.to_le_bytes())?;
        let PeerAnswer::Chunk(items, next) = PeerAnswer::decode(&answer)? else {
            return Err("no chunk".into());
        };
        compute(items.len(), DECODED_NS);
        to.adopt(&items, &|| compute(items.len(), STORED_NS))?;
        copied.fetch_add(answer.len() as u64, Ordering::Relaxed);
        // Starts over until it is enough.
        cursor = next.unwrap_or(0);
    }
    Ok(())
}

fn main() -> Result<(), Failure> {
    let number = |at: usize, default: u64| -> Result<u64, std::num::ParseIntError> {
        std::env::args()
            .nth(at)
            .map_or(Ok(default), |text| text.parse())
    };
    let (gigabytes, keys, threads) = (number(1, 1)?, number(2, 100_000)?, number(3, 1)?);
    let (host, nic) = (HostParameters::epyc_7452(), NicParameters::connectx_5());
    let switch = SwitchParameters::z9264f();
    let cluster = Cluster::star(1, 3 + CLIENT_MACHINES, &host, &nic, &switch);
    let hosts = cluster.hosts();
    let load = Ycsb::new(Mix::A, keys);
    let all: Arc<Stores> = Arc::default();
    let stores = Arc::new(vec![
        serve(&cluster, hosts[0], 0, (&load, &all))?,
        serve(&cluster, hosts[1], 1, (&load, &all))?,
    ]);
    let _ = all.set(Arc::downgrade(&stores));
    let seen = Arc::new(Seen::default());
    let over = Arc::new(AtomicBool::new(false));
    let ended = Arc::new(AtomicU64::new(0));
    let mut databases = Vec::new();
    for &host in &hosts[3..] {
        let builder = Database::builder()
            .protocol("flocktx")
            .client(|client| client.preset(Preset::Flock).channel(channel()).servers(2));
        let database = builder.open_on(&cluster.device(host), &stores)?;
        databases.push((database, host));
    }
    for (at, (database, host)) in databases.iter().enumerate() {
        for number in 0..threads {
            let coordinator = at as u64 * threads + number;
            let driver = database.driver_numbered(coordinator, AT_ONCE)?;
            let (load, seen, over) = (load.clone(), Arc::clone(&seen), Arc::clone(&over));
            let ended = Arc::clone(&ended);
            cluster.spawn_thread(*host, number as usize, move || {
                transact(driver, load, coordinator + 1, &seen, &over);
                ended.fetch_add(1, Ordering::Relaxed);
            });
        }
    }
    println!(
        "{:>10} {:>10} {:>12} {:>10} {:>10}",
        "ms", "GB", "k commits/s", "p50 us", "p99 us"
    );
    let copied = Arc::new(AtomicU64::new(0));
    let bytes = gigabytes * 1_000_000_000;
    let mut now_ns = 0;
    let mut window = |what: &str| {
        cluster.run_for(WINDOW_NS);
        now_ns += WINDOW_NS;
        let (rate, p50, p99) = seen.take(WINDOW_NS);
        let (ms, gb) = (
            now_ns / 1_000_000,
            copied.load(Ordering::Relaxed) as f64 / 1e9,
        );
        println!("{ms:>10} {gb:>10.2} {rate:>12.1} {p50:>10.1} {p99:>10.1} {what}");
    };
    window("begins");
    window("before");
    let to = Server::unbound().channel(channel()).pollers(1);
    let to = LocalStore::serve_on(cluster.device(hosts[2]), to, &config(0, 1, &load), 1)?;
    let to = Arc::new(to);
    let copying = Arc::new(AtomicU64::new(2));
    let began_ms = 2 * WINDOW_NS / 1_000_000;
    for (core, store) in stores.iter().enumerate() {
        let client = Client::builder()
            .preset(Preset::Plain)
            .deadline(Duration::from_secs(10));
        let acceptor = store.server().acceptor();
        let client = client.connect_on(cluster.device(hosts[2]), &acceptor)?;
        let (to, copied, copying) = (Arc::clone(&to), Arc::clone(&copied), Arc::clone(&copying));
        cluster.spawn_thread(hosts[2], 1 + core, move || {
            if let Err(error) = copy(&client, &to, &copied, bytes) {
                panic!("copying: {error}");
            }
            drop(client);
            copying.fetch_sub(1, Ordering::Relaxed);
        });
    }
    let mut windows = 0;
    while copying.load(Ordering::Relaxed) > 0 {
        window("copying");
        windows += 1;
    }
    let ms = windows * WINDOW_NS / 1_000_000;
    println!("copied {gigabytes} GB in {ms} ms, begun at {began_ms} ms");
    window("after");
    over.store(true, Ordering::Relaxed);
    while ended.load(Ordering::Relaxed) < threads * CLIENT_MACHINES as u64 {
        cluster.run_for(1_000_000);
    }
    println!(
        "{} transactions failed",
        seen.failed.load(Ordering::Relaxed)
    );
    // Simulated threads must be awaited on simulated threads, so the process exits with all of them.
    std::process::exit(i32::from(seen.failed.load(Ordering::Relaxed) > 0));
}
