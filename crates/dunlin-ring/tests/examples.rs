//! The examples run, as their users run them: two processes each.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A hang is a failure.
const LONGEST: Duration = Duration::from_secs(60);

/// Runs an example that cargo has built beside the tests.
fn run(name: &str, arguments: &[&str]) -> String {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().unwrap().parent().unwrap().join("examples");
    let mut child = Command::new(folder.join(name))
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{name}, which `cargo test` builds: {error}"));
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > LONGEST {
            child.kill().unwrap();
            panic!("{name} hangs");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = child.wait_with_output().unwrap();
    let words = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {words}{errors}");
    words
}

#[test]
fn grpc() {
    assert!(run("grpc", &["200"]).contains("200 calls without an error"));
}

#[test]
fn network_function() {
    for design in ["rb2", "farm", "socksdirect", "l5", "mvapich"] {
        assert!(run("nf", &["20000", design]).contains("20000 packets"));
    }
}

#[test]
fn network_function_from_a_file() {
    // A pcap file with one packet, big-endian, in nanoseconds: 20 bytes of IPv4 and nothing else.
    let mut file = vec![0xa1, 0xb2, 0x3c, 0x4d, 0, 2, 0, 4];
    file.extend([0; 8]);
    file.extend([0, 0, 255, 255, 0, 0, 0, 101]);
    file.extend([0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 20, 0, 0, 0, 20, 0x45]);
    file.extend([0; 19]);
    let name = format!("dunlin-nf-{}.pcap", std::process::id());
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, file).unwrap();
    let words = run("nf", &["20000", "rb2", path.to_str().unwrap()]);
    std::fs::remove_file(&path).unwrap();
    assert!(words.contains("20000 packets"));
}

#[test]
fn database() {
    for design in ["rb2", "farm", "socksdirect", "l5", "mvapich"] {
        assert!(run("ycsb", &["20000", design]).contains("20000 reads"));
    }
}
