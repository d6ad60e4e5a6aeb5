//! SIGKILL of the server or of a client under load: the survivor hears of it, call by call, and goes on.
//!
//! `DUNLIN_KILL_ROUNDS` sets the number of rounds of each kind, `DUNLIN_KILL_SEED` the seed.

mod common;
#[path = "../../dunlin-shm/tests/common/process.rs"]
mod process;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use common::{eventually, pattern, ECHO};
use dunlin::{CallError, Client, RunningServer, Server};
use process::{listen, role, say, Other};

/// An echo on the worker pool.
const SLOW_ECHO: u16 = 2;
/// Long enough for any answer, short enough that a hang is seen.
const DEADLINE: Duration = Duration::from_secs(30);
/// How soon a survivor must know.
const BOUND: Duration = Duration::from_secs(20);

/// What this process has open is counted, so one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn rounds() -> u64 {
    let text = std::env::var("DUNLIN_KILL_ROUNDS");
    text.map_or(10, |text| text.parse().unwrap())
}

fn seed() -> u64 {
    let seed = match std::env::var("DUNLIN_KILL_SEED") {
        Ok(text) => text.parse().unwrap(),
        Err(_) => std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap()
            .as_nanos() as u64,
    };
    println!("DUNLIN_KILL_SEED={seed}");
    seed
}

/// A delay that belongs to the seed and the round, from 0 to 60 ms.
fn delay(seed: u64, round: u64) -> Duration {
    let bytes = pattern(4, seed ^ round.wrapping_mul(0x2545_f491_4f6c_dd1d));
    let word = u32::from_le_bytes(bytes.try_into().unwrap());
    Duration::from_micros(u64::from(word % 60_000))
}

/// What is open and mapped in this process, in numbers.
#[derive(Debug)]
struct Belongings {
    files: usize,
    shared_mappings: usize,
    resident_kib: usize,
}

impl Belongings {
    fn now() -> Self {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let resident = status.lines().find(|line| line.starts_with("VmRSS:"));
        let number = resident.and_then(|line| line.split_whitespace().nth(1));
        Self {
            files: std::fs::read_dir("/proc/self/fd").unwrap().count(),
            shared_mappings: maps.lines().filter(|line| line.contains("memfd:")).count(),
            resident_kib: number.unwrap().parse().unwrap(),
        }
    }

    /// Whether it is back at `before`, give or take what a pool or a cache may hold.
    fn is_about(&self, before: &Self) -> bool {
        self.files <= before.files + 4
            && self.shared_mappings <= before.shared_mappings + 4
            && self.resident_kib <= before.resident_kib + 32 * 1024
    }
}

fn named_shared_files() -> Vec<String> {
    let Ok(files) = std::fs::read_dir("/dev/shm") else {
        return Vec::new();
    };
    let names = files.filter_map(|file| file.ok()?.file_name().into_string().ok());
    names
        .filter(|name| name.to_lowercase().contains("dunlin"))
        .collect()
}

fn echo_server() -> RunningServer {
    Server::bind("dunlin://127.0.0.1:0")
        .unwrap()
        .handle(ECHO, |request, reply| reply.write(request.payload()))
        .handle_on_workers(SLOW_ECHO, |request, reply| {
            std::thread::sleep(Duration::from_micros(200));
            reply.write(request.payload())
        })
        .serve()
        .unwrap()
}

/// What became of calls.
#[derive(Debug, Default)]
struct Tally {
    submitted: AtomicU64,
    answered: AtomicU64,
    failed: AtomicU64,
}

impl Tally {
    fn submit(&self) {
        self.submitted.fetch_add(1, Ordering::Relaxed);
    }

    fn ended<T>(&self, result: &Result<T, CallError>) {
        match result {
            Ok(_) => self.answered.fetch_add(1, Ordering::Relaxed),
            Err(error) => {
                assert!(
                    matches!(
                        error,
                        CallError::ConnectionLost { .. } | CallError::Connect(_)
                    ),
                    "{error:?}"
                );
                self.failed.fetch_add(1, Ordering::Relaxed)
            }
        };
    }

    fn numbers(&self) -> (u64, u64, u64) {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (
            read(&self.submitted),
            read(&self.answered),
            read(&self.failed),
        )
    }
}

/// Calls of one thread, one at a time, until one fails.
fn calls_one_by_one(client: &Client, tally: &Tally, sizes: &[usize], handler: u16) {
    for round in 0.. {
        let payload = pattern(sizes[round % sizes.len()], round as u64);
        tally.submit();
        let result = client.call(handler, &payload);
        tally.ended(&result);
        match result {
            Ok(reply) => assert!(*reply == *payload, "a wrong answer"),
            Err(_) => return,
        }
    }
}

