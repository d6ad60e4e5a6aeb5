//! The other process: the test binary again, told by an environment variable what to be, talking over its pipes.
#![allow(dead_code, missing_docs, unreachable_pub)]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use dunlin_ring::{Offer, OFFER_BYTES};

const ROLE: &str = "DUNLIN_RING_TEST_ROLE";

/// The role of this process, when it is the other one.
pub fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// A process that runs the test `name` in a role. Killed when dropped.
pub struct Other {
    pub child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Other {
    pub fn start(name: &str, role: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    pub fn say(&mut self, line: &str) {
        writeln!(self.input, "@{line}").unwrap();
        self.input.flush().unwrap();
    }

    /// The next line that is meant for us; the test harness writes others.
    pub fn hear(&mut self) -> String {
        hear(&mut self.output)
    }

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

fn hear(from: &mut impl BufRead) -> String {
    loop {
        let mut line = String::new();
        assert!(from.read_line(&mut line).unwrap() > 0, "the other is gone");
        if let Some(at) = line.find('@') {
            return line[at + 1..].trim_end().to_owned();
        }
    }
}

/// In the other process: a line for the first.
pub fn say(line: &str) {
    println!("@{line}");
    std::io::stdout().flush().unwrap();
}

/// In the other process: the next line of the first.
pub fn listen() -> String {
    hear(&mut std::io::stdin().lock())
}

pub fn write_offer(offer: &Offer) -> String {
    offer.encode().iter().map(|b| format!("{b:02x}")).collect()
}

pub fn read_offer(hex: &str) -> Offer {
    let mut bytes = [0; OFFER_BYTES];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[index * 2..index * 2 + 2], 16).unwrap();
    }
    Offer::decode(&bytes)
}
