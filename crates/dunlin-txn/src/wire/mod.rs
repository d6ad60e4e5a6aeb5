//! Requests of coordinators and answers of participants, as values and as bytes.
//!
//! A peer's bytes are read once, from front to back. Counts are checked against the remaining bytes before anything is
//! allocated for them, so a message makes its receiver use at most a small multiple of its own length in memory.
pub(crate) mod codec;
mod reader;

pub(crate) use reader::Reader;
pub use reader::WireError;

use crate::types::{Key, Place, Raised, TransactionId, Update, Value, Version};

/// Maximum number of keys or changes in one request.
pub const MAX_ITEMS: usize = 4096;

/// A request: one step of a transaction at one machine. Steps increase within a transaction, and a machine gets at most
/// one request for each.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// The transaction.
    pub transaction: TransactionId,
    /// Its step, from 1.
    pub step: u16,
    /// The operation.
    pub body: Body,
}

/// The operation that a participant executes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Body {
    /// Lock and read the write set, read the read set.
    Execute {
        /// Keys to lock, with the number of bytes to reserve.
        writes: Vec<(Key, u32)>,
        /// Keys to read.
        reads: Vec<Key>,
    },
    /// Check that keys still have these versions and are not locked by another transaction.
    Validate(Vec<(Key, Version)>),
    /// Keep changes in the log, and apply those of shards that this machine backs up.
    Replicate {
        /// Changes for the log.
        append: Vec<Update>,
        /// Changes that this machine applies as a backup.
        apply: Vec<Update>,
    },
    /// Install changes and release all locks of the transaction.
    Commit(Vec<Update>),
    /// Release all locks of the transaction.
    Release,
    /// Report the outcome of the transaction, whose epoch is over. Answered by a machine of any later epoch.
    Outcome,
}

/// The outcome of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// All of its changes have been made.
    Committed,
    /// None has been made, and none will be.
    Aborted,
    /// Not decided yet.
    Undecided,
    /// This machine has joined since, or the transaction is too old.
    Forgotten,
}

/// The state of a key at a participant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Item {
    /// Its value.
    pub value: Option<Value>,
    /// Its version.
    pub version: Version,
    /// What its lock has raised.
    pub raised: Option<Raised>,
    /// Its location.
    pub place: Place,
}

/// An answer, with the step that it answers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Answer {
    /// The transaction.
    pub transaction: TransactionId,
    /// The step.
    pub step: u16,
    /// The result.
    pub response: Response,
}

/// The result of a step at a participant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Response {
    /// The items in the order of the request: first the write set, which is locked, then the read set.
    Executed(Vec<Item>),
    /// A key is locked by another transaction. This transaction holds no lock at this machine any more.
    Locked {
        /// Index of the key in the request, counted as in [`Response::Executed`].
        item: u32,
        /// The transaction that holds it.
        owner: TransactionId,
    },
    /// All versions are unchanged.
    Valid,
    /// A version has changed, or a key is locked.
    Invalid {
        /// Index of the key in the request.
        item: u32,
    },
    /// Done.
    #[default]
    Done,
    /// The outcome of the transaction.
    Outcome(Fate),
    /// Nothing was done.
    Refused(Refusal),
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error, Hash)]
pub enum Refusal {
    /// The transaction has already passed this step.
    #[error("stale request: this machine has already seen a newer one of the slot")]
    Stale,
    /// The slot's previous transaction still holds locks here.
    #[error("the last transaction of the slot still holds locks")]
    Unfinished,
    /// The table has no space. The transaction holds no lock at this machine any more.
    #[error("the table is full; make it larger when it is created")]
    Full,
    /// More coordinators' slots than the participant can remember.
    #[error(
        "too many slots of coordinators: the participant's limit is reached; raise `slots_max`"
    )]
    TooManySlots,
    /// No table accepts the key, or a value of this length. The transaction holds no lock at this machine any more.
    #[error("no table of this machine stores the key, or a value of this length")]
    Unknown,
    /// The machine has lost its memory since the coordinator requested its description.
    #[error("the machine was restarted and has lost its tables, and no machine replaces it")]
    Restarted,
    /// The machine is not in the coordinator's epoch: the membership has changed, or is changing, or the machine has no
    /// lease.
    #[error(
        "the machine does not serve the coordinator's epoch; fetch the membership and try again"
    )]
    Epoch,
}
