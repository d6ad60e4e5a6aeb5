//! A hostile process of the same user, with nothing but what a peer is given (descriptors, mappings, the ways in),
//! harms nobody but itself: the other side goes on with everybody else, while it is there and after it was killed. Both
//! ways: hostile clients, hostile servers.
//!
//! `DUNLIN_HOSTILE_SEEDS` sets the number of hostile processes for each preset, `DUNLIN_HOSTILE_SEED` the first seed.

#[path = "hostile/attack.rs"]
mod attack;
mod common;
#[path = "../../dunlin-shm/tests/common/process.rs"]
mod process;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use attack::{Attack, Random};
use common::{pattern, ECHO};
use dunlin::{Client, Preset, Region, RunningServer, Server};
use process::{listen, role, say, Other};

/// An echo on the worker pool.
const ON_WORKERS: u16 = 2;
/// Long enough for any answer on a busy machine, short enough that a hang is seen.
const DEADLINE: Duration = Duration::from_secs(15);
/// No step may take so long: who is not answered within the deadline has been told by then.
const PATIENCE: Duration = Duration::from_secs(60);
/// The test by which another process is started.
const OTHER: &str = "the_other_process";

fn number(name: &str, default: u64) -> u64 {
    let text = std::env::var(name);
    text.map_or(default, |text| text.parse().unwrap())
}

fn serve() -> RunningServer {
    Server::bind("dunlin://127.0.0.1:0")
        .unwrap()
        .region(&Region::new("table", 1 << 16).writable().atomic())
        .region(&Region::new("notes", 4096))
        .handle(ECHO, |request, reply| reply.write(request.payload()))
        .handle_on_workers(ON_WORKERS, |request, reply| reply.write(request.payload()))
        .serve()
        .unwrap()
}

fn connect(preset: Preset, address: &str) -> Client {
    let client = Client::builder().preset(preset).deadline(DEADLINE);
    client.connect(address).unwrap()
}

/// Calls of all sizes that must be answered right.
fn call(client: &Client, calls: u64, seed: u64) {
    for number in 0..calls {
        let length = [0, 8, 64, 500, 4096, 9000][(number % 6) as usize];
        let handler = [ECHO, ECHO, ON_WORKERS][(number % 3) as usize];
        let payload = pattern(length, seed ^ number);
        let reply = client.call(handler, &payload).unwrap();
        assert!(*reply == *payload, "a wrong answer of {length} bytes");
    }
}

/// Calls of which any may fail, until `stop`; none may hang or be answered wrong.
fn call_whatever_comes(client: &Client, stop: &AtomicBool) {
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        number += 1;
        let payload = pattern(40, number);
        // What a hostile server answers is its affair.
        let _ = client.call_within(Duration::from_millis(500), ECHO, &payload);
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Runs attacks by a seed, again and again, until told to stop.
fn attack(seed: u64, peer: u32, stop: &AtomicBool) {
    let mut random = Random::new(seed);
    // Each hostile process has kinds of its own, so that some of them keep their connection for long.
    let first = Attack::ALL[(seed % Attack::ALL.len() as u64) as usize];
    let second = Attack::ALL[random.below(Attack::ALL.len() as u64) as usize];
    eprintln!("seed {seed}: {first:?}, {second:?}");
    while !stop.load(Ordering::Relaxed) {
        for kind in [first, first, second] {
            kind.run(&mut random, peer);
            std::thread::sleep(Duration::from_millis(random.below(5)));
        }
    }
}

/// Not a test of its own: what the processes that the tests start are.
#[test]
fn the_other_process() {
    let Some((role, argument)) = role() else {
        return;
    };
    let words: Vec<&str> = argument.split(' ').collect();
    match (&*role, &*words) {
        ("server", _) => {
            let server = serve();
            say(&server.address().to_string());
            assert!(listen().is_some());
            say(&server.shutdown().to_string());
        }
        ("hostile-client", [preset, address, peer, seed]) => {
            let client = connect(preset.parse().unwrap(), address);
            let seed = seed.parse().unwrap();
            call(&client, 12, seed);
            if let Ok(table) = client.attach("table") {
                let _ = table.fetch_add(0, 1);
            }
            let peer = peer.parse().unwrap();
            hostile(seed, peer, &client);
        }
        ("hostile-server", [seed]) => {
            let server = serve();
            say(&server.address().to_string());
            let peer: u32 = listen().unwrap().parse().unwrap();
            let address = server.address().to_string();
            hostile(
                seed.parse().unwrap(),
                peer,
                &connect(Preset::Plain, &address),
            );
        }
        _ => panic!("no role {role} {argument}"),
    }
}

/// Attacks beside calls of its own, until it is killed.
fn hostile(seed: u64, peer: u32, client: &Client) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| call_whatever_comes(client, &stop));
        say("ready");
        scope.spawn(|| attack(seed, peer, &stop));
        // Whatever becomes of this end of the pipe: the first process kills this one.
        while listen().is_some() {}
        stop.store(true, Ordering::Relaxed);
        std::process::exit(0);
    });
}

