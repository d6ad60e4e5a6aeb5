//! When a work request counts as lost (Flor §5, §6).

mod selective;

pub use selective::{Selective, SelectiveParameters};

/// Decides what is lost, and what a completion of the NIC means.
pub trait Reliability: std::fmt::Debug + Send {
    /// Whether a completion without error says that the peer has the bytes, as RC's does. Otherwise the peer's software
    /// acknowledges.
    fn completion_acknowledges(&self) -> bool;

    /// An acknowledgement took so long: a round trip and what the receiver kept it back for. Formula (1) leaves that
    /// out, and a timeout must not: a receiver whose thread is off its core is late, not gone.
    fn measured(&mut self, waited_ns: u64);

    /// How long a work request may stay without acknowledgement that has timed out so often before, or `None` where the
    /// NIC looks after it.
    fn timeout_ns(&self, timeouts: u32) -> Option<u64>;

    /// Timeouts in a row of one work request after which its queue pair is given up for a backup.
    fn max_timeouts(&self) -> u32;

    /// The same where there is no backup, so that the connection is lost with its queue pair: a peer whose process
    /// stands still for a while looks like a queue pair that is dead, and nothing is won by giving up.
    fn last_timeouts(&self) -> u32;

    /// A work request is lost when one that was posted so many later was acknowledged.
    fn reordering(&self) -> u64;
}

/// RC: the NIC repeats, a few times (§6). What is left then goes over a backup queue pair.
#[derive(Clone, Copy, Debug)]
pub struct Hardware;

impl Hardware {
    /// Retries of the NIC before its queue pair fails: with one, large incasts switch too often (§6).
    pub const RETRIES: u8 = 2;
    /// Backup queue pairs of a connection (§6).
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
