//! Keys whose last committed change is not on the disk yet.
//!
//! A primary makes a change visible as soon as it has appended it; by then, backups have it on their disks. But a
//! machine that comes back alone has only its own disk: a reader that had been given a change missing there would have
//! seen something that never happened. So an answer with such a key waits for it.

use std::collections::HashMap;

use super::Entry;
use crate::types::Key;
use crate::wire::Body;

/// When there are this many keys, those that are on the disk are removed.
const MANY: usize = 1024;

/// Keys with the positions of their last changes; those that are on the disk are removed from time to time.
#[derive(Debug, Default)]
pub struct Unsynced {
    keys: HashMap<Key, u64>,
    /// The highest of those positions.
    newest: u64,
}

impl Unsynced {
    /// Records what was appended at a position, before its changes become visible.
    pub fn note(&mut self, entry: &Entry, position: u64, is_safe: impl Fn(u64) -> bool) {
        let Entry::Commit { updates, .. } = entry else {
            return;
        };
        if self.keys.len() >= MANY {
            self.keys.retain(|_, position| !is_safe(*position));
        }
        // Participants append in one order and may call this in another.
        self.newest = self.newest.max(position);
        let keys = updates.iter().map(|update| update.key.clone());
        self.keys.extend(keys.map(|key| (key, position)));
    }

    /// Returns the position that must be on the disk before this request is answered, because of the keys that it has
    /// read.
    pub fn needed(&self, body: &Body, is_safe: impl Fn(u64) -> bool) -> u64 {
        let Body::Execute { writes, reads } = body else {
            return 0;
        };
        if is_safe(self.newest) {
            return 0;
        }
        let keys = writes.iter().map(|(key, _)| key).chain(reads);
        keys.filter_map(|key| self.keys.get(key))
            .max()
            .copied()
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{TransactionId, Update, Version};

    fn commit(number: u64) -> Entry {
        let id = TransactionId {
            coordinator: 1,
            slot: 0,
            sequence: number,
        };
        let updates = vec![Update {
            key: Key::number(0, number),
            value: None,
            version: Version(1),
        }];
        Entry::Commit { id, updates }
    }

    fn reads(number: u64) -> Body {
        Body::Execute {
            writes: vec![(Key::number(1, 1), 8)],
            reads: vec![Key::number(0, 0), Key::number(0, number)],
        }
    }

    #[test]
    fn who_reads_a_change_waits_for_it_and_nobody_else_does() {
        let mut unsynced = Unsynced::default();
        for position in 1..=9 {
            unsynced.note(&commit(position), position, |_| false);
        }
        let needed = |body, safe| unsynced.needed(&body, |position| position <= safe);
        assert_eq!([needed(reads(7), 0), needed(reads(10), 0)], [7, 0]);
        assert_eq!(needed(reads(7), 9), 0);
        let writes = Body::Execute {
            writes: vec![(Key::number(0, 4), 8), (Key::number(0, 6), 8)],
            reads: Vec::new(),
        };
        assert_eq!(needed(writes, 5), 6);
        assert_eq!(
            needed(Body::Validate(vec![(Key::number(0, 7), Version(1))]), 0),
            0
        );
    }

    #[test]
    fn changes_may_come_in_another_order_than_they_were_appended() {
        let mut unsynced = Unsynced::default();
        for position in [2, 1] {
            unsynced.note(&commit(position), position, |_| false);
        }
        assert_eq!(unsynced.needed(&reads(2), |position| position <= 1), 2);
    }

    #[test]
    fn what_is_on_the_disk_is_forgotten() {
        let mut unsynced = Unsynced::default();
        for position in 0..10 * MANY as u64 {
            unsynced.note(&commit(position), position, |of| of + 5 < position);
        }
        assert!(unsynced.keys.len() <= MANY);
        let last = 10 * MANY as u64 - 1;
        assert_eq!(unsynced.needed(&reads(last), |_| false), last);
    }
}
