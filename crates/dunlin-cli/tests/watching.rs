//! Watching a server: `dunlin top` and the metrics of `dunlin serve --metrics`. No test asserts a time.

mod common;

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{dunlin, eventually, failure, object, Serving, DUNLIN};
use rustix::process::{kill_process, Pid, Signal};
use rustix::pty::{grantpt, openpt, ptsname, unlockpt, OpenptFlags};
use rustix::termios::{tcgetattr, tcsetwinsize, Termios, Winsize};

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

/// `dunlin top` on a terminal of its own.
struct OnTerminal {
    child: Child,
    terminal: File,
    /// Its settings before.
    found: String,
    shown: Arc<Mutex<Vec<u8>>>,
}

impl OnTerminal {
    fn start(address: &str) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&master)
            .and_then(|()| unlockpt(&master))
            .expect("a terminal");
        let path = ptsname(&master, Vec::new()).expect("its name");
        let path = path.into_string().expect("its name");
        let terminal = File::options()
            .read(true)
            .write(true)
            .open(path)
            .expect("it");
        let size = Winsize {
            ws_row: 40,
            ws_col: 100,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&terminal, size).expect("a size");
        let found = settings(&terminal);
        let side = || OwnedFd::from(terminal.try_clone().expect("a descriptor"));
        let child = Command::new(DUNLIN)
            .args(["top", address, "--interval", "0.2", "--deadline", "1"])
            .stdin(side())
            .stdout(side())
            .stderr(side())
            .spawn()
            .expect("dunlin runs");
        let shown = Arc::new(Mutex::new(Vec::new()));
        let (into, mut from) = (Arc::clone(&shown), File::from(master));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // It ends when nobody has the other side any more.
            while let Ok(had @ 1..) = from.read(&mut bytes) {
                into.lock().expect("no panic").extend(&bytes[..had]);
            }
        });
        Self {
            child,
            terminal,
            found,
            shown,
        }
    }

    fn has_shown(&self, words: &str) -> bool {
        let shown = self.shown.lock().expect("no panic");
        shown
            .windows(words.len())
            .any(|bytes| bytes == words.as_bytes())
    }
}

fn settings(terminal: &File) -> String {
    let Termios {
        local_modes,
        input_modes,
        output_modes,
        ..
    } = tcgetattr(terminal).expect("its settings");
    format!("{local_modes:?} {input_modes:?} {output_modes:?}")
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_signal_leaves_the_terminal_as_top_has_found_it() {
    let server = Serving::start("echo", &[]);
    for signal in [Signal::TERM, Signal::HUP] {
        let mut top = OnTerminal::start(server.address());
        eventually("it has shown a view", || top.has_shown("connections"));
        assert_ne!(settings(&top.terminal), top.found);
        kill_process(Pid::from_child(&top.child), signal).expect("it runs");
        eventually("it ends", || {
            top.child.try_wait().expect("it is ours").is_some()
        });
        assert!(top.child.wait().expect("its end").success(), "{signal:?}");
        eventually("it leaves the screen", || top.has_shown("\x1b[?1049l"));
        assert_eq!(settings(&top.terminal), top.found, "{signal:?}");
    }
    server.stop();
}

#[test]
fn top_says_for_whom_it_waits() {
    let server = Serving::start("echo", &[]);
    let top = OnTerminal::start(server.address());
    // Before the second answer there is nothing else to be shown.
    eventually("it says so", || top.has_shown("waiting for dunlin://"));
    drop(server);
    eventually("it says what is wrong", || top.has_shown("no response"));
}
