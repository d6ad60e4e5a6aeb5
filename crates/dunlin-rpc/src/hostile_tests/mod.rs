//! Peers that keep to the handshake and to nothing else: they WRITE whatever they like wherever they may.

mod credits;
mod datagrams;
mod pools;
mod raw;
mod server;
mod sweep;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{mpsc, Arc};
use std::time::{Duration, Instant};

use dunlin_bootstrap::{Acceptor, AcceptorConfig, OpenReply, StopHandle};
use dunlin_shm::{ShmConfig, ShmDevice};
use dunlin_verbs::{QueuePair, Region};

use crate::channel::batch::Form;
use crate::channel::message::{Descriptor, Header, Kind};
use crate::{devices, fabric, CallError, Client, Preset, RunningServer, Server};

use crate::hostile::ring::{CONSUMED_AT, RING_AT, SLEEP_AT};
use crate::hostile::{Door, Random, ECHO, LONG, ON_WORKERS, PATIENCE};
use raw::Raw;

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < PATIENCE, "not within 20 s: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn serve() -> RunningServer {
    Server::bind("dunlin://127.0.0.1:0")
        .unwrap()
        .handle(ECHO, |request, reply| reply.write(request.payload()))
        .handle(LONG, |_, reply| reply.write(&[1; 30_000]))
        .handle_on_workers(ON_WORKERS, |request, reply| reply.write(request.payload()))
        .serve()
        .unwrap()
}

fn hostile_device() -> ShmDevice {
    ShmDevice::open(ShmConfig::default()).unwrap()
}

/// Stops the good client also when an assertion fails.
struct Stopper<'a>(&'a AtomicBool);

impl Drop for Stopper<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `bad` beside a client that must see nothing but right answers; says how slow its slowest was.
fn beside_a_good_client(server: &RunningServer, bad: impl FnOnce()) -> Duration {
    beside_a_good_client_of(Preset::Plain, server, bad)
}

fn beside_a_good_client_of(preset: Preset, server: &RunningServer, bad: impl FnOnce()) -> Duration {
    let client = Client::builder().preset(preset);
    let client = client.connect(&server.address().to_string()).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let good = scope.spawn(|| {
            let mut random = Random::new(5);
            let mut slowest = Duration::ZERO;
            while !stop.load(Ordering::Relaxed) {
                let length = random.of(&[0, 8, 40, 100, 4000, 9000]);
                let payload = random.bytes(length);
                let handler = random.of(&[ECHO, ECHO, ECHO, ON_WORKERS]);
                let started = Instant::now();
                assert!(*client.call(handler, &payload).unwrap() == *payload);
                slowest = slowest.max(started.elapsed());
            }
            slowest
        });
        let stopper = Stopper(&stop);
        bad();
        drop(stopper);
        good.join().unwrap()
    })
}

#[test]
fn a_client_that_writes_anything_harms_itself_alone() {
    let server = serve();
    let device = hostile_device();
    let seeds = 150;
    let mut over = 0;
    let slowest = beside_a_good_client(&server, || {
        for seed in 1..=seeds {
            let mut random = Random::new(seed);
            let receives = random.of(&[0, 1, 64]);
            let mut raw = Raw::dial(&device, &server, receives);
            for _ in 0..80 {
                if !raw.misbehave(&mut random, &[0, 1, 2, 3]) || !raw.is_alive() {
                    over += 1;
                    break;
                }
            }
        }
        eventually("hostile connections end", || server.connections() <= 2);
    });
    println!(
        "{seeds} seeds: {over} connections ended early, {} violations; slowest good call {slowest:?}",
        server.statistics().violations
    );
    assert!(server.statistics().violations > 0);
    eventually("nobody is left", || server.connections() == 0);
    assert!(server.shutdown());
}

/// A reader counts messages, so batches without any would keep it from everybody else.
#[test]
fn a_batch_without_messages_ends_its_client() {
    let server = serve();
    let device = hostile_device();
    for form in [Form::Twice, Form::Sealed] {
        let violations = server.statistics().violations;
        let mut raw = Raw::dial_in(form, &device, &server, 0, None);
        raw.batch(1, 0, &[], 0);
        eventually("it has ended", || {
            server.statistics().violations == violations + 1 && server.connections() == 0
        });
    }
}

#[test]
fn clients_that_dial_and_never_come_are_given_up() {
    let server = serve();
    let device = hostile_device();
    let open = || Raw::open(&device, &server, 8, None, Form::Twice);
    drop(open());
    let (_stays, _) = open();
    assert_eq!(server.connections(), 2);
    eventually("both are given up", || server.connections() == 0);
    assert!(server.shutdown());
}

