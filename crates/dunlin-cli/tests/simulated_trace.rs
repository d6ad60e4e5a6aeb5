//! `dunlin lab run FILE.toml --trace`: a trace that Perfetto's schema reads, with what the simulation did in it.

mod common;

use std::path::PathBuf;
use std::process::{Command, Output};

use common::{dunlin, failure, object, Scratch};
use prost::Message;
use serde_json::Value;

const FILE: &str = r#"
[topology]
switch = "z9264f"
[[topology.hosts]]
name = "server"
[[topology.hosts]]
name = "clients"
count = 2
[server]
host = "server"
[[clients]]
hosts = "clients"
threads = 2
request = "2KiB"
[run]
warm_up = "10us"
duration = "40us"
"#;

/// The file as far as this test decodes it: its packets.
#[derive(Clone, PartialEq, Message)]
struct Trace {
    #[prost(message, repeated, tag = "1")]
    packets: Vec<Packet>,
}

#[derive(Clone, PartialEq, Message)]
struct Packet {
    #[prost(uint64, optional, tag = "8")]
    timestamp: Option<u64>,
    #[prost(message, optional, tag = "11")]
    event: Option<Event>,
}

#[derive(Clone, PartialEq, Message)]
struct Event {
    #[prost(int32, tag = "9")]
    kind: i32,
}

/// Events of a file: their times and kinds.
fn events(path: &str) -> Vec<(u64, i32)> {
    let bytes = std::fs::read(path).expect("the file");
    let trace = Trace::decode(&bytes[..]).expect("a trace");
    let packets = trace.packets.iter();
    packets
        .filter_map(|packet| Some((packet.timestamp?, packet.event.as_ref()?.kind)))
        .collect()
}

fn run(name: &str, arguments: &[&str]) -> Output {
    let file = Scratch::new(&format!("{name}.toml"), FILE.as_bytes());
    dunlin(&[&["lab", "run", file.path()], arguments].concat())
}

/// What `trace_schema.py` says of a trace; none where Perfetto's schema is not installed.
fn checked(path: &str) -> Option<Value> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let installed = folder.join("../../target/tools/perfetto/bin/python3");
    let python = match installed.exists() {
        true => installed.as_os_str(),
        false => "python3".as_ref(),
    };
    let has = Command::new(python)
        .args([
            "-c",
            "import perfetto.protos.perfetto.trace.perfetto_trace_pb2",
        ])
        .output();
    if !has.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: Python's package `perfetto` is not installed");
        return None;
    }
    let output = Command::new(python)
        .arg(folder.join("tests/trace_schema.py"))
        .arg(path)
        .output();
    let output = output.expect("python runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Some(object(&output))
}

#[test]
fn perfettos_schema_reads_what_hosts_and_nics_did() {
    let out = Scratch::new("whole.pftrace", b"");
    let shown = |ran: &Output| {
        let object = object(ran);
        (object["digest"].clone(), object["points"].clone())
    };
    let plain = shown(&run("plain", &["--json"]));
    let ran = run("whole", &["--json", "--trace", out.path()]);
    assert_eq!(shown(&ran), plain, "who looks changes nothing");
    let events = events(out.path());
    let of = |kind| events.iter().filter(|(_, one)| *one == kind).count();
    assert_eq!(of(1), of(2), "a slice begins and ends");
    let words = String::from_utf8(ran.stderr).expect("UTF-8");
    assert!(
        words.contains(&format!("{} slices and values", of(1) + of(4))),
        "{words}"
    );

    let Some(trace) = checked(out.path()) else {
        return;
    };
    let processes = &trace["processes"];
    for process in ["server", "clients.0", "clients.1", "switch 0"] {
        let all = processes.as_array().expect("a list");
        assert!(all.iter().any(|one| one == process), "{processes}");
    }
    // Two threads of each client host on cores of their own, and what their NICs did.
    let slices = &trace["slices"];
    for core in ["core 0", "core 1"] {
        let threads = slices["clients.1"][core].as_object().expect("slices");
        assert!(
            threads.keys().all(|name| name.starts_with("client ")),
            "{threads:?}"
        );
    }
    for (track, slice) in [
        ("NIC engine 0", "receive WRITE"),
        ("NIC engine 1", "send a request"),
    ] {
        assert!(
            slices["server"][track][slice].as_u64() > Some(10),
            "{slices}"
        );
    }
    for track in ["wire", "PCIe to memory", "PCIe to the NIC"] {
        assert!(slices["server"][track].is_object(), "{slices}");
    }
    let counters = &trace["counters"]["server"];
    assert!(counters["contexts: hits"].as_u64() > Some(10), "{counters}");
    assert!(
        counters["queue: packets that have arrived"].is_u64(),
        "{counters}"
    );
}

#[test]
fn a_window_and_a_bound_keep_a_trace_short() {
    let out = Scratch::new("short.pftrace", b"");
    let window = ["--trace-from", "10us", "--trace-until", "20us"];
    let ran = run("window", &[&["--trace", out.path()], &window[..]].concat());
    assert!(ran.status.success(), "{ran:?}");
    let inside = events(out.path());
    let begins = inside.iter().filter(|(_, kind)| *kind != 2);
    assert!(begins.clone().count() > 10);
    assert!(
        begins.clone().all(|(at, _)| (10_000..20_000).contains(at)),
        "{inside:?}"
    );

    let ran = run("bound", &["--trace", out.path(), "--trace-events", "100"]);
    let few = events(out.path());
    assert_eq!(few.iter().filter(|(_, kind)| *kind != 2).count(), 100);
    let words = String::from_utf8(ran.stderr).expect("UTF-8");
    assert!(
        words.contains("more were omitted because a limit was reached"),
        "{words}"
    );

    let wrong = [
        "--trace",
        out.path(),
        "--trace-from",
        "2us",
        "--trace-until",
        "2us",
    ];
    failure(&run("wrong", &wrong), 2);
    failure(
        &run("wrong-unit", &["--trace", out.path(), "--trace-from", "2"]),
        2,
    );
    failure(&run("nowhere", &["--trace", "/proc/nope"]), 1);
}
