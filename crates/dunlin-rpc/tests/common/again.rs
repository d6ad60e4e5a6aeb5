//! Another process of a test: this program again, which runs nothing but its test `another_process`.

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};

/// The other process, which ends with the test.
pub(crate) struct Again {
    pub(crate) child: Child,
    pub(crate) lines: Lines<BufReader<ChildStdout>>,
}

impl Again {
    /// Starts it with these environment variables, and a standard input that ends with this process.
    pub(crate) fn new(variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "another_process", "--nocapture"])
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// Returns the next line that contains this.
    pub(crate) fn says(&mut self, what: &str) -> String {
        let mut lines = self.lines.by_ref().map(Result::unwrap);
        lines.find(|line| line.contains(what)).unwrap()
    }
}

impl Drop for Again {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
