//! The passive side as the active one sees it: a process of this program, told what to do by lines of JSON.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde::{Deserialize, Serialize};

use super::endpoint::Offer;
use super::Plan;
use crate::commands::Failure;

/// What the passive side is told.
#[derive(Debug, Serialize, Deserialize)]
pub enum Order {
    /// Open a device and make the other endpoint.
    Open {
        /// The device's name.
        device: String,
        /// What will be measured.
        plan: Plan,
        /// The core to stay on.
        core: Option<usize>,
    },
    /// Join it to ours.
    Connect(Offer),
    /// Answer what comes.
    Begin,
    /// Stop answering.
    End,
}

/// What it says.
#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    /// Where it is.
    Offer(Offer),
    /// The order is carried out, or being carried out.
    Ready,
    /// It answers no more.
    Ended,
    /// It cannot.
    Failed(String),
}

/// The process of the passive side. It ends when this value is dropped, or with this process, however that ends: its standard
/// input closes then.
#[derive(Debug)]
pub struct Peer {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Peer {
    /// Starts it.
    ///
    /// # Errors
    /// When the process cannot be started.
    pub fn start() -> Result<Self, Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["perf", "verbs-peer"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        match output {
            Some(output) => Ok(Self {
                child,
                input,
                output: BufReader::new(output),
            }),
            None => Err(Failure::new("the peer process has no standard output")),
        }
    }

    /// Has it make its endpoint.
    ///
    /// # Errors
    /// When it cannot.
    pub fn open(
        &mut self,
        device: &str,
        plan: Plan,
        core: Option<usize>,
    ) -> Result<Offer, Failure> {
        let device = device.to_string();
        match self.ask(&Order::Open { device, plan, core })? {
            Answer::Offer(offer) => Ok(offer),
            other => Err(unexpected(&other)),
        }
    }

    /// Has it join its endpoint to ours.
    ///
    /// # Errors
    /// When it cannot.
    pub fn connect(&mut self, offer: Offer) -> Result<(), Failure> {
        self.ready(&Order::Connect(offer))
    }

    /// Has it answer from now on; where the test is one-sided it sleeps on.
    ///
    /// # Errors
    /// When it is gone.
    pub fn begin(&mut self) -> Result<(), Failure> {
        self.ready(&Order::Begin)
    }

    /// Has it stop, and waits until it has: it sleeps then.
    ///
    /// # Errors
    /// When a request of its own failed, or it is gone.
    pub fn end(&mut self) -> Result<(), Failure> {
        match self.ask(&Order::End)? {
            Answer::Ended => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Ends it and waits for it.
    ///
    /// # Errors
    /// When it ends otherwise than asked.
    pub fn stop(mut self) -> Result<(), Failure> {
        self.input = None;
        let status = self.child.wait()?;
        if status.success() {
            return Ok(());
        }
        Err(Failure::new(format!(
            "the peer process ended with {status}"
        )))
    }

    fn ready(&mut self, order: &Order) -> Result<(), Failure> {
        match self.ask(order)? {
            Answer::Ready => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    fn ask(&mut self, order: &Order) -> Result<Answer, Failure> {
        let gone = || Failure::new("the peer process is gone");
        let mut line = serde_json::to_string(order).map_err(Failure::new)?;
        line.push('\n');
        let input = self.input.as_mut().ok_or_else(gone)?;
        input.write_all(line.as_bytes()).map_err(|_| gone())?;
        line.clear();
        if self.output.read_line(&mut line)? == 0 {
            return Err(gone());
        }
        match serde_json::from_str(&line).map_err(Failure::new)? {
            Answer::Failed(why) => Err(Failure::new(format!("the peer process: {why}"))),
            answer => Ok(answer),
        }
    }
}

fn unexpected(answer: &Answer) -> Failure {
    Failure::new(format!("the peer process gave a wrong answer: {answer:?}"))
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.child.wait();
    }
}
