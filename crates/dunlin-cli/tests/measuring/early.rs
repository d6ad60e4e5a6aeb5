//! Commands that are interrupted before they have measured what they compare, or while nobody answers them.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{kill_process, kill_process_group, Pid, Signal};
use serde_json::Value;

use crate::common::{stat, Serving, DUNLIN};
use crate::interrupts::{read_beside, wait_for};
use crate::left_of_group;

/// A command with its processes, which are not left behind.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        if self.0.try_wait().is_ok_and(|ended| ended.is_none()) {
            let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
            let _ = self.0.wait();
        }
    }
}

/// Processor time that a process has had, in hundredths of a second.
fn ticks(process: &str) -> u64 {
    let of = |fields: Vec<String>| fields[11].parse::<u64>().ok();
    stat(process).and_then(of).unwrap_or(0)
}

impl Running {
    fn start(arguments: &[&str]) -> Self {
        let child = Command::new(DUNLIN)
            .args(arguments)
            .process_group(0)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        Self(child.expect("dunlin runs"))
    }

    /// Waits until a process that it has started has worked for so long.
    fn works(&self, least: u64) {
        let own = self.0.id().to_string();
        wait_for(|| {
            let all = left_of_group(self.0.id());
            let mut others = all.iter().filter(|process| **process != own);
            others.any(|process| ticks(process) >= least).then_some(())
        });
    }

    /// Interrupts all of it, as a terminal does; what it printed, its words, and how it ended.
    fn interrupted(mut self) -> (String, String, Option<i32>) {
        let output = read_beside(self.0.stdout.take().expect("its output"));
        let words = read_beside(self.0.stderr.take().expect("its words"));
        kill_process_group(Pid::from_child(&self.0), Signal::INT).expect("it runs");
        let code = wait_for(|| self.0.try_wait().expect("it is ours")).code();
        let [output, words] = [output, words].map(|text| text.join().expect("no panic"));
        (output, words, code)
    }
}

/// The report of a command that was interrupted, if there was anything to report.
fn report((output, words, code): (String, String, Option<i32>)) -> Option<Value> {
    assert_eq!(code, Some(130), "{output}{words}");
    assert!(words.contains("interrupted"), "{words}");
    (!output.is_empty()).then(|| serde_json::from_str(&output).expect("a report"))
}

#[test]
fn what_an_interrupt_cut_short_is_not_compared() {
    let plausible = |figure: &Value| figure.as_f64().is_some_and(|one| one > 1e-3 && one < 1e3);
    for least in [2, 12] {
        let rpc = ["perf", "rpc", "--seconds", "600", "--json", "--against"];
        let running = Running::start(&[&rpc[..], &["plain,flock,fasst"]].concat());
        running.works(least);
        if let Some(report) = report(running.interrupted()) {
            let rounds = report["rounds"].as_u64();
            for other in report["against"].as_array().expect("a list") {
                assert!(plausible(&other["ratio"]), "{report}");
                assert_eq!(
                    other.get("ratio_low").is_some(),
                    rounds >= Some(6),
                    "{report}"
                );
            }
        }
        let running = Running::start(&[&rpc[..], &["limits"]].concat());
        running.works(least);
        if let Some(report) = report(running.interrupted()) {
            assert!(report["ratio"]["rate"].as_f64() > Some(1e-4), "{report}");
        }
        let ring = ["perf", "ring", "--seconds", "600", "--json", "--design"];
        let running = Running::start(&[&ring[..], &["rb2,farm,l5"]].concat());
        running.works(least);
        if let Some(report) = report(running.interrupted()) {
            for design in &report["designs"].as_array().expect("a list")[1..] {
                assert!(plausible(&design["over_first"]), "{report}");
            }
        }
    }
}

#[test]
fn a_demo_that_is_interrupted_shows_no_figures_of_what_it_left_out() {
    let demo = ["demo", "--seconds", "600", "--json", "--what"];
    let running = Running::start(&[&demo[..], &["stream"]].concat());
    running.works(20);
    let found = report(running.interrupted()).expect("a report");
    assert!(found["bytes_per_s"].as_f64() > Some(0.0), "{found}");
    assert!(found["tcp_bytes_per_s"].is_null(), "{found}");
    let running = Running::start(&[&demo[..], &["fs"]].concat());
    running.works(20);
    let found = report(running.interrupted()).expect("a report");
    assert!(found["files"].as_u64() > Some(0), "{found}");
    for key in ["read_per_s", "back_ms", "files_after"] {
        assert!(found[key].is_null(), "{key}: {found}");
    }
    // While accounts are opened: no money is missed that was never there.
    let running = Running::start(&[&demo[..], &["txn", "--entries", "1000000"]].concat());
    running.works(20);
    assert_eq!(report(running.interrupted()), None);
}

#[test]
fn a_phase_that_takes_long_ends_on_an_interrupt() {
    let meta = [
        "perf",
        "meta",
        "--clients",
        "2",
        "--files",
        "10000000",
        "--json",
    ];
    let running = Running::start(&meta);
    running.works(20);
    let found = report(running.interrupted()).expect("a report");
    let [create, remove] = &found["phases"].as_array().expect("phases")[..] else {
        panic!("{found}");
    };
    assert_eq!(remove["name"], "remove", "{found}");
    assert!(create["operations"].as_u64() > Some(0), "{found}");
    assert_eq!(create["operations"], remove["operations"], "{found}");
    let transfer = [
        "perf",
        "transfer",
        "--size",
        "64KiB",
        "--turns",
        "4000000000",
    ];
    let running = Running::start(&[&transfer[..], &["--json"]].concat());
    let own = running.0.id().to_string();
    wait_for(|| (ticks(&own) > 50).then_some(()));
    let found = report(running.interrupted()).expect("a report");
    assert!(found["turns"].as_u64() > Some(0), "{found}");
}

#[test]
fn a_server_that_stands_still_keeps_nobody_from_the_end() {
    for (command, more) in [
        ("rpc", &[][..]),
        ("rpc", &["--outstanding", "8"]),
        ("typed", &[]),
        ("typed", &["--outstanding", "8"]),
    ] {
        let server = Serving::start("echo", &[]);
        let perf = ["perf", command, "--address", server.address()];
        let long = ["--deadline", "2", "--seconds", "600", "--json"];
        let running = Running::start(&[&perf[..], &long, more].concat());
        let process = server.process().to_string();
        wait_for(|| (ticks(&process) > 20).then_some(()));
        let process = Pid::from_raw(server.process() as i32).expect("a process");
        kill_process(process, Signal::STOP).expect("it runs");
        // So that a call is out that is not answered.
        std::thread::sleep(Duration::from_millis(300));
        let (output, words, code) = running.interrupted();
        assert_eq!(code, Some(1), "{output}{words}");
        assert!(words.contains("no response within 2s"), "{words}");
        // In the warm-up before a slice a call that fails ends it all.
        if output.is_empty() {
            continue;
        }
        assert!(words.contains("calls failed, the first with: "), "{words}");
        let report: Value = serde_json::from_str(&output).expect("a report");
        assert!(report["errors"].as_u64() > Some(0), "{report}");
        // A call that was given up after its deadline is no measured one.
        assert!(
            report["latency_ns"]["max"].as_u64() < Some(2_000_000_000),
            "{report}"
        );
    }
}
