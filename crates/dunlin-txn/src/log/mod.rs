//! What a machine has on its disk: the *log* of all that its participants must not lose, and *snapshots* that bound it.
//!
//! An [`Entry`] is one thing that a participant has done. Entries of many transactions leave together, as a *group*:
//! one frame with length, sequence number and checksum, one write, one `fdatasync`. A group is written when the one
//! before it is on the disk, so only the last one can be torn: what is wrong before it is damage. The position of an
//! entry is the sequence number of its group, and what was done with it may be told when that group is on the disk.
//!
//! `frame` is the format, `entry` what is in it, `directory` the files, and `file` the thread
//! that writes. `docs/transactions.md` has the contract.

mod directory;
mod entry;
mod error;
mod file;
mod frame;
#[cfg(test)]
mod tests;
mod unsynced;

use std::fmt;

pub(crate) use directory::{Directory, Identity};
pub use entry::Entry;
pub use error::LogError;
pub use file::LogStatistics;
pub(crate) use file::{Appender, LogFile, Shared};
pub use unsynced::Unsynced;

/// Where entries go.
pub trait Append: fmt::Debug + Send + Sync {
    /// Takes an entry behind all that it was given before, and returns its position. What is done may be seen by others
    /// afterwards, and told when the position is safe.
    fn append(&mut self, entry: &Entry) -> u64;
}
