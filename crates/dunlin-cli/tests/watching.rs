//! Watching a server: `dunlin top` and the metrics of `dunlin serve --metrics`. No test asserts a time.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use common::{dunlin, eventually, failure, object, Serving};

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("the metrics port");
    let patience = Some(Duration::from_secs(60));
    stream.set_read_timeout(patience).expect("a timeout");
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )
    .expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[test]
fn top_prints_what_a_server_does() {
    let server = Serving::start("echo", &[]);
    let flock = ["call", server.address(), "1", "hello", "--preset", "flock"];
    assert_eq!(dunlin(&flock).stdout, b"hello");
    let arguments = [
        "top",
        server.address(),
        "--count",
        "1",
        "--interval",
        "0.05",
    ];
    let mut view = serde_json::Value::Null;
    eventually("the call's connection has ended", || {
        view = object(&dunlin(&[&arguments[..], &["--json"]].concat()));
        view["connections"] == 1
    });
    assert_eq!(view["devices"][0]["name"], "shm", "{view}");
    assert!(view["devices"][0]["requests"].as_u64() >= Some(2), "{view}");
    assert_eq!(view["max_active_queue_pairs"], 256, "{view}");
    // Without a terminal it prints tables.
    let output = dunlin(&arguments);
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(
        text.contains("1 of 4096 connections") && text.contains("violations"),
        "{text}"
    );
    server.stop();
}

#[test]
fn top_says_when_there_is_no_server() {
    let words = failure(&dunlin(&["top", "127.0.0.1:1", "--count", "1"]), 1);
    assert!(words.contains("127.0.0.1:1"), "{words}");
    failure(&dunlin(&["top", "127.0.0.1:1", "--interval", "0"]), 2);
}

/// A server with metrics, and where they are.
fn with_metrics() -> (Serving, String) {
    let mut server = Serving::start("echo", &["--metrics", "127.0.0.1:0"]);
    let line = server.line();
    let address = line
        .trim()
        .strip_prefix("metrics on http://")
        .and_then(|rest| rest.strip_suffix("/metrics"))
        .unwrap_or_else(|| panic!("{line}"));
    (server, address.to_owned())
}

#[test]
fn prometheus_reads_the_figures() {
    let (server, address) = with_metrics();
    let address = &address;
    assert_eq!(
        dunlin(&["call", server.address(), "1", "hello"]).stdout,
        b"hello"
    );
    let mut answer = String::new();
    // A handshake is counted after its reply has left.
    eventually("the handshake is counted", || {
        answer = get(address, "/metrics");
        answer.contains("dunlin_server_handshakes_total{event=\"opened\"} 1\n")
    });
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    for sample in [
        "dunlin_server_requests_total{device=\"shm\"} 1\n",
        "dunlin_server_handshakes_total{event=\"opened\"} 1\n",
        "dunlin_server_max_active_queue_pairs 256\n",
        "# EOF\n",
    ] {
        assert!(answer.contains(sample), "no {sample} in\n{answer}");
    }
    assert!(get(address, "/").starts_with("HTTP/1.1 404"));
    server.stop();
}

#[test]
fn a_client_that_does_not_read_keeps_nobody_from_the_metrics() {
    let (server, address) = with_metrics();
    let mut silent = TcpStream::connect(&address).expect("the metrics port");
    let mut deaf = TcpStream::connect(&address).expect("the metrics port");
    let pause = Some(Duration::from_millis(200));
    deaf.set_write_timeout(pause).expect("a timeout");
    // Far more answers than sockets hold, until nothing more is taken.
    let requests = "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n".repeat(1000);
    for _ in 0..1000 {
        if deaf.write_all(requests.as_bytes()).is_err() {
            break;
        }
    }
    silent.write_all(b"GET /me").expect("sent");
    assert!(get(&address, "/metrics").starts_with("HTTP/1.1 200"));
    let mut long = TcpStream::connect(&address).expect("the metrics port");
    // It is refused before all of it is sent.
    let _ = long.write_all(&[b'x'; 1 << 16]);
    assert!(get(&address, "/metrics").ends_with("# EOF\n"));
    server.stop();
}
