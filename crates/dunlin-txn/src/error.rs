//! How a transaction ends.
use crate::types::{Key, MachineId, TransactionId, Update, Value, Version};

/// A transaction that has committed: what it read, and what it changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Committed {
    /// Every key of its read and write sets, with the version and value that it saw.
    pub reads: Vec<(Key, Version, Option<Value>)>,
    /// Its changes.
    pub writes: Vec<Update>,
}

/// Why a transaction has not, or perhaps not, committed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransactionError {
    /// Another transaction held a lock.
    #[error("aborted: {key} is locked by transaction {owner}; try again after a pause")]
    Locked {
        /// The key.
        key: Key,
        /// Who holds its lock.
        owner: TransactionId,
    },
    /// A key that it read had changed, or been locked, before it could commit.
    #[error("aborted: {key} changed after it was read; try again")]
    Changed {
        /// The key.
        key: Key,
    },
    /// The epoch ended before it had committed: a machine was replaced, or a coordinator had left locks. Nothing of the
    /// transaction is or will be visible.
    #[error("aborted: the membership changed; try again")]
    Superseded,
    /// The transaction's own logic decided so.
    #[error("aborted by the transaction itself")]
    Itself,
    /// A machine did not answer. Nothing of the transaction is or will be visible.
    #[error("unavailable: {machine} does not answer; the transaction has had no effect")]
    Unavailable {
        /// The machine.
        machine: MachineId,
    },
    /// A machine refused the request. Nothing of the transaction is or will be visible.
    #[error("refused by {machine}: {refusal}")]
    Refused {
        /// The machine.
        machine: MachineId,
        /// Why.
        refusal: crate::wire::Refusal,
    },
    /// A machine answered what no participant says. Nothing of the transaction is or will be visible.
    #[error("{machine} gave an answer that does not fit the request; are both of one version?")]
    Violation {
        /// The machine.
        machine: MachineId,
    },
    /// A machine stopped answering after the decision to commit was sent out, or has no room for it. The coordinator
    /// goes on asking, its locks stay, and it has committed when [`crate::Coordinator::is_finished`] says that it has
    /// ended.
    #[error(
        "outcome unknown: {machine} does not confirm that the transaction has committed{}",
        because(refusal)
    )]
    Unknown {
        /// The machine.
        machine: MachineId,
        /// What it says, where it answers: it is asked again until that is over.
        refusal: Option<crate::wire::Refusal>,
    },
    /// A key was written that the write set does not have, or its version is the last one there is, or the value is
    /// longer than its place.
    #[error("{key} cannot be written: it must be in the write set, below the last version, and its value must fit")]
    NotWritable {
        /// The key.
        key: Key,
    },
    /// The transaction asked for more rounds, or keys in one, than a request numbers, or changed more keys than that.
    #[error("the transaction has more than {rounds} rounds, or {keys} keys in one, or {keys} changes; divide it")]
    TooLarge {
        /// The most rounds.
        rounds: u16,
        /// The most keys of a round, and changes in all.
        keys: usize,
    },
}

fn because(refusal: &Option<crate::wire::Refusal>) -> String {
    refusal.map_or_else(String::new, |refusal| format!(": {refusal}"))
}
