//! The preset `scalerpc` on shared memory: turns of many clients, and calls that are longer than a slice.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dunlin_rpc::{Client, Grouping, Preset, RunningServer, Server};

const NAME: u16 = 1;
const ECHO: u16 = 2;

fn connect(server: &RunningServer) -> Client {
    let client = Client::builder().preset(Preset::ScaleRpc).device("shm");
    client.connect(&server.address().to_string()).unwrap()
}

/// A handler that holds the poller for longer than a slice does so only a few times: its later calls run on workers
/// (ScaleRPC §3.5).
#[test]
fn long_calls_are_remembered_and_run_apart() {
    let server = Server::unbound()
        .device("shm")
        .handle(ECHO, |request, reply| reply.write(request.payload()))
        .handle(NAME, |_, reply| {
            std::thread::sleep(Duration::from_millis(2));
            let name = std::thread::current().name().unwrap_or("").to_owned();
            reply.write(name.as_bytes())
        })
        .serve_at("dunlin://127.0.0.1:0")
        .unwrap();
    let client = connect(&server);
    let first = client.call(NAME, b"").unwrap();
    assert!(first.starts_with(b"dunlin-poller"), "{first:?}");
    let patience = Instant::now() + Duration::from_secs(60);
    loop {
        let name = client.call(NAME, b"").unwrap();
        if name.starts_with(b"dunlin-worker") {
            break;
        }
        assert!(Instant::now() < patience, "it still runs on {name:?}");
    }
    // Other handlers are not delayed, and are not moved.
    for number in 0..2000u32 {
        let echoed = client.call(ECHO, &number.to_le_bytes()).unwrap();
        assert_eq!(*echoed, number.to_le_bytes());
    }
}

/// More clients than any group has, busy and idle ones, get their turns; the groups are rearranged while clients come
/// and go.
#[test]
fn groups_of_many_clients_take_their_turns() {
    let server = Server::unbound()
        .device("shm")
        .grouping(Grouping {
            clients: 3,
            slice: Duration::from_micros(50),
            by_priority: true,
            warm_up_beside: true,
        })
        .handle(ECHO, |request, reply| reply.write(request.payload()))
        .serve_at("dunlin://127.0.0.1:0")
        .unwrap();
    let client = connect(&server);
    let answered = Arc::new(Mutex::new(0u64));
    std::thread::scope(|scope| {
        for thread in 0..14u64 {
            let (client, answered) = (client.clone(), Arc::clone(&answered));
            scope.spawn(move || {
                // One in three stays only for a moment, as a client that logs out.
                let calls = if thread % 3 == 0 { 20 } else { 300 };
                for number in 0..calls {
                    let payload = (thread << 32 | number).to_le_bytes();
                    assert_eq!(*client.call(ECHO, &payload).unwrap(), payload);
                    if thread % 3 == 1 && number % 50 == 0 {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
                *answered.lock().unwrap() += calls;
            });
        }
    });
    let statistics = server.statistics();
    assert_eq!(statistics.requests, *answered.lock().unwrap());
    assert_eq!(statistics.violations, 0);
    assert!(statistics.switches > 10, "{statistics:?}");
}
