//! The peer process as seen by the side that started it.

use std::io::{BufRead, BufReader, Write};
use std::marker::PhantomData;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::{Answer, AnswerOf, Order, OrderOf, Role};
use crate::commands::Failure;

/// The process. It ends when this value is dropped, or with this process, however that ends: its standard input closes
/// then.
#[derive(Debug)]
pub struct Peer<R> {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    role: PhantomData<R>,
}

impl<R: Role> Peer<R> {
    /// Starts it.
    ///
    /// # Errors
    /// When the process cannot be started.
    pub fn start() -> Result<Self, Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["perf", R::COMMAND])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        match output {
            Some(output) => Ok(Self {
                child,
                input,
                output: BufReader::new(output),
                role: PhantomData,
            }),
            None => Err(wrong::<R>("has no standard output")),
        }
    }

    /// Has the peer open its end; returns its offer.
    ///
    /// # Errors
    /// When it cannot.
    pub fn open(&mut self, opening: R::Opening) -> Result<R::Offer, Failure> {
        match self.ask(&Order::Open(opening))? {
            Answer::Offer(offer) => Ok(offer),
            other => Err(unexpected::<R>(&other)),
        }
    }

    /// Has the peer connect its end to this one.
    ///
    /// # Errors
    /// When it cannot.
    pub fn connect(&mut self, offer: R::Offer) -> Result<(), Failure> {
        self.ready(&Order::Connect(offer))
    }

    /// Has it do its part from now on.
    ///
    /// # Errors
    /// When it is gone.
    pub fn begin(&mut self) -> Result<(), Failure> {
        self.ready(&Order::Begin)
    }

    /// Has it stop, and waits until it has: it sleeps then.
    ///
    /// # Errors
    /// When its part failed, or it is gone.
    pub fn end(&mut self) -> Result<R::Ended, Failure> {
        match self.ask(&Order::End)? {
            Answer::Ended(said) => Ok(said),
            other => Err(unexpected::<R>(&other)),
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
        Err(wrong::<R>(&format!("ended with {status}")))
    }

    fn ready(&mut self, order: &OrderOf<R>) -> Result<(), Failure> {
        match self.ask(order)? {
            Answer::Ready => Ok(()),
            other => Err(unexpected::<R>(&other)),
        }
    }

    fn ask(&mut self, order: &OrderOf<R>) -> Result<AnswerOf<R>, Failure> {
        let gone = || wrong::<R>("has ended");
        let mut line = serde_json::to_string(order).map_err(Failure::new)?;
        line.push('\n');
        let input = self.input.as_mut().ok_or_else(gone)?;
        input.write_all(line.as_bytes()).map_err(|_| gone())?;
        line.clear();
        if self.output.read_line(&mut line)? == 0 {
            return Err(gone());
        }
        match serde_json::from_str(&line).map_err(Failure::new)? {
            Answer::Failed(why) => Err(Failure::new(format!("{}: {why}", R::WHO))),
            answer => Ok(answer),
        }
    }
}

fn wrong<R: Role>(what: &str) -> Failure {
    Failure::new(format!("{} {what}", R::WHO))
}

fn unexpected<R: Role>(answer: &AnswerOf<R>) -> Failure {
    wrong::<R>(&format!("sent an unexpected answer: {answer:?}"))
}

impl<R> Drop for Peer<R> {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.child.wait();
    }
}
