//! The errors of a log.

use std::io;
use std::path::PathBuf;

/// Why a machine cannot keep its log in a directory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// An I/O error.
    #[error("{}: cannot {what}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The operation.
        what: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// Another process, or another machine of this one, uses the directory.
    #[error("{}: in use by a machine that runs; end that one, or give each machine a directory of its own",
        directory.display())]
    InUse {
        /// The directory.
        directory: PathBuf,
    },
    /// The directory contains something that is not a log.
    #[error("{}: neither empty nor the log of a machine; give a directory of its own", directory.display())]
    Foreign {
        /// The directory.
        directory: PathBuf,
    },
    /// It is the log of another machine, or of one with other tables.
    #[error("{}: the log of another machine: {found}; this one is {wanted}. Give each machine the directory that it \
        had, and the settings that it had", directory.display())]
    OtherMachine {
        /// The directory.
        directory: PathBuf,
        /// The owner of the log.
        found: String,
        /// The machine that opened it.
        wanted: String,
    },
    /// The membership belongs to another database.
    #[error("{}: the log of another database than the membership has; give the directory or the membership that \
        belong together", directory.display())]
    OtherDatabase {
        /// The directory.
        directory: PathBuf,
    },
    /// The membership service has no database.
    #[error("{}: the log of a database that the membership does not know: it would be begun anew. Give the \
        membership that the database had, or an empty directory to begin another", directory.display())]
    NoDatabase {
        /// The directory.
        directory: PathBuf,
    },
    /// The log is damaged: what was written can no longer be read.
    #[error("{}: damaged at byte {offset}: {why}. If the other machines have all, move {} away: this one copies from \
        them then", file.display(), directory.display())]
    Damaged {
        /// The directory.
        directory: PathBuf,
        /// The file.
        file: PathBuf,
        /// The offset in the file.
        offset: u64,
        /// The problem.
        why: String,
    },
    /// The log's contents do not fit into the tables, or are in an order that no machine can have written.
    #[error("{}: cannot be executed again: {why}", directory.display())]
    Replay {
        /// The directory.
        directory: PathBuf,
        /// The problem.
        why: String,
    },
    /// The first entry could not be written.
    #[error("{}: the log has failed; the message before this one says why", directory.display())]
    Failed {
        /// The directory.
        directory: PathBuf,
    },
    /// The writing thread could not be started.
    #[error("no thread that writes the log: {0}")]
    Thread(io::Error),
}
