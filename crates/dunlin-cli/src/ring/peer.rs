//! The consumer as the producer sees it: a process of this program, told what to do by lines of JSON.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde::{Deserialize, Serialize};

use super::Plan;
use crate::commands::Failure;
use crate::report::Tally;

/// Where one side is: the encoded offer of a ring's end or of a raw one.
pub type Offer = Vec<u8>;

/// What the consumer is told.
#[derive(Debug, Serialize, Deserialize)]
pub enum Order {
    /// Open a device and make the other end.
    Open {
        /// What will be measured.
        plan: Plan,
        /// The core to stay on.
        core: Option<usize>,
    },
    /// Join it to ours.
    Connect(Offer),
    /// Receive what comes.
    Begin,
    /// Stop receiving.
    End,
}

/// What it says.
#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    /// Where it is, and the pages below its array.
    Offer(Offer, String),
    /// The order is carried out, or being carried out.
    Ready,
    /// What it received; of the time only the latencies mean anything.
    Ended(Tally),
    /// It cannot.
    Failed(String),
}

/// The process of the consumer. It ends when this value is dropped, or with this process, however that ends: its standard input
/// closes then.
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
            .args(["perf", "ring-peer"])
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
            None => Err(Failure::new("the consumer has no standard output")),
        }
    }

    /// Has it make its end; says where that is and what pages it has.
    ///
    /// # Errors
    /// When it cannot.
    pub fn open(&mut self, plan: &Plan, core: Option<usize>) -> Result<(Offer, String), Failure> {
        let plan = plan.clone();
        match self.ask(&Order::Open { plan, core })? {
            Answer::Offer(offer, pages) => Ok((offer, pages)),
            other => Err(unexpected(&other)),
        }
    }

    /// Has it join its end to ours.
    ///
    /// # Errors
    /// When it cannot.
    pub fn connect(&mut self, offer: Offer) -> Result<(), Failure> {
        self.ready(&Order::Connect(offer))
    }

    /// Has it receive from now on.
    ///
    /// # Errors
    /// When it is gone.
    pub fn begin(&mut self) -> Result<(), Failure> {
        self.ready(&Order::Begin)
    }

    /// Has it stop, and waits until it has: it sleeps then.
    ///
    /// # Errors
    /// When its ring failed, or it is gone.
    pub fn end(&mut self) -> Result<Tally, Failure> {
        match self.ask(&Order::End)? {
            Answer::Ended(tally) => Ok(tally),
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
        Err(Failure::new(format!("the consumer ended with {status}")))
    }

    fn ready(&mut self, order: &Order) -> Result<(), Failure> {
        match self.ask(order)? {
            Answer::Ready => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    fn ask(&mut self, order: &Order) -> Result<Answer, Failure> {
        let gone = || Failure::new("the consumer's process is gone");
        let mut line = serde_json::to_string(order).map_err(Failure::new)?;
        line.push('\n');
        let input = self.input.as_mut().ok_or_else(gone)?;
        input.write_all(line.as_bytes()).map_err(|_| gone())?;
        line.clear();
        if self.output.read_line(&mut line)? == 0 {
            return Err(gone());
        }
        match serde_json::from_str(&line).map_err(Failure::new)? {
            Answer::Failed(why) => Err(Failure::new(format!("the consumer: {why}"))),
            answer => Ok(answer),
        }
    }
}

fn unexpected(answer: &Answer) -> Failure {
    Failure::new(format!("the consumer gave a wrong answer: {answer:?}"))
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.child.wait();
    }
}
