//! The ring.

use crate::common::{assert_against, assert_report, dunlin, failure, Scratch};
use crate::leaves_nothing;

#[test]
fn rings_are_measured() {
    for arguments in [
        &["--design", "rb2"][..],
        &["--design", "farm"],
        &["--design", "socksdirect"],
        &["--design", "l5", "--lengths", "header"],
        &["--design", "mvapich"],
        &["--design", "raw"],
        &[
            "--without",
            "batching,zero-copy,cache-lines",
            "--size",
            "5000",
        ],
        &["--size", "1048576", "--slots", "16"],
        &["--pairs", "3"],
        &["--pairs", "2", "--design", "raw"],
        &["--test", "ping-pong"],
        &["--test", "ping-pong", "--design", "socksdirect"],
        &[
            "--test",
            "ping-pong",
            "--design",
            "mvapich",
            "--size",
            "4096",
        ],
        &["--test", "ping-pong", "--design", "raw", "--size", "5000"],
    ] {
        let command = ["perf", "ring", "--seconds", "0.2", "--json"];
        let report = assert_report(&leaves_nothing(&[&command[..], arguments].concat()));
        assert_eq!(report["device"], "shm", "{arguments:?}");
        assert_eq!(report["verified"], false, "{arguments:?}");
    }
}

#[test]
fn rings_are_verified() {
    for arguments in [
        &["--design", "rb2"][..],
        &["--design", "farm", "--size", "100"],
        &["--design", "socksdirect", "--size", "17"],
        &["--design", "l5", "--lengths", "header"],
        &["--design", "mvapich", "--size", "1000"],
        &["--size", "8193", "--without", "batching,zero-copy"],
        &["--test", "ping-pong", "--size", "5000"],
    ] {
        let command = ["perf", "ring", "--verify", "--seconds", "0.2", "--json"];
        let report = assert_report(&leaves_nothing(&[&command[..], arguments].concat()));
        assert_eq!(report["verified"], true, "{arguments:?}");
    }
    let output = dunlin(&["perf", "ring", "--verify", "--design", "rb2,raw"]);
    assert!(failure(&output, 2).contains("raw WRITEs, which have no reader"));
}

#[test]
fn rings_are_compared_and_swept() {
    let arguments = ["--design", "rb2,l5", "--against", "limits", "--json"];
    let command = ["perf", "ring", "--seconds", "0.2"];
    let output = leaves_nothing(&[&command[..], &arguments].concat());
    assert!(output.status.success());
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_against(&report["designs"][0]);
    assert!(report["designs"][1]["over_first"].as_f64() > Some(0.0));
    let folder = Scratch::new("sweep", b"");
    let out = format!("{}-figures", folder.path());
    let arguments = [
        "--seconds",
        "0.1",
        "--design",
        "rb2",
        "--sweep",
        "--out",
        &out,
    ];
    let swept = leaves_nothing(&[&["perf", "ring"][..], &arguments].concat());
    assert!(swept.status.success());
    let csv = std::fs::read_to_string(format!("{out}/ring.csv")).expect("CSV");
    assert_eq!(csv.lines().count(), 16);
    std::fs::remove_dir_all(&out).expect("its folder");
}