#[test]
fn each_breach_of_the_protocol_ends_the_connection() {
    let server = serve();
    let device = hostile_device();
    let long = |length: u64| {
        Descriptor {
            address: 0,
            length,
            key: 1,
        }
        .encode()
    };
    type Breach<'a> = (&'static str, Box<dyn Fn(&mut Raw) -> bool + 'a>);
    let breaches: Vec<Breach<'_>> = vec![
        ("kind 0", Box::new(|raw| raw.message(0, 1, &[], 0))),
        (
            "a kind of datagrams",
            Box::new(|raw| raw.message(10 << 48, 1, &[], 0)),
        ),
        ("kind 15", Box::new(|raw| raw.message(15 << 48, 1, &[], 0))),
        (
            "longer than the ring takes",
            Box::new(|raw| raw.message(4097 | 1 << 32 | 1 << 48, 1, &[], 0)),
        ),
        (
            "the longest length",
            Box::new(|raw| raw.message(u64::from(u32::MAX) | 1 << 48, 1, &[], 0)),
        ),
        (
            "a response",
            Box::new(|raw| raw.honest(Kind::Response, 0, 1, b"you")),
        ),
        (
            "half a descriptor",
            Box::new(|raw| raw.honest(Kind::LongRequest, ECHO, 1, &[0; 23])),
        ),
        (
            "over the limit",
            Box::new(|raw| raw.honest(Kind::LongRequest, ECHO, 1, &long((16 << 20) + 1))),
        ),
        (
            "endless",
            Box::new(|raw| raw.honest(Kind::LongRequest, ECHO, 1, &long(u64::MAX))),
        ),
        (
            "a reserved number",
            Box::new(|raw| raw.honest(Kind::LongRequest, ECHO, u64::MAX, &long(100))),
        ),
        (
            "a batch longer than its messages can be",
            Box::new(|raw| raw.batch(1024, 1, &[], 0)),
        ),
        (
            "a batch with fewer messages than it says",
            Box::new(|raw| raw.batch(1, 4, &[], 0)),
        ),
        (
            "a commit that has read what was not sent",
            Box::new(|raw| raw.message(1 << 32 | 1 << 48, 1, &[], 1000)),
        ),
    ];
    let forms = [Form::Twice, Form::Sealed];
    let mut violations = 0;
    for (form, (name, breach)) in forms
        .iter()
        .flat_map(|f| breaches.iter().map(move |b| (*f, b)))
    {
        let mut raw = Raw::dial_in(form, &device, &server, 8, None);
        breach(&mut raw);
        violations += 1;
        eventually(name, || server.statistics().violations == violations);
        eventually("the peer sees it", || !raw.is_alive());
    }
    // A key that is not in force fails in the device: the connection ends, though nobody broke the protocol.
    let mut raw = Raw::dial(&device, &server, 8);
    raw.honest(Kind::LongRequest, ECHO, 1, &long(100));
    eventually("a key that is none", || server.connections() == 0);
    // The word of its own is looked at when the ring is full.
    let mut raw = Raw::dial(&device, &server, 8);
    raw.write(CONSUMED_AT, &70_000u64.to_le_bytes());
    for call in 0..20 {
        // One at a time: a writer that overruns the reader would only stop itself.
        let before = server.statistics().requests;
        raw.honest(Kind::Request, ECHO, call, &[1; 4000]);
        eventually("the request is taken or the connection over", || {
            server.statistics().requests > before || !raw.is_alive()
        });
    }
    eventually("a count that lies", || {
        server.statistics().violations == violations + 1
    });
    let client = Client::connect(&server.address().to_string()).unwrap();
    assert_eq!(&*client.call(ECHO, b"fine").unwrap(), b"fine");
    drop(client);
    assert!(server.shutdown());
}
#[test]
fn a_client_that_reads_nothing_is_not_waited_for() {
    let server = serve();
    let device = hostile_device();
    let slowest = beside_a_good_client(&server, || {
        for receives in [0, 1, 64] {
            let mut raw = Raw::dial(&device, &server, receives);
            for call in 0..3000u64 {
                // Announces a new sleep each time, so that each answer comes with a wake-up.
                let sleep = call + 1;
                let handler = if call % 2 == 0 { ECHO } else { LONG };
                if !raw.write(SLEEP_AT, &sleep.to_le_bytes())
                    || !raw.honest(Kind::Request, handler, call, b"more")
                {
                    break;
                }
            }
        }
        eventually("hostile connections end", || server.connections() <= 2);
    });
    println!("slowest good call {slowest:?}");
    eventually("nobody is left", || server.connections() == 0);
}
