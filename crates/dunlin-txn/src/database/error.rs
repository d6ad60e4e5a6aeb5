//! The errors of opening a database and of committing a transaction.

use std::time::Duration;

use dunlin_rpc::{CallError, ConnectError};

use crate::error::TransactionError;
use crate::types::{Key, KeyTooLong, MachineId, TransactionId};
use crate::wire::Refusal;

/// Why a database cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// No address was given.
    #[error("no address given: a database needs the addresses of all its machines")]
    NoAddress,
    /// A machine cannot be reached.
    #[error("{address}: {source}")]
    Connect {
        /// Its address.
        address: String,
        /// The cause.
        source: Box<ConnectError>,
    },
    /// A machine does not describe its tables.
    #[error("cannot query {address}: {source}; is it a server of `dunlin serve store`?")]
    Ask {
        /// Its address.
        address: String,
        /// The cause.
        source: Box<CallError>,
    },
    /// A machine's description cannot be understood.
    #[error("{address} sent a description that this version does not support: {why}")]
    Description {
        /// Its address.
        address: String,
        /// The reason.
        why: String,
    },
    /// The addresses are not those of all machines of one database.
    #[error("{address} is {what}: give the address of each machine of one database exactly once")]
    Membership {
        /// The address of the machine.
        address: String,
        /// What it is instead.
        what: String,
    },
    /// There is no protocol of this name.
    #[error("unknown protocol '{0}'; available: fasst, flocktx, scaletx, scaletx-o, auto")]
    NoProtocol(String),
    /// A protocol needs access to the machines' memory, which this client does not get.
    #[error("the protocol '{protocol}' needs access to the memory of {address}: {source}")]
    OneSided {
        /// The protocol.
        protocol: &'static str,
        /// The machine's address.
        address: String,
        /// The cause.
        source: Box<CallError>,
    },
    /// No machine serves: more of them are gone than there are copies, or the membership service does not answer.
    #[error("no machine of {} is serving after {within:?}", addresses.join(", "))]
    NotServed {
        /// Time spent trying.
        within: Duration,
        /// The machines' addresses.
        addresses: Vec<String>,
    },
    /// A protocol with one-sided WRITEs was chosen for a database whose machines are replaced when they fail.
    #[error("the protocol '{0}' uses one-sided WRITEs, and a late WRITE could reach a later epoch: use scaletx-o")]
    LateWrites(&'static str),
    /// The thread that opens the database could not be started, or has panicked.
    #[error("cannot start a thread that opens the database: {0}")]
    Thread(String),
    /// The system does not provide random numbers.
    #[error("cannot get a random number for a coordinator: {0}")]
    Random(String),
}

/// Why a transaction has not committed, or may not have committed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DatabaseError {
    /// Another transaction conflicted with it at each attempt. It has had no effect.
    #[error("{by} ({attempts} attempts in {within:?})")]
    Aborted {
        /// The conflict: the other transaction, and the key.
        by: TransactionError,
        /// Number of attempts.
        attempts: u32,
        /// Time spent on them.
        within: Duration,
    },
    /// It may have committed: a machine stopped answering after the decision, or has no space for it.
    /// [`crate::Database::outcome`] waits for the answer.
    #[error(
        "unknown whether transaction {transaction} has committed: {machine} ({address}) {}; ask Database::outcome",
        says(refusal)
    )]
    UnknownOutcome {
        /// The transaction.
        transaction: TransactionId,
        /// The machine that does not answer.
        machine: MachineId,
        /// Its address.
        address: String,
        /// Its refusal, if it answers.
        refusal: Option<Refusal>,
    },
    /// A machine does not answer. The transaction has had no effect.
    #[error("unavailable: no response from {machine} ({address}) for {since:?}: {why}")]
    Unavailable {
        /// The machine, which is the primary of the shard of the same number.
        machine: MachineId,
        /// Its address.
        address: String,
        /// Time for which it has not answered.
        since: Duration,
        /// The reason, as far as it is known.
        why: String,
    },
    /// The transaction cannot be executed. It has had no effect.
    #[error(transparent)]
    Refused(TransactionError),
    /// The transaction has already failed.
    #[error("the transaction has already failed and accepts no more operations")]
    Over,
    /// The machines have no table of this name.
    #[error("no table '{name}'; available: {}", known.join(", "))]
    NoTable {
        /// The name.
        name: String,
        /// The names of the existing tables.
        known: Vec<String>,
    },
    /// A key that is longer than allowed.
    #[error(transparent)]
    Key(#[from] KeyTooLong),
    /// A value that is longer than its table allows.
    #[error("value too long: {bytes} bytes, the limit of the table '{table}' is {limit}")]
    ValueTooLong {
        /// The table.
        table: String,
        /// The value's length.
        bytes: usize,
        /// The maximum.
        limit: usize,
    },
    /// A stored value does not have the table's type.
    #[error("the value of {key} in the table '{table}' does not have the type that it is read as")]
    Unreadable {
        /// The table.
        table: String,
        /// The key.
        key: Key,
    },
    /// The maximum number of async transactions is open, and none has ended within the deadline. The transaction has
    /// had no effect.
    #[error(
        "too many async transactions: {open} of this database are open, the limit; end some of them, or open the \
         database twice"
    )]
    Busy {
        /// The number of open transactions.
        open: usize,
    },
    /// The thread for async transactions could not be started.
    #[error("cannot start the thread for async transactions: {why}")]
    NoThread {
        /// The reason.
        why: String,
    },
    /// No connection can be established.
    #[error(transparent)]
    Open(#[from] OpenError),
}

fn says(refusal: &Option<Refusal>) -> String {
    match refusal {
        Some(refusal) => format!("refused it: {refusal}"),
        None => "does not respond".to_owned(),
    }
}

impl DatabaseError {
    /// Whether the same transaction may commit when it is retried, and has had no effect so far.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Aborted { .. })
    }

    /// Returns a copy for further callers, in a shorter form; the first caller gets the complete error.
    pub(super) fn again(&self) -> Self {
        match self {
            Self::Aborted {
                by,
                attempts,
                within,
            } => Self::Aborted {
                by: by.clone(),
                attempts: *attempts,
                within: *within,
            },
            Self::Unavailable {
                machine,
                address,
                since,
                why,
            } => Self::Unavailable {
                machine: *machine,
                address: address.clone(),
                since: *since,
                why: why.clone(),
            },
            Self::Refused(error) => Self::Refused(error.clone()),
            Self::Busy { open } => Self::Busy { open: *open },
            Self::NoThread { why } => Self::NoThread { why: why.clone() },
            _ => Self::Over,
        }
    }

    /// Returns the same error after this number of attempts.
    pub(super) fn after(self, attempts: u32, within: Duration) -> Self {
        match self {
            Self::Aborted { by, .. } => Self::Aborted {
                by,
                attempts,
                within,
            },
            other => other,
        }
    }
}
