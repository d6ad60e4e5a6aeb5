//! Whether a history is serializable: a checker that works on keys, versions and values and is independent of any
//! protocol.
//!
//! Transactions are the nodes of Adya's direct serialization graph. A change follows the change before it (`ww`), a
//! transaction that reads a change follows the one that made it (`wr`), and one that reads a version precedes the one
//! that makes the next change (`rw`). A cycle is a violation.
mod cycle;
mod graph;

use crate::error::Committed;
use crate::types::{Key, TransactionId, Value, Version};
use std::collections::BTreeMap;
use std::fmt;

/// A history: the initial values, and every transaction that has or may have committed.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The values before the first transaction, with version 0.
    pub initial: BTreeMap<Key, Value>,
    /// Transactions that have committed.
    pub committed: BTreeMap<TransactionId, Committed>,
    /// Transactions of unknown outcome. One counts as committed when another has read one of its changes.
    pub unknown: BTreeMap<TransactionId, Committed>,
}

/// Why one transaction precedes another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dependency {
    /// The second overwrote a change of the first.
    WriteWrite,
    /// The second read a change of the first.
    WriteRead,
    /// The second overwrote what the first had read.
    ReadWrite,
}

/// An edge of a cycle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The transaction that precedes.
    pub from: TransactionId,
    /// The kind of dependency.
    pub dependency: Dependency,
    /// The key that causes it.
    pub key: Key,
    /// The transaction that follows.
    pub to: TransactionId,
}

/// A violation in a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// Transactions that would all have to precede each other.
    Cycle(Vec<Edge>),
    /// Two transactions made the same version of a key.
    SameVersion(Key, Version, TransactionId, TransactionId),
    /// A transaction read a value that is not that of the last change up to this version.
    ForeignValue(Key, Version, TransactionId),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::Cycle(edges) => {
                write!(f, "cycle:")?;
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
                    "{one} and {other} both created version {} of {key}",
                    version.0
                )
            }
            Violation::ForeignValue(key, version, reader) => {
                write!(
                    f,
                    "{reader} read {key} at version {}, which nobody wrote",
                    version.0
                )
            }
        }
    }
}

/// A change that may have been made: version, value and transaction.
type Change<'a> = (Version, &'a Option<Value>, TransactionId);

impl History {
    /// Returns the violations found; none if the history is serializable. At most one cycle is reported.
    pub fn check(&self) -> Vec<Violation> {
        let included = self.included();
        let (edges, mut violations) = graph::edges(&self.initial, &included);
        violations.extend(cycle::find(&edges).map(Violation::Cycle));
        violations
    }

    /// Returns the committed transactions, and those of unknown outcome whose changes they have read. Keys that share a
    /// header share its versions, so a change may be read at a later version than its own. Reading a value that existed
    /// before proves nothing: an absent key looks the same whether or not it was deleted once more.
    fn included(&self) -> BTreeMap<TransactionId, &Committed> {
        let mut included: BTreeMap<_, _> = self.committed.iter().map(|(id, t)| (*id, t)).collect();
        let mut known: BTreeMap<&Key, BTreeMap<Version, &Option<Value>>> = BTreeMap::new();
        for update in self.committed.values().flat_map(|t| &t.writes) {
            let changes = known.entry(&update.key).or_default();
            changes.insert(update.version, &update.value);
        }
        let mut made: BTreeMap<&Key, Vec<Change<'_>>> = BTreeMap::new();
        for (id, transaction) in &self.unknown {
            for update in &transaction.writes {
                let change = (update.version, &update.value, *id);
                made.entry(&update.key).or_default().push(change);
            }
        }
        // Each transaction that is included may have overwritten the value from which another's change differs.
        while let Some((id, transaction)) = self.read_by(&included, &known, &made) {
            included.insert(id, transaction);
            for update in &transaction.writes {
                let changes = known.entry(&update.key).or_default();
                changes.insert(update.version, &update.value);
            }
        }
        included
    }

    /// Returns a transaction of unknown outcome that is not included yet and one of whose changes was read.
    fn read_by(
        &self,
        included: &BTreeMap<TransactionId, &Committed>,
        known: &BTreeMap<&Key, BTreeMap<Version, &Option<Value>>>,
        made: &BTreeMap<&Key, Vec<Change<'_>>>,
    ) -> Option<(TransactionId, &Committed)> {
        for (key, version, value) in included.values().flat_map(|reader| &reader.reads) {
            let Some(made) = made.get(key) else { continue };
            let changes = known
                .get(key)
                .and_then(|of| of.range(..=*version).next_back());
            let before = match changes {
                Some((_, value)) => value.as_ref(),
                None => self.initial.get(key),
            };
            if before == value.as_ref() {
                continue;
            }
            let is_read = |(at, written, id): &&Change<'_>| {
                let is_last = at <= version && changes.is_none_or(|(known, _)| at > known);
                is_last && *written == value && !included.contains_key(id)
            };
            if let Some((_, _, id)) = made.iter().find(is_read) {
                return self.unknown.get_key_value(id).map(|(id, t)| (*id, t));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transaction(
        reads: &[(u64, u64, Option<&str>)],
        writes: &[(u64, u64, Option<&str>)],
    ) -> Committed {
        let value = |text: Option<&str>| text.map(|text| Value::from(text.as_bytes()));
        let read = |(key, version, text): &(u64, u64, Option<&str>)| {
            (Key::number(0, *key), Version(*version), value(*text))
        };
        let write = |(key, version, text): &(u64, u64, Option<&str>)| crate::types::Update {
            key: Key::number(0, *key),
            value: value(*text),
            version: Version(*version),
        };
        Committed {
            reads: reads.iter().map(read).collect(),
            writes: writes.iter().map(write).collect(),
        }
    }

    /// A transaction of unknown outcome reads the key 8 before another changes it and sets the key 15 to this value;
    /// one that has seen the change of 8 finds 15 absent, and a later one finds this value, too.
    fn history(written: Option<&str>) -> History {
        let id = |sequence| TransactionId {
            coordinator: 1,
            slot: 0,
            sequence,
        };
        let committed = [
            transaction(&[(8, 1, Some("x"))], &[(8, 2, None)]),
            transaction(&[(8, 2, None), (15, 4, None)], &[]),
            transaction(&[(15, 6, written)], &[]),
        ];
        let unknown = transaction(&[(8, 1, Some("x"))], &[(15, 5, written)]);
        History {
            initial: [(Key::number(0, 8), Value::from(&b"x"[..]))].into(),
            committed: (2..).map(id).zip(committed).collect(),
            unknown: [(id(1), unknown)].into(),
        }
    }

    #[test]
    fn an_unknown_change_that_was_read_is_a_part_of_the_history() {
        let violations = history(Some("y")).check();
        assert!(
            matches!(violations[..], [Violation::Cycle(_)]),
            "{violations:?}"
        );
    }

    #[test]
    fn absence_is_no_proof_of_a_delete_that_nobody_knows_the_outcome_of() {
        assert_eq!(history(None).check(), []);
    }
}
