//! The measuring commands as a user calls them. No test asserts a time.

mod common;

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{kill_process_group, Pid, Signal};

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
    assert!(words.contains("--fairness asks for 1"), "{words}");
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
fn verbs_are_measured() {
    for arguments in [
        &["--test", "write"][..],
        &["--test", "write", "--size", "1"],
        &["--test", "write", "--size", "100000"],
        &["--test", "write", "--outstanding", "64"],
        &["--test", "write", "--outstanding", "3", "--transport", "uc"],
        &["--test", "write", "--transport", "uc"],
        &["--test", "read"],
        &["--test", "read", "--outstanding", "16", "--size", "4096"],
        &["--test", "send"],
        &["--test", "send", "--size", "1000000"],
        &["--test", "send", "--outstanding", "64"],
        &["--test", "send", "--transport", "uc"],
        &["--test", "send", "--transport", "ud"],
        &["--test", "send", "--transport", "ud", "--outstanding", "8"],
        &["--test", "atomic"],
        &["--test", "atomic", "--outstanding", "64"],
    ] {
        let command = ["perf", "verbs", "--seconds", "0.2", "--json"];
        let report = assert_report(&leaves_nothing(&[&command[..], arguments].concat()));
        assert_eq!(report["preset"], "verbs", "{arguments:?}");
        assert_eq!(report["device"], "shm", "{arguments:?}");
    }
}

#[test]
fn verbs_are_measured_against_the_limits() {
    for test in ["write", "read"] {
        let arguments = ["--against", "limits", "--test", test, "--json"];
        let command = ["perf", "verbs", "--seconds", "0.5"];
        let output = dunlin(&[&command[..], &arguments].concat());
        assert_against(&assert_report(&output));
    }
}

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
    assert!(failure(&output, 2).contains("raw WRITEs have no reader"));
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
    let folder = common::Scratch::new("sweep", b"");
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

#[test]
fn verbs_that_a_transport_lacks_are_refused() {
    for (test, transport) in [("read", "uc"), ("atomic", "uc"), ("write", "ud")] {
        let arguments = ["perf", "verbs", "--test", test, "--transport", transport];
        let words = failure(&dunlin(&arguments), 2);
        assert!(words.contains("transports that have it: RC"), "{words}");
    }
    let arguments = ["perf", "verbs", "--test", "send", "--transport", "ud"];
    let words = failure(
        &dunlin(&[&arguments[..], &["--size", "100000"]].concat()),
        2,
    );
    assert!(words.contains("at most 4096 bytes"), "{words}");
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

/// A measurement that has begun: the command and the process that answers it.
fn measuring(test: &str) -> (std::process::Child, String) {
    let child = Command::new(DUNLIN)
        .args(["perf", "verbs", "--seconds", "120", "--test", test])
        .process_group(0)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("dunlin runs");
    let own = child.id().to_string();
    let answering = wait_for(|| {
        let mut others = left_of_group(child.id());
        others.retain(|process| *process != own);
        // It is the second process once it carries the program's own arguments.
        let process = others.pop()?;
        let line = std::fs::read_to_string(format!("/proc/{process}/cmdline")).ok()?;
        line.contains("verbs-peer").then_some(process)
    });
    std::thread::sleep(std::time::Duration::from_millis(200));
    (child, answering)
}

/// Waits for something that must come; a hang is a failure.
fn wait_for<T>(mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..600 {
        if let Some(found) = look() {
            return found;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("waited in vain");
}

#[test]
fn the_process_that_answers_ends_with_the_one_that_measures() {
    for test in ["write", "read", "send"] {
        let (mut child, _) = measuring(test);
        let group = child.id();
        child.kill().expect("it runs");
        child.wait().expect("it ends");
        wait_for(|| left_of_group(group).is_empty().then_some(()));
    }
}

#[test]
fn a_peer_that_is_killed_is_an_error() {
    for test in ["write", "read", "send", "atomic"] {
        let (child, answering) = measuring(test);
        let process = rustix::process::Pid::from_raw(answering.parse().expect("a number"));
        let process = process.expect("not zero");
        rustix::process::kill_process(process, rustix::process::Signal::KILL).expect("it runs");
        let group = child.id();
        let output = child.wait_with_output().expect("dunlin ends");
        println!("{}", failure(&output, 1).trim());
        assert_eq!(left_of_group(group), Vec::<String>::new(), "{test}");
    }
}

/// Ctrl-C ends a measurement, not what was measured: a report, and the exit code of an interrupted command.
#[test]
fn what_was_measured_before_an_interrupt_is_reported() {
    for command in [
        &["perf", "rpc"][..],
        &["perf", "rpc", "--processes", "2"],
        &["perf", "verbs"],
        &["perf", "ring"],
        &["demo", "--entries", "10"],
    ] {
        let mut child = Command::new(DUNLIN)
            .args(command)
            .args(["--seconds", "600", "--json"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .expect("it starts");
        let group = Pid::from_raw(child.id() as i32).expect("a process");
        // The server's process has worked for a while: what comes first is over then.
        let patience = Instant::now() + Duration::from_secs(60);
        let works = |process: &String| {
            let ticks =
                |fields: Vec<String>| fields[11].parse::<u64>().is_ok_and(|ticks| ticks > 20);
            *process != child.id().to_string() && stat(process).is_some_and(ticks)
        };
        while !left_of_group(child.id()).iter().any(works) {
            assert!(Instant::now() < patience, "no server works");
            std::thread::sleep(Duration::from_millis(20));
        }
        // As a terminal does it: all processes at once.
        kill_process_group(group, Signal::INT).expect("a signal");
        let mut output = String::new();
        let stdout = child.stdout.as_mut().expect("its output");
        stdout.read_to_string(&mut output).expect("text");
        let mut words = String::new();
        let stderr = child.stderr.as_mut().expect("its words");
        stderr.read_to_string(&mut words).expect("text");
        assert_eq!(child.wait().expect("an end").code(), Some(130), "{words}");
        let report: serde_json::Value = serde_json::from_str(&output).expect("a report");
        assert!(
            report["rate_per_s"].as_f64().expect("a rate") > 0.0,
            "{report}"
        );
        assert!(words.contains("interrupted before the end"), "{words}");
    }
}

/// The same of what is simulated: the seeds that were hunted before the interrupt count.
#[test]
fn a_hunt_that_is_interrupted_says_what_it_has() {
    let mut child = Command::new(DUNLIN)
        .args(["lab", "hunt", "--seeds", "20000", "--threads", "1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    wait_for(|| {
        let fields = stat(&child.id().to_string())?;
        fields[11]
            .parse::<u64>()
            .is_ok_and(|ticks| ticks > 50)
            .then_some(())
    });
    let process = Pid::from_raw(child.id() as i32).expect("a process");
    rustix::process::kill_process(process, Signal::INT).expect("it runs");
    let mut output = String::new();
    let stdout = child.stdout.as_mut().expect("its output");
    stdout.read_to_string(&mut output).expect("text");
    assert_eq!(child.wait().expect("an end").code(), Some(130), "{output}");
    let last = output.lines().last().unwrap_or_default();
    let seeds: u64 = last
        .split(" seeds, ")
        .next()
        .and_then(|number| number.parse().ok())
        .unwrap_or_else(|| panic!("{output}"));
    assert!(seeds < 20_000, "{last}");
}
