//! A reader that goes away (`| head -1`): every command ends by itself, without an error.

mod common;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use common::{Serving, DUNLIN};

/// Waits for the end of a command; one that goes on is ended, and the test fails.
fn ends(mut child: Child) -> ExitStatus {
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(30) {
        if let Some(status) = child.try_wait().expect("its state") {
            return status;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = child.kill();
    let _ = child.wait();
    panic!("it did not end");
}

fn start(arguments: &[&str]) -> Child {
    let mut command = Command::new(DUNLIN);
    let command = command.args(arguments).stdin(Stdio::null());
    let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    piped.spawn().expect("dunlin runs")
}

#[test]
fn top_ends_with_its_reader() {
    let server = Serving::start("echo", &[]);
    let top = ["top", server.address(), "--interval", "0.05"];
    for more in [&[][..], &["--json"]] {
        let mut child = start(&[&top[..], more].concat());
        let mut output = BufReader::new(child.stdout.take().expect("standard output"));
        let mut line = String::new();
        output.read_line(&mut line).expect("a line");
        assert!(line.contains(server.address()), "{line}");
        drop(output);
        let mut errors = child.stderr.take().expect("standard error");
        assert!(ends(child).success(), "{more:?}");
        assert_eq!(std::io::read_to_string(&mut errors).expect("text"), "");
    }
    server.stop();
}

#[test]
fn no_command_calls_a_closed_pipe_an_error() {
    let kv = Serving::start("kv", &[]);
    let echo = Serving::start("echo", &[]);
    let put = ["kv", "--address", kv.address(), "put", "bird", "dunlin"];
    assert!(common::dunlin(&put).status.success());
    // More than a pipe holds.
    let long = "x".repeat(100_000);
    for arguments in [
        &["call", echo.address(), "1", &long][..],
        &["kv", "--address", kv.address(), "scan"],
        &["kv", "--address", kv.address(), "get", "bird"],
        &["devices"],
        &["doctor"],
        &["lab", "list"],
        &["perf", "rpc", "--seconds", "0.1", "--json"],
    ] {
        let mut child = start(arguments);
        drop(child.stdout.take());
        let mut errors = child.stderr.take().expect("standard error");
        let status = ends(child);
        let words = std::io::read_to_string(&mut errors).expect("text");
        assert!(status.success(), "{arguments:?}: {status} {words}");
        assert!(!words.contains("error"), "{arguments:?}: {words}");
    }
    for server in [kv, echo] {
        server.stop();
    }
}

#[test]
fn errors_that_nobody_reads_are_no_panic() {
    for arguments in [
        &["call", "127.0.0.1:1", "1", "hello"][..],
        &["perf", "rpc", "--seconds", "0.1"],
    ] {
        let mut child = start(arguments);
        drop(child.stderr.take());
        let code = ends(child).code();
        assert!(matches!(code, Some(0 | 1)), "{arguments:?}: {code:?}");
    }
}
