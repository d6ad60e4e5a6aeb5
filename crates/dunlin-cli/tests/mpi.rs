//! Jobs by the command: the example `heat` and small shell programs as ranks, and the measurement.

mod common;

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use common::{assert_environment, dunlin, object, DUNLIN};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketType};
use rustix::process::{kill_process, Pid, Signal};

fn shell(ranks: &str, options: &[&str], script: &str) -> std::process::Output {
    let mut arguments = vec!["mpi", "run", "-n", ranks];
    arguments.extend(options);
    arguments.extend(["--", "sh", "-c", script]);
    dunlin(&arguments)
}

#[test]
fn each_rank_knows_its_place() {
    let output = shell(
        "3",
        &["--prefix"],
        "echo $DUNLIN_MPI_RANK of $DUNLIN_MPI_SIZE",
    );
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["[0] 0 of 3", "[1] 1 of 3", "[2] 2 of 3"]);
}

#[test]
fn the_first_failure_ends_the_job_with_its_code() {
    // The others would run for an hour.
    let output = shell(
        "3",
        &[],
        "[ $DUNLIN_MPI_RANK = 1 ] && exit 7; exec sleep 3600",
    );
    assert_eq!(output.status.code(), Some(7));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("rank 1 (process "), "{text}");
    let output = shell(
        "2",
        &[],
        "[ $DUNLIN_MPI_RANK = 0 ] && kill -9 $$; exec sleep 3600",
    );
    assert_eq!(output.status.code(), Some(128 + 9));
    assert_eq!(
        dunlin(&["mpi", "run", "--", "/no/such/program"])
            .status
            .code(),
        Some(1)
    );
    assert_eq!(dunlin(&["mpi", "run", "-n", "2"]).status.code(), Some(2));
}

/// Runs a script that prints `up` as two ranks, interrupts the job so many times, and waits for the end of all that
/// holds its output.
fn interrupted(script: &str, times: usize) {
    let mut job = Command::new(DUNLIN)
        .args(["mpi", "run", "-n", "2", "--", "sh", "-c", script])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(job.stdout.take().unwrap()));
    for _ in 0..2 {
        assert_eq!(lines.next().unwrap().unwrap(), "up");
    }
    let id = Pid::from_raw(i32::try_from(job.id()).unwrap()).unwrap();
    for time in 0..times {
        if time > 0 {
            // What comes sooner is the same signal once more.
            std::thread::sleep(std::time::Duration::from_millis(400));
        }
        kill_process(id, Signal::INT).unwrap();
    }
    assert_eq!(job.wait().unwrap().code(), Some(130));
    assert!(lines.next().is_none());
}

#[test]
fn a_signal_ends_all_ranks() {
    interrupted("echo up; exec sleep 3600", 1);
}

#[test]
fn what_a_rank_has_started_ends_with_it() {
    interrupted("echo up; sleep 3600; true", 1);
    // Also what outlives the shell.
    interrupted("(trap '' TERM; echo up; sleep 3600); true", 1);
    let output = shell("2", &[], "sleep 3600 & exit 3");
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn a_second_signal_leaves_nobody_behind() {
    interrupted("trap '' INT TERM; echo up; while :; do sleep 1; done", 2);
}

#[test]
fn a_job_ends_when_nobody_reads_its_output() {
    let job =
        format!("'{DUNLIN}' mpi run --prefix -- sh -c 'while :; do echo x; sleep 0.01; done'");
    let output = Command::new("sh")
        .args(["-c", &format!("({job}; echo $? >&2) | head -1")])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr).trim(), "0");
    assert!(String::from_utf8_lossy(&output.stdout).ends_with("x\n"));
}

/// While a job runs, nobody but a process that is told of its port can get it.
#[test]
fn the_port_of_rank_0_is_held_for_it() {
    let mut job = Command::new(DUNLIN)
        .args(["mpi", "run", "-n", "1", "--", "sh", "-c"])
        .arg("echo $DUNLIN_MPI_ROOT; read end || true")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(job.stdout.take().unwrap()));
    let root = lines.next().unwrap().unwrap();
    let address: SocketAddr = root.strip_prefix("dunlin://").unwrap().parse().unwrap();
    // As a program that happens to choose it.
    let other = net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    assert_eq!(net::bind(&other, &address), Err(Errno::ADDRINUSE));
    // As rank 0 does.
    drop(TcpListener::bind(address).unwrap());
    drop(job.stdin.take());
    assert!(job.wait().unwrap().success());
}

/// The example that cargo has built beside the tests, if it has.
fn heat() -> Option<PathBuf> {
    let test = std::env::current_exe().ok()?;
    let example = test.parent()?.parent()?.join("examples/heat");
    example.exists().then_some(example)
}

#[test]
fn an_example_runs_as_a_job() {
    let Some(heat) = heat() else {
        println!("skipped: the example `heat` of dunlin-mpi is not built");
        return;
    };
    let heat = heat.to_string_lossy().into_owned();
    let output = dunlin(&["mpi", "run", "-n", "3", "--", &heat, "48", "20"]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        text.contains("3 ranks") && text.contains("equal to one loop"),
        "{text}"
    );
}

#[test]
fn messages_are_measured() {
    let measured = dunlin(&[
        "perf",
        "mpi",
        "-n",
        "3",
        "--size",
        "8,64K",
        "--seconds",
        "0.05",
        "--json",
    ]);
    let measured = object(&measured);
    assert_environment(&measured);
    for test in ["latency", "bandwidth", "allreduce"] {
        let points = measured[test].as_array().unwrap();
        assert_eq!(points.len(), 2, "{measured}");
        assert_eq!(
            (&points[0]["size"], &points[1]["size"]),
            (&8.into(), &65_536.into())
        );
    }
    assert!(
        measured["bandwidth"][1]["bytes_per_s"].as_f64() > Some(0.0),
        "{measured}"
    );
    assert!(
        measured["allreduce"][0]["p50_ns"].as_f64() > Some(0.0),
        "{measured}"
    );
}
