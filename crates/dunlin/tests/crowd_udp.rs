//! Many connections of one server over UDP (device `roce`): a storm of clients at once, each with several connections,
//! then calls on all of them. Nobody is refused, nothing is lost, and all goes away again.
//!
//! `DUNLIN_CROWD` sets the clients, which come at once, each with a thread of its own (50), `DUNLIN_SECONDS` how long
//! calls go on (1). The figures of docs/notes/roce.md are of `DUNLIN_CROWD=1000 DUNLIN_SECONDS=60 cargo test -p dunlin
//! --release --test crowd_udp -- --nocapture`.

mod common;
#[path = "../../dunlin-shm/tests/common/process.rs"]
mod process;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use common::{eventually, number, resident_kib, ECHO};
use dunlin::{Client, Pipeline, Preset, Server};
use process::{listen, role, say, Other};

/// Connections of one client, each that of a pipeline.
const EACH: usize = 10;
/// Threads that call.
const THREADS: usize = 8;

struct Member {
    /// Kept for as long as its lanes.
    _client: Client,
    lanes: Vec<Pipeline>,
}

impl Member {
    fn connect(address: &str) -> Self {
        let client = Client::builder()
            .preset(Preset::Plain)
            .device("roce")
            .connect(address)
            .unwrap();
        let lanes = (0..EACH).map(|_| client.pipeline().unwrap()).collect();
        let mut member = Self {
            _client: client,
            lanes,
        };
        member.call(0);
        member
    }

    /// One call on each connection, all out at once; each answer must be its own. Says how many.
    fn call(&mut self, number: u64) -> u64 {
        let request = |place: usize| {
            let mut bytes = [0x5a; 64];
            bytes[..8].copy_from_slice(&number.to_le_bytes());
            bytes[8..16].copy_from_slice(&(place as u64).to_le_bytes());
            bytes
        };
        for (place, lane) in self.lanes.iter_mut().enumerate() {
            assert!(lane.submit(ECHO, &request(place), place as u64).unwrap());
        }
        for (place, lane) in self.lanes.iter_mut().enumerate() {
            let mut came = 0;
            while came == 0 {
                lane.wait(|tag, answer| {
                    assert_eq!((tag, answer.unwrap()), (place as u64, &request(place)[..]));
                    came += 1;
                })
                .unwrap();
            }
            assert_eq!(came, 1);
        }
        EACH as u64
    }
}

/// The other process.
fn crowd(address: &str, clients: usize) {
    let seconds = Duration::from_secs(number("DUNLIN_SECONDS", 1) as u64);
    let gate = Barrier::new(clients);
    let started = Instant::now();
    let mut members: Vec<Member> = std::thread::scope(|scope| {
        let one = || {
            gate.wait();
            Member::connect(address)
        };
        let storm: Vec<_> = (0..clients).map(|_| scope.spawn(one)).collect();
        storm.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let (took, mib) = (started.elapsed(), resident_kib() / 1024);
    say(&format!(
        "connected in {took:.1?}, the clients have {mib} MiB"
    ));
    listen();
    let calls = AtomicU64::new(0);
    let end = Instant::now() + seconds;
    std::thread::scope(|scope| {
        for mine in members.chunks_mut(clients.div_ceil(THREADS)) {
            scope.spawn(|| {
                let mut number = 0;
                // Each connection at least once.
                while number == 0 || Instant::now() < end {
                    number += 1;
                    let made = mine.iter_mut().map(|one| one.call(number)).sum();
                    calls.fetch_add(made, Ordering::Relaxed);
                }
            });
        }
    });
    let calls = calls.into_inner();
    say(&format!("{calls} calls in {seconds:.1?}"));
    listen();
    drop(members);
    say("gone");
    listen();
}

#[test]
fn a_crowd_connects_over_udp_calls_and_goes() {
    if let Some((_, address)) = role() {
        return crowd(&address, number("DUNLIN_CROWD", 50));
    }
    let all = number("DUNLIN_CROWD", 50) * EACH;
    let server = Server::bind("dunlin://127.0.0.1:0")
        .unwrap()
        .device("roce")
        // Beside the pipelines each client has the lane of the thread that connects, for as long as that thread is
        // there.
        .max_connections(all + all / EACH)
        .handle(ECHO, |request, reply| reply.write(request.payload()))
        .serve()
        .unwrap();
    let name = "a_crowd_connects_over_udp_calls_and_goes";
    let before = resident_kib();
    let mut other = Other::start(name, "crowd", &server.address().to_string());
    println!("{all} connections: {}", other.hear());
    eventually("the pipelines are all that is connected", || {
        server.connections() == all
    });
    let each = (resident_kib() - before) / all;
    println!("the server has {each} KiB for each connection");
    other.say("call");
    println!("{}, none failed", other.hear());
    assert_eq!(server.connections(), all, "none was lost");
    other.say("go");
    assert_eq!(other.hear(), "gone");
    eventually("the connections are gone", || server.connections() == 0);
}
