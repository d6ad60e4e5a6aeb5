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
    #[error("{}: in use by a running machine; stop that machine, or give each machine its own directory",
        directory.display())]
    InUse {
        /// The directory.
        directory: PathBuf,
    },
    /// The directory contains something that is not a log.
    #[error("{}: neither empty nor a machine's log; use a separate directory", directory.display())]
    Foreign {
        /// The directory.
        directory: PathBuf,
    },
    /// It is the log of another machine, or of one with other tables.
    #[error(
        "{}: this is the log of another machine: {found}; this machine is {wanted}. Give each machine the directory \
         and the settings that it had before",
        directory.display()
    )]
    OtherMachine {
        /// The directory.
        directory: PathBuf,
        /// The owner of the log.
        found: String,
        /// The machine that opened it.
        wanted: String,
    },
    /// The membership belongs to another database.
    #[error(
        "{}: this log belongs to a different database than the membership; use the directory and the membership that \
         belong together",
        directory.display()
    )]
    OtherDatabase {
        /// The directory.
        directory: PathBuf,
    },
    /// The membership service has no database.
    #[error(
        "{}: this log belongs to a database that is not in the membership and would be started from scratch. Use the \
         database's previous membership, or an empty directory for a new database",
        directory.display()
    )]
    NoDatabase {
        /// The directory.
        directory: PathBuf,
    },
    /// The log is damaged: what was written can no longer be read.
    #[error(
        "{}: damaged at byte {offset}: {why}. If the other machines have all data, move {} away: this machine then \
         copies from them",
        file.display(),
        directory.display()
    )]
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
    #[error("{}: cannot replay the log: {why}", directory.display())]
    Replay {
        /// The directory.
        directory: PathBuf,
        /// The problem.
        why: String,
    },
    /// The first entry could not be written.
    #[error("{}: the log has failed; see the previous message for the reason", directory.display())]
    Failed {
        /// The directory.
        directory: PathBuf,
    },
    /// The writing thread could not be started.
    #[error("cannot start the thread that writes the log: {0}")]
    Thread(io::Error),
}
