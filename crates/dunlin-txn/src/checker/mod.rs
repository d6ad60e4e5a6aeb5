//! Whether a history is serializable: a checker that knows keys, versions and values, and nothing of any protocol.
//!
//! Transactions are the nodes of Adya's direct serialization graph. A change follows the change before it (`ww`), who
//! reads a change follows it (`wr`), and who reads a version precedes the next change (`rw`). A cycle is a violation.
mod cycle;
mod graph;

use crate::error::Committed;
use crate::types::{Key, TransactionId, Value, Version};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// What happened: what was there at first, and every transaction that has or may have committed.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The values before the first transaction, of version 0.
    pub initial: BTreeMap<Key, Value>,
    /// Transactions that have committed.
    pub committed: BTreeMap<TransactionId, Committed>,
    /// Transactions of which nobody knows. One counts as committed when another has read a change of it.
    pub unknown: BTreeMap<TransactionId, Committed>,
}

/// Why one transaction comes before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dependency {
    /// The other changed what it had changed.
    WriteWrite,
    /// The other read its change.
    WriteRead,
    /// The other changed what it had read.
    ReadWrite,
}

/// An arrow of a cycle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// Who comes first.
    pub from: TransactionId,
    /// Why.
    pub dependency: Dependency,
    /// By which key.
    pub key: Key,
    /// Who comes after.
    pub to: TransactionId,
}

/// What is wrong with a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// Transactions that would all have to come before each other.
    Cycle(Vec<Edge>),
    /// Two transactions made the same version of a key.
    SameVersion(Key, Version, TransactionId, TransactionId),
    /// A transaction read a value that the last change up to that version did not make.
    ForeignValue(Key, Version, TransactionId),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::Cycle(edges) => {
                write!(f, "a cycle:")?;
                edges.iter().try_for_each(|edge| {
                    let Edge {
                        from,
                        dependency,
                        key,
                        to,
                    } = edge;
                    write!(f, " {from} -> {to} ({dependency:?} of {key});")
                })
            }
            Violation::SameVersion(key, version, one, other) => {
                write!(
                    f,
                    "{one} and {other} both made version {} of {key}",
                    version.0
                )
            }
            Violation::ForeignValue(key, version, reader) => {
                write!(
                    f,
                    "{reader} read of {key} at version {} what nobody wrote",
                    version.0
                )
            }
        }
    }
}

/// A change that may have been made: its version and value, and by whom.
type Change<'a> = (Version, &'a Option<Value>, TransactionId);

impl History {
    /// The violations that are found; none where the history is serializable. At most one cycle is shown.
    pub fn check(&self) -> Vec<Violation> {
        let included = self.included();
        let (edges, mut violations) = graph::edges(&self.initial, &included);
        violations.extend(cycle::find(&edges).map(Violation::Cycle));
        violations
    }

    /// The committed transactions, and those of unknown outcome whose changes these have read. Keys that share a header
    /// share its versions, so a change may be read at a later version than its own.
    fn included(&self) -> BTreeMap<TransactionId, &Committed> {
        let mut included: BTreeMap<_, _> = self.committed.iter().map(|(id, t)| (*id, t)).collect();
        let mut last: BTreeMap<&Key, BTreeSet<Version>> = BTreeMap::new();
        for update in self.committed.values().flat_map(|t| &t.writes) {
            last.entry(&update.key).or_default().insert(update.version);
        }
        let mut made: BTreeMap<&Key, Vec<Change<'_>>> = BTreeMap::new();
        for (id, transaction) in &self.unknown {
            for update in &transaction.writes {
                let change = (update.version, &update.value, *id);
                made.entry(&update.key).or_default().push(change);
            }
        }
        let mut readers: Vec<&Committed> = self.committed.values().collect();
        let mut found = BTreeSet::new();
        while let Some(reader) = readers.pop() {
            for (key, version, value) in &reader.reads {
                let known = last
                    .get(key)
                    .and_then(|of| of.range(..=*version).next_back());
                for (made, written, id) in made.get(key).into_iter().flatten() {
                    let is_last = made <= version && known.is_none_or(|known| made > known);
                    if is_last && *written == value && found.insert(*id) {
                        included.insert(*id, &self.unknown[id]);
                        readers.push(&self.unknown[id]);
                    }
                }
            }
        }
        included
    }
}
