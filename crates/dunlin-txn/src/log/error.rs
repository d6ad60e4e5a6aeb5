//! Why there is no log.

use std::io;
use std::path::PathBuf;

/// Why a machine cannot keep its log in a directory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// The system refused.
    #[error("{}: cannot {what}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What was to be done.
        what: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// Another process, or another machine of this one, has it.
    #[error("{}: in use by a machine that runs; end that one, or give each machine a directory of its own",
        directory.display())]
    InUse {
        /// The directory.
        directory: PathBuf,
    },
    /// There is something in it that is no log.
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
        /// Whose log it is.
        found: String,
        /// Who asks.
        wanted: String,
    },
    /// The membership has another database.
    #[error("{}: the log of another database than the membership has; give the directory or the membership that \
        belong together", directory.display())]
    OtherDatabase {
        /// The directory.
        directory: PathBuf,
    },
    /// The membership has no database.
    #[error("{}: the log of a database that the membership does not know: it would be begun anew. Give the \
        membership that the database had, or an empty directory to begin another", directory.display())]
    NoDatabase {
        /// The directory.
        directory: PathBuf,
    },
    /// What was written is not there any more.
    #[error("{}: damaged at byte {offset}: {why}. If the other machines have all, move {} away: this one copies from \
        them then", file.display(), directory.display())]
    Damaged {
        /// The directory.
        directory: PathBuf,
        /// The file.
        file: PathBuf,
        /// Where in it.
        offset: u64,
        /// What is wrong.
        why: String,
    },
    /// What is in the log does not fit into the tables, or is of another order than a machine can have written.
    #[error("{}: cannot be executed again: {why}", directory.display())]
    Replay {
        /// The directory.
        directory: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The first entry could not be written.
    #[error("{}: the log has failed; the message before this one says why", directory.display())]
    Failed {
        /// The directory.
        directory: PathBuf,
    },
    /// The thread that writes did not start.
    #[error("no thread that writes the log: {0}")]
    Thread(io::Error),
}
