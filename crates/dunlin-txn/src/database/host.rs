//! Where the program runs that uses the database: on a host of this world, or on a simulated one.

use std::fmt::Debug;
use std::io;

use dunlin_verbs::{random, thread::Running, Device, Work};

/// What a host gives to a program besides a network.
pub(super) trait Host: Debug + Send + Sync {
    /// Starts a thread, which nobody waits for.
    fn start(&self, name: &str, run: Box<dyn FnOnce() + Send>) -> io::Result<()>;
    /// A number that nobody else has, but for the same run of a simulation.
    fn number(&self) -> io::Result<u64>;
    /// Who is told what work takes, where cores are simulated.
    fn charge(&self) -> Option<fn(Work)>;
}

/// This world's.
#[derive(Debug)]
pub(super) struct Here;

impl Host for Here {
    fn start(&self, name: &str, run: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        Running::start(name.to_owned(), run).map(drop)
    }

    fn number(&self) -> io::Result<u64> {
        random::number()
    }

    fn charge(&self) -> Option<fn(Work)> {
        None
    }
}

/// The host of a device.
#[derive(Debug)]
pub(super) struct HostOf<D>(pub(super) D);

impl<D: Device> Host for HostOf<D> {
    fn start(&self, name: &str, run: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        self.0.spawn(name.to_owned(), None, run).map(drop)
    }

    fn number(&self) -> io::Result<u64> {
        self.0.seed().map_or_else(random::number, Ok)
    }

    fn charge(&self) -> Option<fn(Work)> {
        Some(D::charge)
    }
}
