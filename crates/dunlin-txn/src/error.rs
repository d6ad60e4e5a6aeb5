//! The results of transactions.
use crate::types::{Key, MachineId, TransactionId, Update, Value, Version};

/// A transaction that has committed: its reads and its changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Committed {
    /// Every key of its read and write sets, with the version and value that it saw.
    pub reads: Vec<(Key, Version, Option<Value>)>,
    /// Its changes.
    pub writes: Vec<Update>,
}

/// Why a transaction has not committed, or may not have committed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransactionError {
    /// Another transaction held a lock.
    #[error("aborted: {key} is locked by transaction {owner}; try again after a pause")]
    Locked {
        /// The key.
        key: Key,
        /// The transaction that holds it.
        owner: TransactionId,
    },
    /// A key that it had read was changed or locked before it could commit.
    #[error("aborted: {key} changed after it was read; try again")]
    Changed {
        /// The key.
        key: Key,
    },
    /// The epoch ended before it had committed: a machine was replaced, or a coordinator left its locks behind. Nothing
    /// of the transaction is or will be visible.
    #[error("aborted: the membership changed; try again")]
    Superseded,
    /// Aborted by the transaction's own logic.
    #[error("aborted by the caller")]
    Itself,
    /// A machine did not answer. Nothing of the transaction is or will be visible.
    #[error("unavailable: {machine} does not respond; the transaction has had no effect")]
    Unavailable {
        /// The machine.
        machine: MachineId,
    },
    /// A machine refused the request. Nothing of the transaction is or will be visible.
    #[error("refused by {machine}: {refusal}")]
    Refused {
        /// The machine.
        machine: MachineId,
        /// The reason.
        refusal: crate::wire::Refusal,
    },
    /// A machine sent an invalid answer. Nothing of the transaction is or will be visible.
    #[error("{machine} sent a response that does not match the request; check that both run the same version")]
    Violation {
        /// The machine.
        machine: MachineId,
    },
    /// A machine stopped answering after the decision to commit was sent, or has no space for it. The coordinator keeps
    /// asking, and its locks stay; the transaction has committed when [`crate::Coordinator::is_finished`] returns true.
    #[error(
        "outcome unknown: {machine} did not confirm that the transaction has committed{}",
        because(refusal)
    )]
    Unknown {
        /// The machine.
        machine: MachineId,
        /// Its refusal, if it answers: the request is repeated until the reason no longer holds.
        refusal: Option<crate::wire::Refusal>,
    },
    /// A key was written that is not in the write set, or its version is the maximum, or the value is longer than its
    /// place.
    #[error("cannot write {key}: it must be in the write set, below the last version, and its value must fit")]
    NotWritable {
        /// The key.
        key: Key,
    },
    /// The transaction requested more rounds, or more keys in one round, than allowed, or changed more keys than
    /// allowed.
    #[error(
        "transaction too large: the limits are {rounds} rounds, {keys} keys in one round and {keys} changes; split it"
    )]
    TooLarge {
        /// Maximum number of rounds.
        rounds: u16,
        /// Maximum number of keys in a round, and of changes in total.
        keys: usize,
    },
}

fn because(refusal: &Option<crate::wire::Refusal>) -> String {
    refusal.map_or_else(String::new, |refusal| format!(": {refusal}"))
}
