//! What the tests of the command share: running it, reading its JSON object, a server that ends with the test.
#![allow(dead_code, unreachable_pub)]

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};

use serde_json::Value;

/// The program under test.
pub const DUNLIN: &str = env!("CARGO_BIN_EXE_dunlin");

/// Runs the command to its end.
pub fn dunlin(arguments: &[&str]) -> Output {
    let output = Command::new(DUNLIN).args(arguments).output();
    output.expect("dunlin runs")
}

/// The same with bytes on standard input.
pub fn dunlin_with_input(arguments: &[&str], input: Vec<u8>) -> Output {
    let mut child = Command::new(DUNLIN)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("dunlin runs");
    let mut to = child.stdin.take().expect("standard input");
    let writing = std::thread::spawn(move || to.write_all(&input));
    let output = child.wait_with_output().expect("dunlin ends");
    writing.join().expect("no panic").expect("all was read");
    output
}

/// Most memory that a command with endless input may use: well over the longest message.
const MOST_RESIDENT_KIBIBYTES: u64 = 512 << 10;

/// Runs a command that may have endless input to its end. One that uses too much memory or time is ended, by its id,
/// and the test fails.
pub fn bounded(arguments: &[&str], input: Stdio) -> Output {
    let mut child = Command::new(DUNLIN)
        .args(arguments)
        .stdin(input)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("dunlin runs");
    let started = std::time::Instant::now();
    while child.try_wait().expect("its state").is_none() {
        let used = resident_kibibytes(child.id());
        let over = started.elapsed() > std::time::Duration::from_secs(120);
        if over || used > MOST_RESIDENT_KIBIBYTES {
            let _ = child.kill();
            let _ = child.wait();
            panic!("{arguments:?}: {used} KiB after {:?}", started.elapsed());
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    child.wait_with_output().expect("dunlin ended")
}

fn resident_kibibytes(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    // None: it ends at this moment.
    number.unwrap_or(0)
}

/// Standard output as the one JSON object it must be.
pub fn object(output: &Output) -> Value {
    let text = String::from_utf8(output.stdout.clone()).expect("UTF-8");
    let value: Value =
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    assert!(value.is_object(), "{text}");
    value
}

/// Standard error of a command that must have failed with an exit code.
pub fn failure(output: &Output, code: i32) -> String {
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(words.starts_with("error: "), "{words}");
    assert!(!words.contains("panicked"), "{words}");
    words
}

/// What every measuring command prints, and that it measured something without errors.
pub fn assert_report(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report = object(output);
    for key in ["rate_per_s", "bytes_per_s", "seconds"] {
        let figure = report[key].as_f64();
        assert!(figure.is_some_and(|figure| figure > 0.0), "{key}: {report}");
    }
    for key in ["p50", "p99", "max"] {
        let ns = report["latency_ns"][key].as_u64();
        assert!(ns.is_some_and(|ns| ns > 0), "{key}: {report}");
    }
    // Few operations have none.
    let tail = &report["latency_ns"]["p999"];
    assert!(tail.is_null() || tail.as_u64() > Some(0), "{report}");
    for key in ["threads", "outstanding", "size"] {
        let number = report[key].as_u64();
        assert!(number.is_some_and(|number| number > 0), "{key}: {report}");
    }
    for key in ["device", "preset"] {
        assert!(report[key].is_string(), "{key}: {report}");
    }
    assert_eq!(report["errors"], 0, "{report}");
    assert_environment(&report);
    report
}

/// Where and when: a part of every object.
pub fn assert_environment(object: &Value) {
    let environment = &object["environment"];
    for key in ["version", "host", "kernel", "machine", "time"] {
        let text = environment[key].as_str();
        assert!(text.is_some_and(|text| !text.is_empty()), "{key}: {object}");
    }
    assert!(environment["cpus"].as_u64() > Some(0), "{object}");
}

/// What `--against limits` adds.
pub fn assert_against(report: &Value) {
    let limits = report["limits"].as_object().expect("limits");
    assert!(!limits.is_empty(), "{report}");
    for key in ["latency", "rate", "bandwidth"] {
        let ratio = report["ratio"][key].as_f64();
        assert!(ratio.is_some_and(|ratio| ratio > 0.0), "{key}: {report}");
    }
}

/// A server that ends with the test, however that ends: its standard input closes then.
pub struct Serving {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    address: String,
}

impl Serving {
    /// `dunlin serve SERVICE` on a free port, with further arguments.
    pub fn start(service: &str, arguments: &[&str]) -> Self {
        Self::start_at("dunlin://127.0.0.1:0", service, arguments)
    }

    /// The same on this address.
    pub fn start_at(listen: &str, service: &str, arguments: &[&str]) -> Self {
        let mut child = Command::new(DUNLIN)
            .args(["serve", service, "--listen", listen])
            .arg("--with-parent")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("dunlin runs");
        let input = child.stdin.take();
        let output = child.stdout.take().expect("standard output");
        let mut serving = Self {
            child,
            input,
            output: BufReader::new(output),
            address: String::new(),
        };
        let line = serving.line();
        let address = line.trim().strip_prefix("listening on ");
        serving.address = address
            .unwrap_or_else(|| panic!("it listens: {line}"))
            .into();
        serving
    }

    /// The next line that it prints.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        line
    }

    /// Where it listens.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Its process id.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Ends it as its owner would; it must agree.
    pub fn stop(mut self) {
        self.input = None;
        let status = self.child.wait().expect("it ends");
        assert!(status.success(), "{status}");
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A file that is removed with the test.
pub struct Scratch(pub PathBuf);

impl Scratch {
    /// One with these bytes.
    pub fn new(name: &str, bytes: &[u8]) -> Self {
        let name = format!("dunlin-test-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, bytes).expect("a temporary file");
        Self(path)
    }

    /// Its path.
    pub fn path(&self) -> &str {
        self.0.to_str().expect("UTF-8")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A folder that goes with the test.
pub struct Folder(pub PathBuf);

impl Folder {
    /// An empty one.
    pub fn new(name: &str) -> Self {
        let name = format!("dunlin-test-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).expect("a temporary folder");
        Self(path)
    }

    /// The path of something in it.
    pub fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The fields of `/proc/PID/stat` after the name, from the state on.
pub fn stat(process: &str) -> Option<Vec<String>> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, fields) = text.rsplit_once(") ")?;
    Some(fields.split_whitespace().map(str::to_owned).collect())
}

/// Looks until it is so.
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = std::time::Instant::now();
    while !is_so() {
        let waited = started.elapsed();
        assert!(waited < std::time::Duration::from_secs(60), "never: {what}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}