/// Runs `work` on a thread and waits for it no longer than anything may take.
fn within_patience(what: &str, work: impl FnOnce() + Send + 'static) {
    let thread = std::thread::spawn(work);
    let started = Instant::now();
    while !thread.is_finished() {
        if started.elapsed() > PATIENCE {
            // What hangs would hang the clean-up of a failed test as well.
            eprintln!("hangs: {what}");
            std::process::exit(101);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    if let Err(panic) = thread.join() {
        eprintln!("failed: {what}");
        std::panic::resume_unwind(panic);
    }
}

/// The good clients of a server that hostile processes are at: one that was there before them, and a new one each time.
fn goes_on(what: &str, old: &Client, preset: Preset, address: &str, seed: u64) {
    let (old, address) = (old.clone(), address.to_owned());
    within_patience(what, move || {
        call(&old, 60, seed);
        call(&connect(preset, &address), 12, seed);
    });
}

/// The seeds of hostile processes for a preset. Presets begin with different kinds of attacks.
fn seeds(preset: Preset) -> impl Iterator<Item = u64> {
    let count = number("DUNLIN_HOSTILE_SEEDS", 3);
    let place = Preset::ALL.iter().position(|one| *one == preset).unwrap() as u64;
    let first = number("DUNLIN_HOSTILE_SEED", 1 + place * count);
    first..first + count
}

fn hostile_clients(preset: Preset) {
    let mut server = Other::start(OTHER, "server", "");
    let address = server.hear();
    let peer = server.child.id();
    let old = connect(preset, &address);
    call(&old, 12, 0);
    for seed in seeds(preset) {
        let argument = format!("{preset} {address} {peer} {seed}");
        let mut hostile = Other::start(OTHER, "hostile-client", &argument);
        assert_eq!(hostile.hear(), "ready");
        for round in 0..3 {
            let what = format!("{preset}, DUNLIN_HOSTILE_SEED={seed}, round {round}");
            goes_on(&what, &old, preset, &address, seed);
        }
        hostile.kill();
        let what = format!("{preset}, seed {seed}, after the hostile process was killed");
        goes_on(&what, &old, preset, &address, seed);
    }
    drop(old);
    within_patience("the server ends when it is told to", move || {
        server.say("end");
        server.hear();
        assert!(server.child.wait().unwrap().success());
    });
}

fn hostile_servers(preset: Preset) {
    let good = serve();
    let address = good.address().to_string();
    let old = connect(preset, &address);
    for seed in seeds(preset) {
        let mut hostile = Other::start(OTHER, "hostile-server", &seed.to_string());
        let theirs = hostile.hear();
        let victim = connect(preset, &theirs);
        call(&victim, 12, seed);
        hostile.say(&std::process::id().to_string());
        assert_eq!(hostile.hear(), "ready");
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, caller) = (Arc::clone(&stop), victim.clone());
        let calls = std::thread::spawn(move || call_whatever_comes(&caller, &stopped));
        for round in 0..3 {
            let what = format!("{preset}, server with seed {seed}, round {round}");
            goes_on(&what, &old, preset, &address, seed);
        }
        stop.store(true, Ordering::Relaxed);
        within_patience("a client of a hostile server ends its calls", move || {
            calls.join().unwrap()
        });
        hostile.kill();
        within_patience("a client of a hostile server is dropped", move || {
            drop(victim)
        });
        goes_on(
            "after a hostile server was killed",
            &old,
            preset,
            &address,
            seed,
        );
    }
    drop(old);
    within_patience("the good server ends", move || {
        good.shutdown();
    });
}

macro_rules! presets {
    ($($name:ident: $preset:expr),* $(,)?) => {
        $(mod $name {
            use super::*;

            #[test]
            fn goes_on_beside_hostile_clients() {
                hostile_clients($preset);
            }

            #[test]
            fn goes_on_beside_hostile_servers() {
                hostile_servers($preset);
            }
        })*

        #[test]
        fn every_preset_is_attacked() {
            let mut attacked = vec![$($preset),*];
            for preset in Preset::ALL {
                let place = attacked.iter().position(|one| one == preset);
                attacked.swap_remove(place.unwrap_or_else(|| panic!("{preset} is not in the list")));
            }
        }
    };
}

presets! {
    plain: Preset::Plain,
    flock: Preset::Flock,
    qp_per_thread: Preset::QpPerThread,
    spinlock_2: Preset::Spinlock2,
    spinlock_4: Preset::Spinlock4,
    flock_no_coalescing: Preset::FlockNoCoalescing,
    flock_no_scheduling: Preset::FlockNoScheduling,
    fasst: Preset::Fasst,
    scalerpc: Preset::ScaleRpc,
    rawwrite: Preset::RawWrite,
    selfrpc: Preset::SelfRpc,
    erpc: Preset::Erpc,
    herd: Preset::Herd,
    xrdma: Preset::Xrdma,
    rb2: Preset::Rb2,
    flor: Preset::Flor,
    auto: Preset::Auto,
}
