//! The dependencies between transactions, derived from the versions that they read and wrote.
use super::{Dependency, Edge, Violation};
use crate::error::Committed;
use crate::types::{Key, TransactionId, Value, Version};
use std::collections::BTreeMap;

/// The changes of a key, by version.
type Changes<'a> = BTreeMap<Version, (TransactionId, Option<&'a Value>)>;

/// Returns all dependencies, and the violations that the versions alone show.
pub(super) fn edges(
    initial: &BTreeMap<Key, Value>,
    transactions: &BTreeMap<TransactionId, &Committed>,
) -> (Vec<Edge>, Vec<Violation>) {
    let (mut edges, mut violations) = (Vec::new(), Vec::new());
    let mut changes: BTreeMap<&Key, Changes<'_>> = BTreeMap::new();
    for (id, transaction) in transactions {
        for update in &transaction.writes {
            let made = (*id, update.value.as_ref());
            let before = changes
                .entry(&update.key)
                .or_default()
                .insert(update.version, made);
            if let Some((other, _)) = before {
                let key = update.key.clone();
                violations.push(Violation::SameVersion(key, update.version, other, *id));
            }
        }
    }
    let mut push = |from: TransactionId, dependency, key: &Key, to: TransactionId| {
        if from != to {
            edges.push(Edge {
                from,
                dependency,
                key: key.clone(),
                to,
            });
        }
    };
    for (key, changes) in &changes {
        for (one, other) in changes.values().zip(changes.values().skip(1)) {
            push(one.0, Dependency::WriteWrite, key, other.0);
        }
    }
    let none = Changes::new();
    for (id, transaction) in transactions {
        for (key, version, value) in &transaction.reads {
            let changes = changes.get(key).unwrap_or(&none);
            // Keys that share a header share its versions, so the last change of this key may be an earlier one.
            let last = changes.range(..=*version).next_back();
            let expected = last.map_or(initial.get(key), |(_, (_, value))| *value);
            if expected != value.as_ref() {
                violations.push(Violation::ForeignValue(key.clone(), *version, *id));
            }
            if let Some((_, (writer, _))) = last {
                push(*writer, Dependency::WriteRead, key, *id);
            }
            let after = (
                std::ops::Bound::Excluded(*version),
                std::ops::Bound::Unbounded,
            );
            if let Some((_, (writer, _))) = changes.range(after).next() {
                push(*id, Dependency::ReadWrite, key, *writer);
            }
        }
    }
    (edges, violations)
}
