//! Other processes, for the tests of several crates: the test binary again, told by an environment variable what to be,
//! talking over its pipes.
#![allow(dead_code, missing_docs, unreachable_pub)]

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const ROLE: &str = "DUNLIN_TEST_ROLE";

/// The role of this process and its argument, when it is another one.
pub fn role() -> Option<(String, String)> {
    let text = std::env::var(ROLE).ok()?;
    let (role, argument) = text.split_once(' ').unwrap_or((&text, ""));
    Some((role.to_owned(), argument.to_owned()))
}

/// A process that runs the test `name` in a role. Killed when dropped.
pub struct Other {
    pub child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Other {
    pub fn start(name: &str, role: &str, argument: &str) -> Self {
        Self::start_within(&[], name, role, argument)
    }

    /// By the words before its own, such as those that run it in a namespace.
    pub fn start_within(within: &[String], name: &str, role: &str, argument: &str) -> Self {
        let own = std::env::current_exe().unwrap();
        let mut words = within.iter().map(OsStr::new).chain([own.as_os_str()]);
        let mut child = Command::new(words.next().expect("its own"))
            .args(words)
            .args(["--exact", name, "--nocapture", "--test-threads=1"])
            .env(ROLE, format!("{role} {argument}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            input: child.stdin.take(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    pub fn say(&mut self, line: &str) {
        let input = self.input.as_mut().unwrap();
        writeln!(input, "@{line}").unwrap();
        input.flush().unwrap();
    }

    /// The next line that is meant for us; the test harness writes others.
    pub fn hear(&mut self) -> String {
        hear(&mut self.output).expect("the other process is gone")
    }

    /// Prints what it writes until it ends; whether its test has passed.
    pub fn watch(mut self) -> bool {
        for line in (&mut self.output).lines() {
            println!("{}", line.unwrap());
        }
        self.child.wait().unwrap().success()
    }

    /// Whether all of its threads are stopped. SIGSTOP may reach them a moment after it was sent.
    pub fn stands_still(&self) -> bool {
        let mut tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        tasks.all(|task| {
            let status = std::fs::read_to_string(task.unwrap().path().join("status"));
            // One that has ended meanwhile does nothing either.
            status.map_or(true, |status| status.contains("State:\tT"))
        })
    }

    /// SIGKILL; returns when it is gone.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn hear(from: &mut impl BufRead) -> Option<String> {
    loop {
        let mut line = String::new();
        if from.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if let Some(at) = line.find('@') {
            return Some(line[at + 1..].trim_end().to_owned());
        }
    }
}

/// In the other process: a line for the first.
pub fn say(line: &str) {
    println!("@{line}");
    std::io::stdout().flush().unwrap();
}

/// In the other process: the next line of the first; `None` when the first is gone.
pub fn listen() -> Option<String> {
    hear(&mut std::io::stdin().lock())
}
