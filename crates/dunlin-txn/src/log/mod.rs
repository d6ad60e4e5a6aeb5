//! What a machine stores on its disk: the *log* of everything that its participants must not lose, and *snapshots* that
//! bound its length.
//!
//! An [`Entry`] is one action of a participant. Entries of many transactions are written together, as a *group*: one
//! frame with length, sequence number and checksum, one write, one `fdatasync`. A group is written only when the
//! previous one is on the disk, so only the last one can be torn: an invalid group before it is damage. The position of
//! an entry is the sequence number of its group, and the result of the action may be reported when that group is on the
//! disk.
//!
//! `frame` has the format, `entry` the contents, `directory` the files, and `file` the thread that writes.
//! `docs/transactions.md` describes the contract.

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

/// The destination of entries.
pub trait Append: fmt::Debug + Send + Sync {
    /// Appends an entry behind all previous ones, and returns its position. Afterwards the action may become visible to
    /// others; it may be reported when the position is durable.
    fn append(&mut self, entry: &Entry) -> u64;
}
