//! The measuring commands as a user calls them. No test asserts a time.

#[path = "../common/mod.rs"]
mod common;
mod early;
mod interrupts;
mod rings;
mod stores;
mod verbs;

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use common::{assert_against, assert_report, dunlin, failure, object, stat, DUNLIN};

/// Processes of a process group that are still there.
fn left_of_group(group: u32) -> Vec<String> {
    let entries = std::fs::read_dir("/proc").expect("/proc");
    entries
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        // State, parent, group.
        .filter(|name| stat(name).is_some_and(|fields| fields[2] == group.to_string()))
        .collect()
}

/// Runs a command in a process group of its own and sees that nothing is left of it.
fn leaves_nothing(arguments: &[&str]) -> std::process::Output {
    let child = Command::new(DUNLIN)
        .args(arguments)
        .process_group(0)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("dunlin runs");
    let group = child.id();
    let output = child.wait_with_output().expect("dunlin ends");
    assert_eq!(left_of_group(group), Vec::<String>::new(), "{arguments:?}");
    output
}

#[test]
fn demo_works_and_leaves_nothing_running() {
    let arguments = ["demo", "--seconds", "1", "--entries", "10000", "--json"];
    let report = assert_report(&leaves_nothing(&arguments));
    assert_eq!(report["device"], "shm");
}

