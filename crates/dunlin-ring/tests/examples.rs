//! The examples run, as their users run them: two processes each.

use std::process::Command;

/// Runs an example that cargo has built beside the tests.
fn run(name: &str, arguments: &[&str]) -> String {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().unwrap().parent().unwrap().join("examples");
    let output = Command::new(folder.join(name))
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("{name}, which `cargo test` builds: {error}"));
    let words = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {words}{errors}");
    words
}

#[test]
fn http() {
    assert!(run("http", &["2000"]).contains("2000 GETs without an error"));
}

#[test]
fn grpc() {
    assert!(run("grpc", &["200"]).contains("200 calls without an error"));
}
