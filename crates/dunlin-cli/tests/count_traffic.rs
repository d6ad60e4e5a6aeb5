//! Traffic of captures by flow: what is counted is what was written, in every format, over every ring, and what tshark
//! finds where that is installed. No test asserts a time.

mod captures;
mod common;

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Command;

use captures::{counts, packets, pcap, pcapng, Flow};
use common::{assert_environment, dunlin, failure, object};
use serde_json::Value;

/// A file that goes with the test.
struct Capture(PathBuf);

impl Capture {
    fn new(name: &str, bytes: &[u8]) -> Self {
        let name = format!("dunlin-test-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, bytes).unwrap();
        Self(path)
    }

    fn count(&self, more: &[&str]) -> Value {
        let arguments = [
            "count-traffic",
            self.0.to_str().unwrap(),
            "--top",
            "100000",
            "--json",
        ];
        let output = dunlin(&[&arguments[..], more].concat());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let report = object(&output);
        assert_environment(&report);
        report
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The flows of a report.
fn flows(report: &Value) -> HashMap<Option<Flow>, (u64, u64)> {
    let number = |value: &Value| value.as_u64().unwrap();
    let volume = |value: &Value| (number(&value["packets"]), number(&value["bytes"]));
    let mut flows = HashMap::new();
    for talker in report["top"].as_array().unwrap() {
        let address = |key: &str| talker[key].as_str().unwrap().parse().unwrap();
        let port = |key: &str| number(&talker[key]) as u16;
        let flow = (
            address("source"),
            port("source_port"),
            address("destination"),
            port("destination_port"),
            number(&talker["protocol"]) as u8,
        );
        assert!(
            flows.insert(Some(flow), volume(talker)).is_none(),
            "twice: {talker}"
        );
    }
    let rest = volume(&report["without_flow"]);
    if rest.0 > 0 {
        flows.insert(None, rest);
    }
    flows
}

#[test]
fn what_was_written_is_counted_in_every_format() {
    let packets = packets(1, 5000);
    let expected = counts(&packets);
    assert!(expected.len() > 100, "{}", expected.len());
    let bytes: u64 = packets.iter().map(|packet| u64::from(packet.wire)).sum();
    for (name, file) in [
        ("pcap", pcap(&packets, false)),
        ("other-order", pcap(&packets, true)),
        ("pcapng", pcapng(&packets)),
    ] {
        let report = Capture::new(name, &file).count(&[]);
        assert_eq!(flows(&report), expected, "{name}");
        assert_eq!(report["all"]["packets"], 5000, "{name}");
        assert_eq!(report["all"]["bytes"], bytes, "{name}");
        assert_eq!(report["lasted_ns"], 4999 * 1_000_000u64, "{name}");
        assert_eq!(report["cut_short"], false, "{name}");
        // The most bytes first.
        let top = report["top"].as_array().unwrap();
        assert!(top.is_sorted_by_key(|one| std::cmp::Reverse(one["bytes"].as_u64())));
    }
}

#[test]
fn over_every_ring_and_in_turns_with_one_process() {
    let packets = packets(2, 2000);
    let capture = Capture::new("designs", &pcap(&packets, false));
    let expected = counts(&packets);
    for design in ["rb2", "farm", "socksdirect", "l5", "mvapich"] {
        let report = capture.count(&["--design", design]);
        assert_eq!(flows(&report), expected, "{design}");
    }
    assert_eq!(flows(&capture.count(&["--device", "roce"])), expected);
    let report = capture.count(&["--turns", "2"]);
    assert_eq!(report["rates"]["turns"], 2);
    for key in ["records_per_s", "alone_records_per_s", "ratio"] {
        assert!(report["rates"][key].as_f64() > Some(0.0), "{key}: {report}");
    }
    // With more flows than may be.
    let report = capture.count(&["--max-flows", "5"]);
    assert_eq!(report["flows"], 5);
    let number = |key: &str| report[key]["packets"].as_u64().unwrap();
    let listed: u64 = flows(&report).values().map(|volume| volume.0).sum();
    assert_eq!(listed + number("of_more_flows"), number("all"));
    let people = dunlin(&["count-traffic", capture.0.to_str().unwrap()]);
    let people = String::from_utf8_lossy(&people.stdout).into_owned();
    assert!(
        people.contains("10.0.0.") && people.contains("2000 packets"),
        "{people}"
    );
}

#[test]
fn files_that_are_none_or_not_whole() {
    let packets = packets(3, 100);
    let whole = pcap(&packets, false);
    // As that of a tcpdump that was killed: what is whole is counted.
    let report = Capture::new("short", &whole[..whole.len() - 1]).count(&[]);
    assert_eq!(report["cut_short"], true);
    assert_eq!(report["all"]["packets"], 99);
    let empty = Capture::new("header", &whole[..24]).count(&[]);
    assert_eq!(empty["all"]["packets"], 0);
    let refused = |capture: &Capture, code| {
        failure(
            &dunlin(&["count-traffic", capture.0.to_str().unwrap()]),
            code,
        )
    };
    for bytes in [&b""[..], b"no capture at all, but text", &whole[..10]] {
        let words = refused(&Capture::new("none", bytes), 2);
        assert!(words.contains("neither pcap nor pcapng"), "{words}");
    }
    // A packet of an interface that nobody described.
    let mut file = pcapng(&packets);
    let at = file
        .windows(4)
        .position(|four| four == [6, 0, 0, 0])
        .unwrap();
    file[at + 8] = 9;
    let words = refused(&Capture::new("interface", &file), 1);
    assert!(
        words.contains("after packet 0") && words.contains("unknown interface"),
        "{words}"
    );
    // A length that nobody has is one that goes beyond the end.
    let mut file = whole.clone();
    file[24 + 8..24 + 12].copy_from_slice(&0x7fff_ffffu32.to_le_bytes());
    let report = Capture::new("length", &file).count(&[]);
    assert_eq!(
        (&report["cut_short"], &report["all"]["packets"]),
        (&true.into(), &0.into())
    );
    let words = failure(&dunlin(&["count-traffic", "/nowhere/at/all"]), 1);
    assert!(words.contains("No such file"), "{words}");
    for wrong in [
        ["--design", "nonsense"],
        ["--device", "nonsense"],
        ["--max-flows", "0"],
    ] {
        failure(
            &dunlin(&[&["count-traffic", "/dev/null"], &wrong[..]].concat()),
            2,
        );
    }
}

/// Changes bytes of captures at random: whatever is in a file, the command says what it is and ends.
#[test]
fn no_file_is_a_crash() {
    let mut random = fastrand::Rng::with_seed(4);
    let packets = packets(5, 60);
    let files = [
        pcap(&packets, false),
        pcap(&packets, true),
        pcapng(&packets),
    ];
    for round in 0..30 {
        let mut file = files[round % files.len()].clone();
        for _ in 0..random.usize(1..20) {
            let at = random.usize(..file.len());
            file[at] = random.u8(..);
        }
        let capture = Capture::new("changed", &file);
        let output = dunlin(&["count-traffic", capture.0.to_str().unwrap(), "--json"]);
        match output.status.code() {
            Some(0) => assert!(object(&output)["all"]["packets"].as_u64() <= Some(1000)),
            Some(code @ (1 | 2)) => drop(failure(&output, code)),
            _ => panic!("round {round}: {output:?}"),
        }
    }
}

#[test]
fn tshark_counts_the_same() {
    let packets = packets(6, 3000);
    for (name, file) in [
        ("tshark-pcap", pcap(&packets, false)),
        ("tshark-ng", pcapng(&packets)),
    ] {
        let capture = Capture::new(name, &file);
        let Some(theirs) = count_by_tshark(&capture) else {
            return;
        };
        assert_eq!(flows(&capture.count(&[])), theirs, "{name}");
    }
}

/// What tshark says of each packet, counted; nothing where it is not installed, which is said.
fn count_by_tshark(capture: &Capture) -> Option<HashMap<Option<Flow>, (u64, u64)>> {
    const FIELDS: [&str; 11] = [
        "ip.src",
        "ip.dst",
        "ipv6.src",
        "ipv6.dst",
        "ip.proto",
        "ipv6.nxt",
        "tcp.srcport",
        "tcp.dstport",
        "udp.srcport",
        "udp.dstport",
        "frame.len",
    ];
    let mut tshark = Command::new("tshark");
    tshark
        .arg("-r")
        .arg(&capture.0)
        .args(["-n", "-T", "fields", "-E", "occurrence=f"]);
    // Each packet by itself, as it is.
    for reassembling in [
        "ip.defragment",
        "ipv6.defragment",
        "tcp.desegment_tcp_streams",
    ] {
        tshark.args(["-o", &format!("{reassembling}:FALSE")]);
    }
    for field in FIELDS {
        tshark.args(["-e", field]);
    }
    let output = match tshark.output() {
        Ok(output) => output,
        Err(error) => {
            eprintln!("skipped: tshark counts the same: tshark: {error}");
            return None;
        }
    };
    assert!(output.status.success(), "{output:?}");
    let mut counts: HashMap<_, (u64, u64)> = HashMap::new();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let fields: Vec<_> = line.split('\t').collect();
        let [src, dst, src6, dst6, proto, next, tcp_src, tcp_dst, udp_src, udp_dst, length] =
            fields[..]
        else {
            panic!("{line}");
        };
        let first = |one: &str, other: &str| match one.is_empty() {
            true => other.to_owned(),
            false => one.to_owned(),
        };
        let port = |one: &str, other: &str| first(one, other).parse().unwrap_or(0);
        let flow = first(src, src6).parse().ok().map(|source| {
            let destination = first(dst, dst6).parse().unwrap();
            let protocol = first(proto, next).parse().unwrap();
            // ICMP errors hold the beginning of another packet.
            let has_ports = matches!(protocol, 6 | 17);
            let port = |one, other| if has_ports { port(one, other) } else { 0 };
            (
                source,
                port(tcp_src, udp_src),
                destination,
                port(tcp_dst, udp_dst),
                protocol,
            )
        });
        let count = counts.entry(flow).or_default();
        count.0 += 1;
        count.1 += length.parse::<u64>().unwrap();
    }
    Some(counts)
}
