//! What keeps a database from being opened, and a transaction from committing.

use std::time::Duration;

use dunlin_rpc::{CallError, ConnectError};

use crate::error::TransactionError;
use crate::types::{Key, KeyTooLong, MachineId, TransactionId};
use crate::wire::Refusal;

/// Why a database cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// No address was given.
    #[error("a database has at least one machine: give the addresses of all")]
    NoAddress,
    /// A machine cannot be reached.
    #[error("{address}: {source}")]
    Connect {
        /// Where.
        address: String,
        /// Why.
        source: Box<ConnectError>,
    },
    /// A machine does not say what it has.
    #[error("{address}: {source}; is it a server of `dunlin serve store`?")]
    Ask {
        /// Where.
        address: String,
        /// Why.
        source: Box<CallError>,
    },
    /// What it says is not understood.
    #[error("{address} describes itself in a way that this version does not know: {why}")]
    Description {
        /// Where.
        address: String,
        /// Why.
        why: String,
    },
    /// The addresses are not those of all machines of one database.
    #[error("{address} is {what}: give the address of each machine of one database once")]
    Membership {
        /// Where.
        address: String,
        /// What it is.
        what: String,
    },
    /// There is no such protocol.
    #[error("no protocol '{0}'; there are: fasst, flocktx, scaletx, scaletx-o, auto")]
    NoProtocol(String),
    /// A protocol needs memory of the machines that this client does not get.
    #[error("the protocol '{protocol}' reads or writes memory of {address}: {source}")]
    OneSided {
        /// The protocol.
        protocol: &'static str,
        /// Where.
        address: String,
        /// Why not.
        source: Box<CallError>,
    },
    /// No machine serves: more of them are gone than there are copies, or the membership does not answer.
    #[error("none of {} serves after {within:?}", addresses.join(", "))]
    NotServed {
        /// How long that was tried.
        within: Duration,
        /// The machines.
        addresses: Vec<String>,
    },
    /// A protocol that WRITEs one-sided, where machines replace each other.
    #[error("the protocol '{0}' WRITEs one-sided, and a late WRITE could not be kept out of a later epoch: take scaletx-o")]
    LateWrites(&'static str),
    /// There is no thread to be had that opens it, or it has panicked.
    #[error("no thread that opens the database: {0}")]
    Thread(String),
    /// The system has no random numbers.
    #[error("no random number for a coordinator: {0}")]
    Random(String),
}

/// Why a transaction has not, or perhaps not, committed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DatabaseError {
    /// Another transaction stood in its way, at each attempt. It has had no effect.
    #[error("{by} ({attempts} attempts in {within:?})")]
    Aborted {
        /// Who, and by which key.
        by: TransactionError,
        /// How often it was tried.
        attempts: u32,
        /// For how long.
        within: Duration,
    },
    /// It may have committed: a machine stopped answering after the decision, or has no room for it.
    /// [`crate::Database::outcome`] waits for the answer.
    #[error(
        "whether transaction {transaction} has committed is unknown: {machine} ({address}) {}; ask Database::outcome",
        says(refusal)
    )]
    UnknownOutcome {
        /// The transaction.
        transaction: TransactionId,
        /// Who does not answer.
        machine: MachineId,
        /// Where it is.
        address: String,
        /// What it says, where it answers.
        refusal: Option<Refusal>,
    },
    /// A machine does not answer. The transaction has had no effect.
    #[error("unavailable: {machine} ({address}) has not answered for {since:?}: {why}")]
    Unavailable {
        /// The machine, which is the primary of the shard of the same number.
        machine: MachineId,
        /// Where it is.
        address: String,
        /// For how long.
        since: Duration,
        /// What is known of it.
        why: String,
    },
    /// The transaction cannot be executed. It has had no effect.
    #[error(transparent)]
    Refused(TransactionError),
    /// The transaction is over: it has failed before.
    #[error("the transaction has failed before, and takes nothing more")]
    Over,
    /// The machines have no table of this name.
    #[error("no table '{name}'; there are: {}", known.join(", "))]
    NoTable {
        /// The name.
        name: String,
        /// The tables that there are.
        known: Vec<String>,
    },
    /// A key above the limit.
    #[error(transparent)]
    Key(#[from] KeyTooLong),
    /// A value that is longer than those of its table.
    #[error("a value of {bytes} bytes: the table '{table}' takes {limit}")]
    ValueTooLong {
        /// The table.
        table: String,
        /// The value's length.
        bytes: usize,
        /// The longest.
        limit: usize,
    },
    /// A value is not of the table's type.
    #[error("the value of {key} in the table '{table}' is not of the type that it is read as")]
    Unreadable {
        /// The table.
        table: String,
        /// The key.
        key: Key,
    },
    /// As many async transactions are open as may be, and none has ended within the deadline. It has had no effect.
    #[error("{open} async transactions of this database are open, the most there can be: end some, or open the \
             database twice")]
    Busy {
        /// How many are open.
        open: usize,
    },
    /// There is no thread for async transactions.
    #[error("no thread for async transactions: {why}")]
    NoThread {
        /// Why.
        why: String,
    },
    /// No connection can be made.
    #[error(transparent)]
    Open(#[from] OpenError),
}

fn says(refusal: &Option<Refusal>) -> String {
    match refusal {
        Some(refusal) => format!("refuses it: {refusal}"),
        None => "does not answer".to_owned(),
    }
}

impl DatabaseError {
    /// Whether the same transaction may commit when it is tried again, and has had no effect so far.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Aborted { .. })
    }

    /// What others are told of the failure that one is told in full.
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

    /// The same after so many attempts.
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
