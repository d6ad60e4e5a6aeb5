//! A server that runs out of memory or descriptors says so to the client whose request it was, and goes on with the
//! others.

mod common;
#[path = "../../dunlin-shm/tests/common/process.rs"]
mod process;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use common::{pattern, ECHO};
use dunlin::{BootstrapError, CallError, Client, ConnectError, Preset, Server};
use process::{listen, role, say, Other};
use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};

/// The echo on workers.
const SLOW_ECHO: u16 = 2;
/// Longer than anything that is served takes, so that what ends with it hangs.
const DEADLINE: Duration = Duration::from_secs(20);

fn connect(address: &str, preset: Preset) -> Result<Client, ConnectError> {
    let builder = Client::builder().preset(preset).deadline(DEADLINE);
    builder.connect_timeout(DEADLINE).connect(address)
}

fn limit(resource: Resource, current: u64) {
    let maximum = getrlimit(resource).maximum;
    let current = Some(current);
    setrlimit(resource, Rlimit { current, maximum }).unwrap();
}

/// Bytes of address space that this process has.
fn address_space() -> u64 {
    let words = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = words.split_whitespace().next().unwrap().parse().unwrap();
    pages * 4096
}

fn descriptors() -> u64 {
    std::fs::read_dir("/proc/self/fd").unwrap().count() as u64
}

#[test]
fn the_other_process() {
    let Some((role, argument)) = role() else {
        return;
    };
    let server = Server::bind("dunlin://127.0.0.1:0")
        .unwrap()
        .handle(ECHO, |request, reply| reply.write(request.payload()))
        .handle_on_workers(SLOW_ECHO, |request, reply| reply.write(request.payload()))
        .serve()
        .unwrap();
    let more: u64 = argument.parse().unwrap();
    say(&server.address().to_string());
    // The first client, so that the server has all that it needs to serve rings.
    assert_eq!(listen().unwrap(), "limit");
    match role.as_str() {
        "memory" => limit(Resource::As, address_space() + more),
        _ => limit(Resource::Nofile, descriptors() + more),
    }
    say("limited");
    while let Some(word) = listen() {
        assert_eq!(word, "alive?");
        say("alive");
    }
}

/// A server with little left, and a client that came before.
fn limited(role: &str, more: u64) -> (Other, String, Client) {
    let mut server = Other::start("the_other_process", role, &more.to_string());
    let address = server.hear();
    let good = connect(&address, Preset::Plain).unwrap();
    assert_eq!(&*good.call(ECHO, b"first").unwrap(), b"first");
    server.say("limit");
    assert_eq!(server.hear(), "limited");
    (server, address, good)
}

fn is_alive(server: &mut Other, good: &Client, what: &str) {
    if let Some(status) = server.child.try_wait().unwrap() {
        panic!("the server has ended ({status}): {what}");
    }
    let answer = good.call(ECHO, b"still here?");
    let answer = answer.unwrap_or_else(|error| panic!("the good client: {error}: {what}"));
    assert_eq!(&*answer, b"still here?");
}

/// What clients heard, and how often.
type Heard = BTreeMap<String, usize>;

fn note(heard: &mut Heard, words: impl ToString) {
    *heard.entry(words.to_string()).or_default() += 1;
}

/// Clients come until one is refused, and make long calls.
fn crowd(server: &mut Other, address: &str, preset: Preset, good: &Client) -> (Heard, Vec<Client>) {
    let (mut heard, mut clients) = (Heard::new(), Vec::new());
    while clients.len() < 16 {
        let what = format!("a client of {preset}, {heard:?}");
        let client = match connect(address, preset) {
            Ok(client) => client,
            Err(error) => {
                is_alive(server, good, &what);
                let ConnectError::Bootstrap(BootstrapError::Refused { refusal, .. }) = &error
                else {
                    panic!("{what}: {error:?}");
                };
                note(&mut heard, refusal);
                break;
            }
        };
        is_alive(server, good, &what);
        for (handler, length) in [
            (ECHO, 64),
            (ECHO, 300_000),
            (SLOW_ECHO, 4000),
            (SLOW_ECHO, 2 << 20),
            (ECHO, 8 << 20),
        ] {
            let payload = pattern(length, length as u64);
            let called = client.call(handler, &payload);
            let what = format!("a call of {length} bytes with {preset}, {heard:?}");
            is_alive(server, good, &what);
            match called {
                Ok(answer) => assert!(*answer == *payload, "{what}"),
                Err(CallError::Overloaded(words)) => note(&mut heard, words),
                Err(error) => panic!("{what}: {error}"),
            }
        }
        clients.push(client);
    }
    (heard, clients)
}

#[test]
fn a_server_without_memory_refuses_and_goes_on() {
    let presets = [
        Preset::Plain,
        Preset::Flock,
        Preset::Fasst,
        Preset::Erpc,
        Preset::Herd,
        Preset::ScaleRpc,
        Preset::RawWrite,
        Preset::SelfRpc,
    ];
    for preset in presets {
        let mut refused = false;
        for mib in [4, 84, 100, 130, 200] {
            let (mut server, address, good) = limited("memory", mib << 20);
            let (heard, clients) = crowd(&mut server, &address, preset, &good);
            println!(
                "{preset}, {mib} MiB left: {} clients; {heard:?}",
                clients.len()
            );
            refused |= heard
                .keys()
                .any(|words| words.contains("memory for another client"));
            drop(clients);
            is_alive(&mut server, &good, "all others are gone");
            server.say("alive?");
            assert_eq!(server.hear(), "alive");
        }
        assert!(refused, "{preset}: there was memory for everybody");
    }
}

#[test]
fn a_server_without_descriptors_refuses_at_once() {
    for more in (0..24).chain([32, 48, 64]) {
        let (mut server, address, good) = limited("descriptors", more);
        for &preset in &[Preset::Plain, Preset::ScaleRpc, Preset::Fasst] {
            let mut clients = Vec::new();
            loop {
                let began = Instant::now();
                let called = connect(&address, preset).and_then(|client| {
                    let answer = client.call(ECHO, b"hello");
                    clients.push(client);
                    answer.map(drop).map_err(|error| match error {
                        CallError::Connect(error) => {
                            ConnectError::Setting(format!("late: {error}"))
                        }
                        error => panic!(
                            "{preset}, {more} descriptors: {error} after {:?}",
                            began.elapsed()
                        ),
                    })
                });
                if let Err(error) = called {
                    println!("{preset}, {more} more: {error}");
                    break;
                }
                if clients.len() >= 30 {
                    // Those of one process share a session, and a sender of datagrams costs none beside.
                    assert_eq!(preset, Preset::Fasst, "descriptors for everybody");
                    break;
                }
            }
            is_alive(&mut server, &good, "refused");
        }
    }
}
