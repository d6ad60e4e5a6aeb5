//! Wrong files and what is said of them.

use std::path::Path;

use super::{Experiment, Settings};

/// A file that is right; a wrong one differs by one line.
const RIGHT: &str = r#"
[topology]
switch = "sx1012"
[[topology.hosts]]
name = "server"
[[topology.hosts]]
name = "clients"
count = 4
[server]
host = "server"
pollers = 4
[[clients]]
hosts = "clients"
threads = 2
preset = "flock"
[[faults]]
kind = "loss"
share = "1%"
[run]
duration = "100us"
[sweep]
"clients.threads" = [1, 2]
[print]
columns = ["rate"]
[plot]
x = "clients.threads"
"#;

fn complaint(text: &str, set: &[&str]) -> Option<String> {
    let settings = Settings {
        set: set.iter().map(|&set| set.to_owned()).collect(),
        ..Settings::default()
    };
    let parsed = Experiment::parse("my.toml", text, Path::new(""), &settings);
    parsed.err().map(|wrong| wrong.to_string())
}

#[test]
fn the_right_file_is_right() {
    assert_eq!(complaint(RIGHT, &[]), None);
}

#[test]
fn wrong_files_are_told_where_and_what() {
    // What is replaced, by what, and the message.
    let cases: &[(&str, &str, &str)] = &include!("wrong_files.rs");
    assert!(cases.len() >= 20);
    let mut differ = Vec::new();
    for (right, wrong, message) in cases {
        assert!(RIGHT.contains(right), "{right}");
        let said = complaint(&RIGHT.replacen(right, wrong, 1), &[]).unwrap_or_default();
        if said != *message {
            differ.push(format!("{wrong}\n  said:   {said}\n  wanted: {message}"));
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}

#[test]
fn wrong_settings_are_told_as_they_were_given() {
    let cases = [
        (
            "clients.treads=2",
            "--set clients.treads=2: no key `clients.treads`; did you mean `threads`? (there are: name, hosts, processes, \
             threads, preset, lanes, dispatcher, outstanding, request, response, think, rate, arrivals, deadline)",
        ),
        (
            "server.pollers=many",
            "--set server.pollers=many: `server.pollers` is \"many\": it must be a whole number from 1 to 256",
        ),
        ("server.pollers", "--set server.pollers: it must be KEY=VALUE"),
        (
            "clients.7.threads=2",
            "--set clients.7.threads=2: no key `clients.7.threads` (there are: 0)",
        ),
        (
            "nic.tx_wqe=2",
            "--set nic.tx_wqe=2: unknown `nic.tx_wqe`; did you mean `tx_wqe_ns`?",
        ),
    ];
    for (set, message) in cases {
        let said = complaint(RIGHT, &[set]).unwrap_or_default();
        // Parameters of a NIC are many.
        let said = said.split(" (there are: tx_wqe_ns").next().unwrap_or_default();
        assert_eq!(said, message);
    }
}

#[test]
fn settings_reach_every_key() {
    for set in [
        "clients.threads=8",
        "clients.0.threads=8",
        "topology.hosts.clients.nic=connectx-3",
        "topology.hosts.nic=connectx-3",
        "nic.tx_wqe_ns=20",
        "cpu.copy_ns=7.5",
        "switch.lossless=0",
        "print.every=10us",
        "print.columns=[\"p50\", \"rate\"]",
        "faults.share=0.5",
        "title=another",
        "run.seed=7",
    ] {
        assert_eq!(complaint(RIGHT, &[set]), None, "{set}");
    }
}
