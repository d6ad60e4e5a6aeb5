//! Measurements that are ended before their time: by their peer, or by Ctrl-C.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{kill_process_group, Pid, Signal};

use crate::common::{failure, stat, DUNLIN};
use crate::left_of_group;

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
pub(crate) fn wait_for<T>(mut look: impl FnMut() -> Option<T>) -> T {
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
        // What was asked for is not what was measured.
        assert!(report["seconds"].as_f64() < Some(600.0), "{report}");
        assert!(words.contains("interrupted"), "{words}");
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

/// One point that takes hours.
const LONG: &str = "[topology]\nswitch = \"z9264f\"\n[[topology.hosts]]\nname = \"server\"\n\
    [[topology.hosts]]\nname = \"clients\"\n[server]\nhost = \"server\"\n[[clients]]\nhosts = \"clients\"\n\
    [run]\nduration = \"100s\"\n";

/// Reads all of it on a thread of its own.
pub(crate) fn read_beside(mut from: impl Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = String::new();
        from.read_to_string(&mut text).expect("text");
        text
    })
}

/// What `dunlin lab` printed that was ended by SIGTERM in the middle of its work, on standard output and beside it.
fn ended_at_work(arguments: &[&str]) -> (String, String) {
    /// What does not end is not left behind.
    struct Ended(std::process::Child);
    impl Drop for Ended {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
    let child = Command::new(DUNLIN)
        .arg("lab")
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut child = Ended(child);
    let process = child.0.id();
    wait_for(|| {
        let fields = stat(&process.to_string())?;
        let ticks = fields[11].parse::<u64>().expect("a number");
        (ticks > 50).then_some(())
    });
    let process = Pid::from_raw(process as i32).expect("a process");
    // More is said than a pipe holds.
    let output = read_beside(child.0.stdout.take().expect("its output"));
    let words = read_beside(child.0.stderr.take().expect("its words"));
    rustix::process::kill_process(process, Signal::TERM).expect("it runs");
    let code = wait_for(|| child.0.try_wait().expect("it is ours")).code();
    let [output, words] = [output, words].map(|text| text.join().expect("no panic"));
    assert_eq!(code, Some(130), "{arguments:?}: {output}{words}");
    assert!(words.contains("interrupted"), "{words}");
    (output, words)
}

/// A run in virtual time is not waited for, and nothing is said of it.
#[test]
fn a_simulated_run_that_takes_long_is_left_where_it_is() {
    let folder = std::env::temp_dir().join(format!("dunlin-long-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = |name: &str| folder.join(name).display().to_string();
    let (file, capture) = (path("long.toml"), path("long.pcapng"));
    std::fs::write(&file, LONG).expect("the file is written");
    let run = ["run", &file, "--json", "--capture", &capture];
    let (output, words) = ended_at_work(&run);
    let outcome: serde_json::Value = serde_json::from_str(&output).expect("an outcome");
    assert_eq!(outcome["complete"], false, "{output}");
    assert_eq!(outcome["points"], serde_json::json!([]), "{output}");
    assert!(words.contains("which did not end"), "{words}");
    // A digest is for comparisons, and that of a part is like no other.
    let (output, _) = ended_at_work(&["run", &file]);
    assert!(!output.contains("digest"), "{output}");
    std::fs::remove_dir_all(&folder).expect("the folder goes");
    let figure = ["--threads", "1", "scalerpc-transactions"];
    let (output, _) = ended_at_work(&[&["score", "--json"], &figure[..]].concat());
    let card: serde_json::Value = serde_json::from_str(&output).expect("a scorecard");
    assert_eq!(card["complete"], false);
    let mut rows = card["rows"].as_array().expect("rows").iter();
    assert!(rows.all(|row| row["verdict"] == "not-run"), "{output}");
    let (output, _) = ended_at_work(&["fit", "cx3", "--operations", "1000000"]);
    assert_eq!(output, "");
}
