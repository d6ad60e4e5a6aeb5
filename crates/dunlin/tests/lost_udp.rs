//! A server over UDP (device `roce`) that is killed: its client is told between which addresses and ports nothing comes
//! any more, because the next question of whoever reads that is which firewall stands in between.

mod common;
#[path = "../../dunlin-shm/tests/common/process.rs"]
mod process;

use std::time::{Duration, Instant};

use common::ECHO;
use dunlin::{CallError, Client, Preset, Server};
use process::{listen, role, say, Other};

/// A hang is a failure.
const LONGEST: Duration = Duration::from_secs(60);

#[test]
fn a_lost_server_is_named_by_both_ends_of_the_path() {
    if let Some((_, address)) = role() {
        let server = Server::bind(&address)
            .unwrap()
            .handle(ECHO, |request, reply| reply.write(request.payload()))
            .serve()
            .unwrap();
        say(&server.address().to_string());
        while listen().is_some() {}
        return;
    }
    let name = "a_lost_server_is_named_by_both_ends_of_the_path";
    let mut server = Other::start(name, "server", "dunlin://127.0.0.1:0");
    let client = Client::builder()
        .preset(Preset::Plain)
        .device("roce")
        .connect(&server.hear())
        .unwrap();
    assert_eq!(&client.call(ECHO, b"here").unwrap()[..], b"here");
    server.kill();
    let start = Instant::now();
    let why = loop {
        assert!(start.elapsed() < LONGEST, "nobody noticed");
        match client.call(ECHO, b"still here?") {
            Err(CallError::ConnectionLost { why }) => break why,
            Err(CallError::DeadlineExceeded { .. }) => {}
            other => panic!("{other:?}"),
        }
    };
    // Two different ports of this host, and what to do.
    let ports: Vec<&str> = why
        .split("127.0.0.1:")
        .skip(1)
        .map(|rest| {
            rest.split(|byte: char| !byte.is_ascii_digit())
                .next()
                .unwrap()
        })
        .collect();
    assert!(ports.len() == 2 && ports[0] != ports[1], "{why}");
    assert!(why.contains("doctor"), "{why}");
}
