//! The keys that a transaction has written and locked so far, and what its next step follows from them: shared by the
//! blocking and the async API.

use std::collections::BTreeMap;

use super::{DatabaseError, Table, TableKey, TableValue};
use crate::logic::{Access, Step, View};
use crate::types::{Key, Value};

#[derive(Debug, Default)]
pub(super) struct WriteSet {
    writes: BTreeMap<Key, Option<Value>>,
    locked: Vec<Key>,
}

impl WriteSet {
    pub(super) fn put<K: TableKey, V: TableValue>(
        &mut self,
        table: &Table<K, V>,
        key: &K,
        value: &V,
    ) -> Result<(), DatabaseError> {
        let value = table.encode(value)?;
        self.writes.insert(table.key(key)?, Some(value));
        Ok(())
    }

    pub(super) fn delete<K: TableKey, V: TableValue>(
        &mut self,
        table: &Table<K, V>,
        key: &K,
    ) -> Result<(), DatabaseError> {
        self.writes.insert(table.key(key)?, None);
        Ok(())
    }

    /// Returns what has to be requested before these keys are known, or locked; `None` if all are.
    pub(super) fn missing(
        &mut self,
        keys: &[Key],
        lock: bool,
        has: impl Fn(&Key) -> bool,
    ) -> Option<Access> {
        let mut access = Access::default();
        for key in keys {
            if lock && !self.locked.contains(key) {
                access.writes.push((key.clone(), 0));
            } else if !has(key) && !self.writes.contains_key(key) {
                access.reads.push(key.clone());
            }
        }
        if access == Access::default() {
            return None;
        }
        if lock {
            self.locked.extend_from_slice(keys);
        }
        Some(access)
    }

    /// Returns the value of a known key: the transaction's own, or else the one that it has read.
    pub(super) fn value<K: TableKey, V: TableValue>(
        &self,
        table: &Table<K, V>,
        key: &Key,
        seen: Option<View<'_>>,
    ) -> Result<Option<V>, DatabaseError> {
        let written = self.writes.get(key);
        let seen = seen.and_then(|view| view.value(key));
        let value = written.map_or(seen, Option::as_ref);
        value.map(|value| table.decode(key, value)).transpose()
    }

    /// Returns the steps that commit: keys that are written and not locked yet are locked first, each with space for
    /// its value.
    pub(super) fn commit(&mut self) -> (Option<Step>, Step) {
        let unlocked = self.writes.iter();
        let unlocked = unlocked.filter(|(key, _)| !self.locked.contains(key));
        let room = |value: &Option<Value>| value.as_ref().map_or(0, |value| value.len() as u32);
        let writes = unlocked.map(|(key, value)| (key.clone(), room(value)));
        let writes: Vec<(Key, u32)> = writes.collect();
        let first = (!writes.is_empty()).then(|| {
            let reads = Vec::new();
            Step::Access(Access { reads, writes })
        });
        let writes = std::mem::take(&mut self.writes).into_iter().collect();
        (first, Step::Commit(writes))
    }
}
