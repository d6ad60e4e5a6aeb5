//! Files and standard input that never end: a command reads no further than what it reads may be long.

mod common;

use std::fs::File;
use std::net::TcpListener;
use std::process::Stdio;

use common::{bounded, failure, Serving};

fn zeros() -> Stdio {
    File::open("/dev/zero").expect("/dev/zero").into()
}

#[test]
fn a_secret_is_read_no_further_than_a_secret_may_be_long() {
    let server = Serving::start("echo", &[]);
    let secret = ["--secret-file", "/dev/zero"];
    for command in [
        &["call", server.address(), "1", "hello"][..],
        &["top", server.address()],
        &["doctor", server.address()],
        &["serve", "echo", "--listen", "127.0.0.1:0"],
    ] {
        let output = bounded(&[command, &secret].concat(), Stdio::null());
        let words = failure(&output, 2);
        assert!(
            words.contains("/dev/zero: longer than the limit of 1024 bytes"),
            "{words}"
        );
    }
    server.stop();
}

#[test]
fn a_request_is_read_no_further_than_the_server_takes() {
    let server = Serving::start("echo", &[]);
    for preset in ["auto", "flock", "fasst", "scalerpc"] {
        let command = ["call", server.address(), "1", "-", "--preset", preset];
        let words = failure(&bounded(&command, zeros()), 1);
        assert!(words.contains("16777216 bytes"), "{preset}: {words}");
    }
    server.stop();
}

#[test]
fn nothing_is_read_for_a_server_that_is_not_there() {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = free.local_addr().expect("its address").to_string();
    drop(free);
    let words = failure(&bounded(&["call", &address, "1", "-"], zeros()), 1);
    assert!(words.contains("no server listens at"), "{words}");
}

#[test]
fn orders_to_the_other_process_of_a_measurement_end() {
    for command in ["ring-peer", "verbs-peer"] {
        let output = bounded(&["perf", command], zeros());
        assert!(output.stdout.is_empty(), "{output:?}");
    }
}
