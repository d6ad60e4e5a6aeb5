//! A machine without rdma-core, or one that looks like it: the device says what is missing, and everything else works.

use std::process::{Command, Output};

use serde_json::Value;

/// Runs the command where the library has a name that no machine has.
fn dunlin(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dunlin"))
        .args(arguments)
        .env("DUNLIN_IBV_LIBRARY", "libibverbs-absent.so.1")
        .output()
        .expect("dunlin runs")
}

fn object(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

const WORDS: [&str; 3] = [
    "libibverbs-absent.so.1: cannot open shared object file",
    "rdma-core is not installed (apt install libibverbs1 ibverbs-providers)",
    "all other devices work without it",
];

#[test]
fn devices_says_that_it_is_absent() {
    let listing = object(&dunlin(&["devices", "--json"]));
    let devices = listing["devices"].as_array().expect("a list");
    let named = |name: &str| {
        let mut all = devices.iter();
        all.find(|device| device["name"] == name).expect("listed")
    };
    assert_eq!(named("shm")["usable"], true);
    assert_eq!(named("ibv")["usable"], false);
    let missing = named("ibv")["missing"].as_str().expect("a reason");
    let output = dunlin(&["devices"]);
    let text = String::from_utf8_lossy(&output.stdout);
    for words in WORDS {
        assert!(missing.contains(words), "{missing}");
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn doctor_says_what_to_install() {
    let examined = object(&dunlin(&["doctor", "--json"]));
    let findings = examined["findings"].as_array().expect("a list");
    let of_device = findings.iter().find(|finding| {
        let found = finding["found"].as_str().unwrap_or_default();
        finding["name"] == "devices" && found.starts_with("ibv: ")
    });
    let finding = of_device.expect("a finding of the device");
    assert_eq!(finding["state"], "missing");
    let found = finding["found"].as_str().unwrap_or_default();
    assert!(found.contains(WORDS[1]), "{found}");
}

#[test]
fn calls_work_without_it() {
    let report = object(&dunlin(&["perf", "rpc", "--seconds", "1", "--json"]));
    assert_eq!(report["device"], "shm");
    assert_eq!(report["errors"], 0);
    let report = object(&dunlin(&[
        "demo",
        "--seconds",
        "1",
        "--entries",
        "1000",
        "--json",
    ]));
    assert_eq!(report["errors"], 0);
}

/// Asked for by name it is an error with the reason, not another device.
#[test]
fn asking_for_it_is_refused_with_the_reason() {
    for command in [["perf", "rpc"], ["perf", "verbs"], ["perf", "ring"]] {
        let output = dunlin(&[command[0], command[1], "--device", "ibv", "--seconds", "1"]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains(WORDS[0]), "{text}");
    }
}