fn shown(what: &str) -> serde_json::Value {
    let arguments = [
        "demo",
        "--what",
        what,
        "--seconds",
        "0.6",
        "--entries",
        "1000",
    ];
    let output = leaves_nothing(&[&arguments[..], &["--json"]].concat());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {errors}");
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

#[test]
fn what_stands_on_it_is_shown_and_leaves_nothing_running() {
    assert_eq!(shown("index")["errors"], 0);
    let bank = shown("txn");
    assert_eq!(
        (&bank["money"], &bank["machines"]),
        (&1_000_000.into(), &3.into())
    );
    assert!(bank["payments"].as_u64() > Some(0), "{bank}");
    let files = shown("fs");
    assert!(files["files"].as_u64() > Some(0), "{files}");
    assert_eq!(files["files_after"], files["files"]);
    let stream = shown("stream");
    assert!(stream["bytes"].as_u64() > Some(0), "{stream}");
}

#[test]
fn calls_are_measured() {
    for more in [&[][..], &["--outstanding", "64"], &["--size", "1048576"]] {
        let arguments = [&["perf", "rpc", "--seconds", "1", "--json"], more].concat();
        let report = assert_report(&leaves_nothing(&arguments));
        assert_eq!(report["preset"], "auto");
        assert!(report.get("ratio").is_none(), "{report}");
    }
}

/// Who reads the object of a measurement is told nothing else; sizes have suffixes.
#[test]
fn a_measurement_for_programs_is_silent() {
    let perf = ["perf", "rpc", "--seconds", "0.2", "--json"];
    let output = dunlin(&[&perf[..], &["--size", "1MiB"]].concat());
    assert_eq!(assert_report(&output)["size"], 1 << 20);
    assert!(output.stderr.is_empty(), "{output:?}");
}

/// Far more threads than processors connect at once: each gets its connection.
#[test]
fn many_threads_find_the_server() {
    let perf = ["perf", "rpc", "--seconds", "0.5", "--json", "--threads"];
    let report = assert_report(&dunlin(&[&perf[..], &["400"]].concat()));
    assert_eq!(report["threads"], 400, "{report}");
}

#[test]
fn calls_are_measured_by_size() {
    let sweep = ["perf", "rpc", "-a", "--seconds", "0.1", "--json"];
    let output = leaves_nothing(&sweep);
    assert!(output.status.success(), "{output:?}");
    let object = object(&output);
    common::assert_environment(&object);
    let reports = object["sweep"].as_array().expect("a list");
    let sizes: Vec<u64> = (3..=22).map(|power| 1 << power).collect();
    assert_eq!(reports.len(), sizes.len());
    for (report, size) in reports.iter().zip(sizes) {
        assert_eq!(report["size"], size, "{report}");
        assert!(report["rate_per_s"].as_f64() > Some(0.0), "{report}");
        assert_eq!(report["errors"], 0, "{report}");
    }
    // No further than the server takes.
    let server = common::Serving::start("echo", &["--max-message-bytes", "1KiB"]);
    let more = ["--address", server.address()];
    let output = dunlin(&[&sweep[..], &more].concat());
    let object: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(object["sweep"].as_array().map(Vec::len), Some(8));
    server.stop();
}

#[test]
fn a_histogram_holds_every_call_that_was_timed() {
    let command = ["perf", "rpc", "--histogram", "--seconds", "0.2"];
    let report = assert_report(&leaves_nothing(&[&command[..], &["--json"]].concat()));
    let counts = report["histogram_ns"].as_array().expect("a list");
    let sum: u64 = counts.iter().filter_map(|pair| pair[1].as_u64()).sum();
    let calls = report["rate_per_s"].as_f64().unwrap() * report["seconds"].as_f64().unwrap();
    assert_eq!(sum, calls.round() as u64);
    let text = String::from_utf8(dunlin(&command).stdout).expect("UTF-8");
    assert!(
        text.contains("latency from") && text.contains('#'),
        "{text}"
    );
}

#[test]
fn the_share_of_the_slowest_process_can_be_asked_for() {
    let perf = ["perf", "rpc", "--processes", "2", "--seconds", "0.3"];
    let fair = |part: &str| dunlin(&[&perf[..], &["--fairness", part, "--json"]].concat());
    let output = fair("0");
    assert!(output.status.success(), "{output:?}");
    let share = object(&output)["slowest_of_mean"].as_f64();
    assert!(share > Some(0.0) && share <= Some(1.0), "{share:?}");
    // Two processes have never made the very same number of calls.
    let output = fair("1");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(
        words.contains("below the 1 required by --fairness"),
        "{words}"
    );
}

#[test]
fn calls_are_measured_against_the_limits() {
    let arguments = ["perf", "rpc", "--seconds", "1", "--against", "limits"];
    let report = assert_report(&dunlin(&[&arguments[..], &["--json"]].concat()));
    assert_against(&report);
}

#[test]
fn presets_are_measured_beside_each_other() {
    let others = ["plain", "fasst", "scalerpc"];
    let names = others.join(",");
    let command = [
        "perf",
        "rpc",
        "--seconds",
        "1",
        "--json",
        "--against",
        &names,
    ];
    for more in [&[][..], &["--threads", "3", "--outstanding", "8"]] {
        let report = assert_report(&leaves_nothing(&[&command[..], more].concat()));
        assert_eq!(report["preset"], "auto");
        assert!(report["rounds"].as_u64().is_some_and(|rounds| rounds >= 6));
        let against = report["against"].as_array().expect("a list");
        assert_eq!(against.len(), others.len(), "{report}");
        for (other, name) in against.iter().zip(others) {
            assert_eq!(other["preset"], name);
            let figure = |key: &str| other[key].as_f64().unwrap_or_default();
            assert!(
                figure("rate_per_s") > 0.0 && figure("ratio_low") > 0.0,
                "{report}"
            );
            assert!(
                figure("ratio_low") <= figure("ratio") && figure("ratio") <= figure("ratio_high"),
                "{report}"
            );
        }
    }
    let wrong = ["perf", "rpc", "--against", "plain,flick"];
    assert!(failure(&dunlin(&wrong), 2).contains("flick"));
}

#[test]
fn a_device_that_is_not_there_is_an_error_that_lists_those_that_are() {
    for command in [&["perf", "rpc"][..], &["demo"]] {
        let arguments = [command, &["--device", "ibv:no-such-nic"]].concat();
        let words = failure(&leaves_nothing(&arguments), 1);
        assert!(words.contains("no-such-nic"), "{words}");
        assert!(words.contains("shm"), "{words}");
    }
}
