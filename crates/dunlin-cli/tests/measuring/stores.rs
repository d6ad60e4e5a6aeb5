//! Stores, transactions and a file system under load.

use std::process::Command;

use crate::common::{assert_report, dunlin, failure, object};
use crate::leaves_nothing;

#[test]
fn the_store_is_measured_under_every_workload() {
    for workload in [
        "get", "put", "scan", "ycsb-a", "ycsb-b", "ycsb-c", "ycsb-d", "ycsb-e", "ycsb-f",
    ] {
        let arguments = ["perf", "kv", "--workload", workload, "--keys", "1000"];
        let more = ["--seconds", "0.2", "--outstanding", "8", "--json"];
        let report = assert_report(&leaves_nothing(&[&arguments[..], &more].concat()));
        assert_eq!(report["workload"], workload);
        assert_eq!(report["keys"], 1000);
    }
}

/// Beside what is installed; what is not is said, and how to have it.
#[test]
fn the_store_is_measured_beside_others() {
    for (other, workload) in [
        ("memcached", "ycsb-a"),
        ("redis", "ycsb-f"),
        ("redis", "ycsb-e"),
        ("store", "get"),
        ("store", "ycsb-e"),
    ] {
        let program = match other {
            "redis" => "redis-server",
            "store" => "the store alone",
            other => other,
        };
        let arguments = ["perf", "kv", "--against", other, "--workload", workload];
        let more = ["--keys", "1000", "--seconds", "0.2", "--json"];
        let output = leaves_nothing(&[&arguments[..], &more].concat());
        let is_there = || Command::new(program).arg("--version").output().is_ok();
        if other != "store" && !is_there() {
            let words = failure(&output, 1);
            assert!(words.contains("apt-get install"), "{words}");
            continue;
        }
        let report = assert_report(&output);
        assert!(report["against"]
            .as_str()
            .is_some_and(|words| words.starts_with(program)));
        assert!(
            report["ratio"]["rate"]
                .as_f64()
                .is_some_and(|ratio| ratio > 0.0),
            "{report}"
        );
    }
    let words = failure(
        &dunlin(&["perf", "kv", "--against", "memcached", "--workload", "scan"]),
        2,
    );
    assert!(words.contains("no scans"), "{words}");
}

/// Beside what is installed; what is not is said, and how to have it.
#[test]
fn transactions_are_measured_beside_others() {
    let few = [
        "--rows",
        "1000",
        "--seconds",
        "0.4",
        "--turns",
        "2",
        "--json",
    ];
    for (other, workload) in [("redis", "smallbank"), ("redis", "tatp")]
        .into_iter()
        .chain([("postgres", "smallbank"), ("postgres", "tatp")])
    {
        let arguments = ["perf", "txn", "--against", other, "--workload", workload];
        let output = leaves_nothing(&[&arguments[..], &few].concat());
        let words = String::from_utf8_lossy(&output.stderr);
        if words.contains("is not installed") {
            println!("skipped: {other}: {words}");
            assert!(failure(&output, 1).contains("apt-get install"), "{words}");
            continue;
        }
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let report = object(&output);
        let found = &report["against"][0];
        let version = found["against"].as_str().expect("a version");
        assert!(version.starts_with(other), "{report}");
        for figure in [
            &report["rate_per_s"],
            &found["rate_per_s"],
            &found["ratio"]["median"],
        ] {
            assert!(
                figure.as_f64().is_some_and(|figure| figure > 0.0),
                "{report}"
            );
        }
        // TATP deletes call forwardings of which most are not there.
        if workload == "tatp" {
            assert!(
                found["declined"].as_u64().is_some_and(|n| n > 0),
                "{report}"
            );
        }
    }
    let others = ["perf", "txn", "--against", "redis", "--workload", "ycsb-a"];
    assert!(failure(&dunlin(&others), 2).contains("smallbank and tatp"));
}

#[test]
fn metadata_is_measured_at_a_server_and_in_a_folder() {
    let folder = std::env::temp_dir();
    let few = ["perf", "meta", "--clients", "2", "--files", "30", "--json"];
    let places = [
        vec!["--directories", "each"],
        vec!["--folder", folder.to_str().expect("UTF-8")],
    ];
    for place in &places {
        let output = leaves_nothing(&[&few[..], place].concat());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let report = object(&output);
        assert_eq!(report["folder"].is_string(), place[0] == "--folder");
        let phases = report["phases"].as_array().expect("phases");
        let names: Vec<_> = phases.iter().map(|phase| &phase["name"]).collect();
        assert_eq!(names, ["create", "stat", "readdir", "remove"]);
        let each = place[0] == "--directories";
        for (phase, operations) in phases.iter().zip([60, 60, if each { 60 } else { 120 }, 60]) {
            assert_eq!(phase["operations"], operations, "{report}");
        }
    }
    let both = ["--folder", "/tmp", "--address", "dunlin://127.0.0.1:1"];
    failure(&dunlin(&[&few[..], &both].concat()), 2);
    let absent = ["--folder", "/no/such/folder"];
    let words = failure(&dunlin(&[&few[..], &absent].concat()), 1);
    assert!(words.contains("/no/such/folder: No such file"), "{words}");
}