/// A pipeline with many calls out, until it is lost; `waits` says whether it sleeps for answers or polls.
fn calls_in_pipeline(client: &Client, tally: &Tally, waits: bool) {
    let Ok(mut pipeline) = client.pipeline() else {
        return;
    };
    let sizes = [0usize, 40, 64, 500, 5000, 100_000];
    let mut sent = 0u64;
    loop {
        while pipeline.outstanding() < 60 {
            let size = sizes[sent as usize % sizes.len()];
            match pipeline.submit(ECHO, &pattern(size, sent), sent) {
                Ok(true) => {
                    tally.submit();
                    sent += 1;
                }
                Ok(false) | Err(_) => break,
            }
        }
        let answer = |tag: u64, result: Result<&[u8], CallError>| {
            tally.ended(&result);
            if let Ok(bytes) = result {
                let size = sizes[tag as usize % sizes.len()];
                assert!(*bytes == *pattern(size, tag), "a wrong answer");
            }
        };
        let step = if waits {
            pipeline.wait(answer)
        } else {
            pipeline.poll(answer)
        };
        if step.is_err() {
            assert_eq!(pipeline.outstanding(), 0, "calls that nobody will end");
            return;
        }
    }
}

/// Futures on a runtime, some of them at once, until one of each task fails.
fn calls_as_futures(client: &Client, tally: &Arc<Tally>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .build()
        .unwrap();
    runtime.block_on(async {
        let tasks: Vec<_> = (0..8u64)
            .map(|task| {
                let (client, tally) = (client.clone(), Arc::clone(tally));
                tokio::spawn(async move {
                    for round in 0.. {
                        let payload = pattern([10, 3000, 100_000][round % 3], task);
                        tally.submit();
                        let result = client.call_async(ECHO, &payload).await;
                        tally.ended(&result);
                        match result {
                            Ok(reply) => assert!(*reply == *payload, "a wrong answer"),
                            Err(_) => return,
                        }
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
}

/// All kinds of load at once; returns when each of them has seen an error.
fn load(client: &Client, tally: &Arc<Tally>, ended: &Mutex<Vec<(&'static str, Instant)>>) {
    type Work<'a> = Box<dyn FnOnce() + Send + 'a>;
    let all: [(&'static str, Work<'_>); 6] = [
        (
            "short calls",
            Box::new(|| calls_one_by_one(client, tally, &[0, 8, 64, 300], ECHO)),
        ),
        (
            "long calls",
            Box::new(|| calls_one_by_one(client, tally, &[100_000], ECHO)),
        ),
        (
            "calls on workers",
            Box::new(|| calls_one_by_one(client, tally, &[64, 100_000], SLOW_ECHO)),
        ),
        (
            "a pipeline that waits",
            Box::new(|| calls_in_pipeline(client, tally, true)),
        ),
        (
            "a pipeline that polls",
            Box::new(|| calls_in_pipeline(client, tally, false)),
        ),
        ("futures", Box::new(|| calls_as_futures(client, tally))),
    ];
    std::thread::scope(|scope| {
        for (name, work) in all {
            scope.spawn(move || {
                work();
                ended.lock().unwrap().push((name, Instant::now()));
            });
        }
    });
}

fn connect(address: &str) -> Client {
    Client::builder()
        .deadline(DEADLINE)
        .connect(address)
        .unwrap()
}

/// Not a test by itself: the process that is killed.
#[test]
fn the_other_process() {
    match role() {
        Some((role, _)) if role == "server" => {
            let server = echo_server();
            say(&server.address().to_string());
            while listen().is_some() {}
        }
        Some((role, address)) if role == "client" => {
            let client = connect(&address);
            let tally = Arc::new(Tally::default());
            say("connected");
            load(&client, &tally, &Mutex::new(Vec::new()));
            panic!("the server that should survive was lost: {tally:?}");
        }
        _ => {}
    }
}

#[test]
fn a_killed_server_ends_every_call_with_an_error() {
    let _alone = alone();
    let (rounds, seed) = (rounds(), seed());
    let mut slowest = (Duration::ZERO, "");
    let mut sums = [0u64; 3];
    let mut baseline = None;
    for round in 0..rounds {
        let mut server = Other::start("the_other_process", "server", "");
        let address = server.hear();
        let client = connect(&address);
        let tally = Arc::new(Tally::default());
        let ended = Mutex::new(Vec::new());
        let mut killed = Instant::now();
        std::thread::scope(|scope| {
            let loader = scope.spawn(|| load(&client, &tally, &ended));
            std::thread::sleep(delay(seed, round));
            server.kill();
            killed = Instant::now();
            while !loader.is_finished() {
                let late = killed.elapsed();
                assert!(
                    late < BOUND,
                    "round {round}: calls are still out: {tally:?}; ended: {:?}",
                    ended.lock().unwrap()
                );
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        for (name, at) in ended.into_inner().unwrap() {
            slowest = slowest.max((at.saturating_duration_since(killed), name));
        }
        let (submitted, answered, failed) = tally.numbers();
        assert_eq!(submitted, answered + failed, "round {round}");
        for (sum, number) in sums.iter_mut().zip([submitted, answered, failed]) {
            *sum += number;
        }

        // The survivor's handle says so while there is no server, and other servers are in reach.
        // This thread's lane may not have heard of the end yet: then a call is what finds it out.
        let refused = match client.call(ECHO, b"anyone?") {
            Err(CallError::ConnectionLost { .. }) => client.call(ECHO, b"anyone?"),
            other => other,
        };
        assert!(matches!(refused, Err(CallError::Connect(_))), "{refused:?}");
        let mut next = Other::start("the_other_process", "server", "");
        let other = connect(&next.hear());
        assert_eq!(&*other.call(ECHO, b"hello").unwrap(), b"hello");
        drop((client, other));
        next.kill();
        if round == 0 {
            baseline = Some(Belongings::now());
        }
    }
    let baseline = baseline.unwrap();
    eventually("what belonged to dead servers is given back", || {
        Belongings::now().is_about(&baseline)
    });
    println!(
        "{rounds} servers killed: {} calls, {} answered, {} failed; slowest to know: {} after {:?}; \
         first {baseline:?}, last {:?}",
        sums[0],
        sums[1],
        sums[2],
        slowest.1,
        slowest.0,
        Belongings::now()
    );
    assert_eq!(named_shared_files(), Vec::<String>::new());
}

#[test]
fn a_killed_client_leaves_nothing_and_harms_nobody() {
    let _alone = alone();
    let (rounds, seed) = (rounds(), seed());
    let server = echo_server();
    let address = server.address().to_string();
    let stop = AtomicBool::new(false);
    let served = AtomicU64::new(0);
    let slowest_call = Mutex::new(Duration::ZERO);
    let mut slowest = Duration::ZERO;
    let mut baseline = None;
    let mut peak = 0;
    std::thread::scope(|scope| {
        // A client that keeps the server busy all the time: it must not notice anything.
        let steady = scope.spawn(|| {
            let client = connect(&address);
            while !stop.load(Ordering::Relaxed) {
                let number = served.fetch_add(1, Ordering::Relaxed);
                let payload = pattern([16, 100, 5000][number as usize % 3], number);
                let started = Instant::now();
                let reply = client.call(ECHO, &payload).unwrap();
                assert!(*reply == *payload, "a wrong answer");
                let mut slowest = slowest_call.lock().unwrap();
                *slowest = (*slowest).max(started.elapsed());
            }
        });
        eventually("the steady client is there", || server.connections() == 1);
        for round in 0..rounds {
            let mut client = Other::start("the_other_process", "client", &address);
            assert_eq!(client.hear(), "connected");
            std::thread::sleep(delay(seed, round));
            peak = peak.max(server.connections());
            client.kill();
            let killed = Instant::now();
            eventually("the dead client's connections end", || {
                assert!(!steady.is_finished(), "the steady client was harmed");
                server.connections() == 1
            });
            slowest = slowest.max(killed.elapsed());
            if round == 0 {
                baseline = Some(Belongings::now());
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    let baseline = baseline.unwrap();
    eventually("what belonged to dead clients is given back", || {
        Belongings::now().is_about(&baseline)
    });
    let statistics = server.statistics();
    println!(
        "{rounds} clients killed with up to {} connections: {} requests, {} connections closed; \
         slowest to know: {slowest:?}; the steady client made {} calls, slowest {:?}; \
         first {baseline:?}, last {:?}",
        peak - 1,
        statistics.requests,
        statistics.closed,
        served.load(Ordering::Relaxed),
        slowest_call.lock().unwrap(),
        Belongings::now()
    );
    assert_eq!(statistics.violations, 0, "a dead client is not a bad one");
    assert!(server.shutdown());
    assert_eq!(named_shared_files(), Vec::<String>::new());
}
