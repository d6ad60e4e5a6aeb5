//! Sorting by hand: made, sorted, looked at; and what is said when something is wrong, also when a worker is killed. No
//! test asserts a time.

mod common;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{assert_environment, dunlin, failure, object, Folder, DUNLIN};
use rustix::process::{kill_process, Pid, Signal};

#[test]
fn made_sorted_and_looked_at() {
    let folder = Folder::new("whole");
    let (input, output) = (folder.path("in"), folder.path("out"));
    let made = dunlin(&[
        "sort",
        "make",
        &input,
        "--records",
        "50000",
        "--seed",
        "7",
        "--json",
    ]);
    let made = object(&made);
    assert_eq!(made["records"], 50_000);

    let words = failure_of_check(&dunlin(&["sort", "check", &input]));
    assert!(words.contains("are less than the record before"), "{words}");

    // A quarter of it fits into memory.
    let how = ["--workers", "3", "--memory", "4MiB", "--json"];
    let sorted = dunlin(&[&["sort", "run", &input, &output], &how[..]].concat());
    let sorted = object(&sorted);
    assert_environment(&sorted);
    assert_eq!(
        (&sorted["records"], &sorted["checksum"]),
        (&made["records"], &made["checksum"])
    );
    assert_eq!(sorted["unordered"], 0);
    assert!(sorted["spilled_runs"].as_u64() > Some(0), "{sorted}");
    assert!(sorted["bytes_per_s"].as_f64() > Some(0.0), "{sorted}");
    assert_eq!(sorted["partitions"].as_array().map(Vec::len), Some(3));

    let checked = object(&dunlin(&["sort", "check", &output, "--json"]));
    assert_eq!(checked["checksum"], made["checksum"]);
    let people = dunlin(&["sort", "check", &output]);
    let people = String::from_utf8_lossy(&people.stdout).into_owned();
    assert!(people.starts_with("50000 records, checksum "), "{people}");
    // Sorted in its place.
    let again = dunlin(&[
        "sort",
        "run",
        &input,
        &input,
        "--workers",
        "2",
        "--memory",
        "32MiB",
    ]);
    assert!(again.status.success(), "{again:?}");
    assert_eq!(std::fs::read(&input).unwrap().len(), 5_000_000);
    assert!(dunlin(&["sort", "check", &input]).status.success());
}

/// Standard error of a check that found something; what it found is on standard output all the same.
fn failure_of_check(output: &std::process::Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn measured_beside_one_thread() {
    let folder = Folder::new("perf");
    let arguments = [
        "perf",
        "sort",
        "--records",
        "20000",
        "--turns",
        "1",
        "--workers",
        "2",
    ];
    let rest = ["--memory", "16MiB", "--folder", &folder.path(""), "--json"];
    let report = object(&dunlin(&[&arguments[..], &rest].concat()));
    for key in ["bytes_per_s", "alone_bytes_per_s", "ratio"] {
        assert!(
            report[key]["median"].as_f64() > Some(0.0),
            "{key}: {report}"
        );
    }
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 0);
}

/// Processes whose parent is this one.
fn children(parent: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
    let list = list.unwrap_or_default();
    list.split_whitespace()
        .map(|word| word.parse().unwrap())
        .collect()
}

#[test]
fn a_killed_worker_is_named_and_nothing_is_left() {
    let folder = Folder::new("kill");
    let (input, output) = (folder.path("in"), folder.path("out"));
    let made = dunlin(&["sort", "make", &input, "--records", "1000000"]);
    assert!(made.status.success(), "{made:?}");
    let child = Command::new(DUNLIN)
        // So little memory that it takes its time.
        .args([
            "sort",
            "run",
            &input,
            &output,
            "--workers",
            "3",
            "--memory",
            "8MiB",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    let mut workers = children(child.id());
    while workers.len() < 3 {
        assert!(Instant::now() < until, "no workers");
        std::thread::sleep(Duration::from_millis(1));
        workers = children(child.id());
    }
    kill_process(Pid::from_raw(workers[1] as i32).unwrap(), Signal::KILL).unwrap();
    let words = failure(&child.wait_with_output().unwrap(), 1);
    let name = format!("(process {}) ended with signal: 9", workers[1]);
    assert!(
        words.contains(&name) && words.contains("can be started again"),
        "{words}"
    );
    let left: Vec<_> = std::fs::read_dir(&folder.0).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
    assert!(workers.iter().all(|worker| children(*worker).is_empty()));
    for worker in workers {
        assert!(!std::path::Path::new(&format!("/proc/{worker}/task")).exists());
    }
}

#[test]
fn ctrl_c_leaves_the_output_as_it_was() {
    let folder = Folder::new("interrupt");
    let (input, output) = (folder.path("in"), folder.path("out"));
    assert!(dunlin(&["sort", "make", &input, "--records", "1000000"])
        .status
        .success());
    let child = Command::new(DUNLIN)
        .args(["sort", "run", &input, &output, "--memory", "8MiB"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    while children(child.id()).len() < 4 {
        assert!(Instant::now() < until, "no workers");
        std::thread::sleep(Duration::from_millis(1));
    }
    kill_process(Pid::from_raw(child.id() as i32).unwrap(), Signal::INT).unwrap();
    failure(&child.wait_with_output().unwrap(), 130);
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 1);
}

#[test]
fn wrong_calls_say_what_is_wrong() {
    let folder = Folder::new("wrong");
    let (odd, output) = (folder.path("odd"), folder.path("out"));
    std::fs::write(&odd, [7; 250]).unwrap();
    let words = failure(&dunlin(&["sort", "run", &odd, &output]), 2);
    assert!(
        words.contains("is 250 bytes") && words.contains("sort make"),
        "{words}"
    );
    let words = failure(&dunlin(&["sort", "check", &odd]), 2);
    assert!(words.contains("50 bytes are left over"), "{words}");
    let words = failure(&dunlin(&["sort", "run", &folder.path("no"), &output]), 1);
    assert!(words.contains("No such file"), "{words}");
    for wrong in [
        ["--workers", "0"],
        ["--workers", "65"],
        ["--device", "nonsense"],
    ] {
        failure(
            &dunlin(&[&["sort", "run", &odd, &output], &wrong[..]].concat()),
            2,
        );
    }
    let nowhere = folder.path("nowhere/out");
    assert!(dunlin(&["sort", "make", &odd, "--records", "10"])
        .status
        .success());
    let few = ["--workers", "8", "--memory", "1MiB"];
    let words = failure(
        &dunlin(&[&["sort", "run", &odd, &output], &few[..]].concat()),
        2,
    );
    assert!(
        words.contains("bytes for 8 workers; give at least"),
        "{words}"
    );
    let words = failure(&dunlin(&["sort", "run", &odd, &nowhere]), 1);
    assert!(words.contains("nowhere"), "{words}");
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 1);
}
