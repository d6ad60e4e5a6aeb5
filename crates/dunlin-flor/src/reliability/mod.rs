//! When a work request is considered lost (Flor §5, §6).

mod selective;

pub use selective::{Selective, SelectiveParameters};

/// Decides what is lost, and what a completion of the NIC means.
pub trait Reliability: std::fmt::Debug + Send {
    /// Whether a successful completion means that the peer has the bytes, as RC's does. Otherwise the peer's software
    /// acknowledges.
    fn completion_acknowledges(&self) -> bool;

    /// Records how long an acknowledgement took: the round trip plus the time for which the receiver delayed it.
    /// Formula (1) excludes the latter, but a timeout must include it: a receiver whose thread is off its core is late,
    /// not gone.
    fn measured(&mut self, waited_ns: u64);

    /// How long a work request that has already timed out this many times may remain without acknowledgement, or `None`
    /// if the NIC takes care of that.
    fn timeout_ns(&self, timeouts: u32) -> Option<u64>;

    /// Number of consecutive timeouts of one work request after which its queue pair is given up for a backup.
    fn max_timeouts(&self) -> u32;

    /// The same without a backup, where the connection is lost with its queue pair: a peer whose process is stopped for
    /// a while looks like a dead queue pair, and nothing is gained by giving up.
    fn last_timeouts(&self) -> u32;

    /// A work request is lost when one that was posted this many later was acknowledged.
    fn reordering(&self) -> u64;
}

/// RC: the NIC retries a few times (§6). What then remains is sent over a backup queue pair.
#[derive(Clone, Copy, Debug)]
pub struct Hardware;

impl Hardware {
    /// Number of retries of the NIC before its queue pair fails: with one, large incasts switch too often (§6).
    pub const RETRIES: u8 = 2;
    /// Number of backup queue pairs of a connection (§6).
    pub const BACKUPS: usize = 2;
}

impl Reliability for Hardware {
    fn completion_acknowledges(&self) -> bool {
        true
    }

    fn measured(&mut self, _: u64) {}

    fn timeout_ns(&self, _: u32) -> Option<u64> {
        None
    }

    fn max_timeouts(&self) -> u32 {
        u32::MAX
    }

    fn last_timeouts(&self) -> u32 {
        u32::MAX
    }

    fn reordering(&self) -> u64 {
        u64::MAX
    }
}
