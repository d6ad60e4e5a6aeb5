//! Requests of coordinators and answers of participants, as values and as bytes.
//!
//! Bytes of a peer are read once, from front to back. Counts are held against the bytes that are left before anything
//! is allocated for them, so no message makes its reader take more memory than some times its own length.
pub(crate) mod codec;
mod reader;

pub(crate) use reader::Reader;
pub use reader::WireError;

use crate::types::{Key, Place, Raised, TransactionId, Update, Value, Version};

/// The most keys or changes in one request.
pub const MAX_ITEMS: usize = 4096;

/// A request: one step of a transaction at one machine. Steps rise within a transaction, and a machine gets at most one
/// request of each.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// The transaction.
    pub transaction: TransactionId,
    /// Its step, from 1.
    pub step: u16,
    /// What is to be done.
    pub body: Body,
}

/// What a participant is to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Body {
    /// Lock and read the write set, read the read set.
    Execute {
        /// Keys to lock, with the bytes to make room for.
        writes: Vec<(Key, u32)>,
        /// Keys to read.
        reads: Vec<Key>,
    },
    /// Say whether keys have these versions still and no other transaction's lock.
    Validate(Vec<(Key, Version)>),
    /// Keep changes in the log, and apply those of shards that this machine backs up.
    Replicate {
        /// Changes for the log.
        append: Vec<Update>,
        /// Changes that this machine has as a backup.
        apply: Vec<Update>,
    },
    /// Install changes and release all locks of the transaction.
    Commit(Vec<Update>),
    /// Release all locks of the transaction.
    Release,
    /// Say what has become of the transaction, whose epoch is over. Answered by a machine of any later epoch.
    Outcome,
}

/// What has become of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// All of its changes are there.
    Committed,
    /// None is, and none will be.
    Aborted,
    /// That is not decided yet.
    Undecided,
    /// This machine has come since, or it is too long ago.
    Forgotten,
}

/// A key as a participant found it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Item {
    /// Its value.
    pub value: Option<Value>,
    /// Its version.
    pub version: Version,
    /// What its lock has raised.
    pub raised: Option<Raised>,
    /// Where it lies.
    pub place: Place,
}

/// An answer, with the step that it answers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Answer {
    /// The transaction.
    pub transaction: TransactionId,
    /// The step.
    pub step: u16,
    /// What was done.
    pub response: Response,
}

/// What a participant has done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Response {
    /// The items in the order of the request: first the write set, which is locked, then the read set.
    Executed(Vec<Item>),
    /// A key is locked by another. The transaction has no lock at this machine any more.
    Locked {
        /// Which key of the request, counted as in [`Response::Executed`].
        item: u32,
        /// Who holds it.
        owner: TransactionId,
    },
    /// All versions are as they were.
    Valid,
    /// One is not.
    Invalid {
        /// Which key of the request.
        item: u32,
    },
    /// It is done.
    #[default]
    Done,
    /// What has become of the transaction.
    Outcome(Fate),
    /// Nothing was done.
    Refused(Refusal),
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error, Hash)]
pub enum Refusal {
    /// The transaction is past this step.
    #[error("the request is older than what this machine has seen of the slot")]
    Stale,
    /// The slot's last transaction still holds locks here.
    #[error("the slot's last transaction still holds locks")]
    Unfinished,
    /// The table has no room. The transaction has no lock at this machine any more.
    #[error("the table has no room for another item; give it more when it is made")]
    Full,
    /// More coordinators' slots than the participant remembers.
    #[error("more slots of coordinators than the participant's limit; raise `slots_max`")]
    TooManySlots,
    /// No table takes the key, or a value of this length. The transaction has no lock at this machine any more.
    #[error("no table of this machine takes the key, or a value of this length")]
    Unknown,
    /// The machine has lost its memory since the coordinator asked what it has.
    #[error("the machine was started anew and has lost its tables, and nobody replaces it")]
    Restarted,
    /// The machine is not of the coordinator's epoch: the membership has changed, or is changing, or the machine has no
    /// lease.
    #[error("the machine does not serve the epoch of the coordinator; ask for the membership and try again")]
    Epoch,
}
