//! Tests of raw verbs in experiments, in addition to the figures that use them.

use std::path::Path;

use super::super::{Experiment, Outcome, Settings};

const FILE: &str = r#"
[topology]
switch = "z9264f"
[[topology.hosts]]
name = "one"
[[topology.hosts]]
name = "others"
count = 2
[[verbs]]
requesters = "others"
targets = "one"
operation = "send"
threads = 2
[run]
warm_up = "50us"
duration = "100us"
[print]
columns = ["verbs", "verbs_p50", "nic_started.others", "nic_received.one", "receiver_drops", "verbs_p99"]
"#;

fn run(text: &str) -> Outcome {
    let parsed = Experiment::parse("my.toml", text, Path::new(""), &Settings::default());
    let experiment = parsed.unwrap_or_else(|wrong| panic!("{wrong}"));
    experiment.run(2, || false).expect("it runs")
}

fn columns(text: &str) -> Vec<f64> {
    let outcome = run(text);
    let columns = outcome.points[0].columns.iter();
    columns.map(|column| column.mean).collect()
}

/// Each operation over each transport that supports it, inline or not, by one doorbell or several, with all or few
/// signaled.
#[test]
fn every_operation_is_done_over_every_transport_that_has_it() {
    let of = |operation: &str, transport: &str, more: &str| {
        let with = format!("operation = \"{operation}\"\ntransport = \"{transport}\"\n{more}");
        FILE.replacen("operation = \"send\"", &with, 1)
    };
    for (operation, transports) in [
        ("send", &["rc", "uc", "ud"][..]),
        ("write", &["rc", "uc"]),
        ("read", &["rc"]),
        ("fetch-add", &["rc"]),
    ] {
        for transport in transports {
            for more in [
                "",
                "destinations = 3",
                "batch = 4\nsignal_every = 8",
                "queue_pairs = 24\norder = \"in-turn\"\nown_places = true\nsize = \"1KiB\"",
                "inline = true",
                "queue_pairs = 24\nown_completions = true",
            ] {
                let (inline, own) = (more.contains("inline"), more.contains("own_completions"));
                let brings = matches!(operation, "read" | "fetch-add");
                let (is_ud, several) = (*transport == "ud", more.contains("destinations"));
                if brings && inline || is_ud && own || !is_ud && several {
                    continue;
                }
                let atomic = more.replace("size = \"1KiB\"", "") + "\nsize = \"8B\"";
                let more = match operation {
                    "fetch-add" => &atomic,
                    _ => more,
                };
                let found = columns(&of(operation, transport, more));
                let [done, p50, started, received, drops, p99] = found[..] else {
                    panic!("{found:?}");
                };
                let what = format!("{operation} over {transport} {more}: {found:?}");
                // Requests started and completed in a window differ by what is outstanding.
                assert!(done > 1.0 && (started / done - 1.0).abs() < 0.2, "{what}");
                assert!(p50 > 0.1 && p99 >= p50, "{what}");
                match operation {
                    "read" | "fetch-add" => assert_eq!(received, 0.0, "{what}"),
                    _ => assert!(received > 0.8 * done || drops > 0.0, "{what}"),
                }
                if *transport == "rc" {
                    assert_eq!(drops, 0.0, "{what}");
                }
            }
        }
    }
}

/// A SEND that is answered is complete when its answer has arrived, over each transport: never earlier than possible.
#[test]
fn answers_come_over_every_transport() {
    for transport in ["rc", "uc", "ud"] {
        let of = |more: &str| {
            let with = format!("operation = \"send\"\ntransport = \"{transport}\"\n{more}");
            columns(&FILE.replacen("operation = \"send\"", &with, 1))
        };
        let all = of("outstanding = 1");
        for more in [
            "answer = \"8B\"\noutstanding = 1",
            "answer = \"2KiB\"\noutstanding = 4\nqueue_pairs = 12",
            "answer = \"64B\"\nbatch = 4\nsignal_every = 8\ninline = true",
        ] {
            let found = of(more);
            let [done, p50, started, received, drops, _] = found[..] else {
                panic!("{found:?}");
            };
            let what = format!("{transport} {more}: {found:?}");
            assert!(done > 0.3 && p50 > 1.0, "{what}");
            // As many messages go back as arrive: only the requesters are counted.
            assert!((started / done - 1.0).abs() < 0.2, "{what}");
            assert!(
                (received / done - 1.0).abs() < 0.2 && drops == 0.0,
                "{what}"
            );
            if transport == "ud" && more.contains("outstanding = 1") {
                // Two ways instead of one until the request has left.
                assert!(p50 > all[1], "{what} beside {all:?}");
            }
        }
    }
}

/// A byte crosses PCIe once at each end: its completion is not later by another crossing.
#[test]
fn a_byte_crosses_pcie_once_at_each_end() {
    let slow = "[nic]\npcie_gbyte_s = 1\nlink_gbit_s = 1000\n[[verbs]]";
    for transport in ["rc", "ud"] {
        let median = |size: &str| {
            let with = format!(
                "operation = \"send\"\ntransport = \"{transport}\"\nanswer = \"8B\"\noutstanding = 1\nsize = \"{size}\""
            );
            let text = FILE
                .replacen("operation = \"send\"", &with, 1)
                .replacen("threads = 2", "threads = 1\nqueue_pairs = 1", 1)
                .replacen("[[verbs]]", slow, 1);
            columns(&text)[1]
        };
        let ns_a_byte = (median("4KiB") - median("1KiB")) * 1_000.0 / 3_072.0;
        // Plus a tenth for the headers of PCIe's packets.
        assert!((2.0..2.4).contains(&ns_a_byte), "{transport}: {ns_a_byte}");
    }
}

/// A host on both sides posts to all but itself, and two groups share hosts with calls.
#[test]
fn groups_go_beside_each_other_and_beside_calls() {
    let more = r#"
[[verbs]]
name = "reads"
requesters = "readers.0"
targets = "readers.1"
operation = "read"
[server]
host = "callers.0"
[[clients]]
hosts = "callers.1"
[run]"#;
    let all = r#"["one", "others"]"#;
    let asked = r#"["verbs.0", "verbs.reads", "rate", "nic_started.one", "nic_answered.readers"]"#;
    // Threads of one core take turns of a slice, which is longer than this run: each load has hosts of its own.
    let host = |name: &str| format!("[[topology.hosts]]\nname = \"{name}\"\ncount = 2\n");
    let hosts = host("callers") + &host("readers");
    let usual = FILE.lines().find(|line| line.starts_with("columns"));
    let text = FILE
        .replacen(
            "\"others\"\ntargets = \"one\"",
            &format!("{all}\ntargets = {all}"),
            1,
        )
        .replacen("[[verbs]]", &format!("{hosts}[[verbs]]"), 1)
        .replacen("[run]", more, 1)
        .replacen(usual.expect("it prints"), &format!("columns = {asked}"), 1);
    let found = columns(&text);
    assert!(found.iter().all(|&value| value > 0.01), "{found:?}");
}

/// The same results on two cores, and again with the same seed.
#[test]
fn two_cores_show_the_same() {
    let on = |cores| {
        let settings = Settings {
            cores: Some(cores),
            ..Settings::default()
        };
        let parsed = Experiment::parse("my.toml", FILE, Path::new(""), &settings);
        parsed.expect("right").run(1, || false).expect("it runs")
    };
    let (one, two) = (on(1), on(2));
    assert_eq!(one.points, two.points);
}
