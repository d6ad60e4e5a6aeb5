//! Decided transactions are transferred in pages, however many there are: messages have a limit, and leases are short.

use crate::membership::{Epoch, Record};
use crate::types::{TransactionId, Update};

/// Approximate length of a change without its key and value.
const UPDATE_BYTES: usize = 32;

/// The changes of these transactions from a position on, about this many bytes of them but at least one, and the next
/// position. A position is the number of changes before it, in the order of transactions: it stays valid as long as the
/// transactions are the same. A transaction may end on a later page.
pub fn page(
    mut decided: Vec<(TransactionId, &[Update])>,
    from: u64,
    bytes: usize,
) -> (Vec<Record>, Option<u64>) {
    decided.sort_unstable_by_key(|(id, _)| *id);
    let (mut records, mut place, mut taken) = (Vec::new(), 0, 0);
    for (id, updates) in decided {
        let end = place + updates.len() as u64;
        if end <= from {
            place = end;
            continue;
        }
        let mut part = Vec::new();
        for update in &updates[from.saturating_sub(place) as usize..] {
            if taken >= bytes.max(1) {
                break;
            }
            let value = update.value.as_ref().map_or(0, |value| value.len());
            taken += UPDATE_BYTES + update.key.bytes().len() + value;
            part.push(update.clone());
        }
        place = place.max(from) + part.len() as u64;
        if !part.is_empty() {
            records.push((id, part));
        }
        if place < end {
            return (records, Some(place));
        }
    }
    (records, None)
}

/// Number of changes in a page.
pub(super) fn changes(records: &[Record]) -> u64 {
    let each = records.iter().map(|(_, updates)| updates.len() as u64);
    each.sum()
}

/// The pages received so far of what is to be installed.
#[derive(Debug, Hash, Clone)]
pub(super) struct Pages {
    epoch: Epoch,
    records: Vec<Record>,
    /// Number of changes in them.
    changes: u64,
}

impl Pages {
    pub(super) fn new(epoch: Epoch) -> Pages {
        Pages {
            epoch,
            records: Vec::new(),
            changes: 0,
        }
    }

    pub(super) fn epoch(&self) -> Epoch {
        self.epoch
    }

    pub(super) fn records(&self) -> &[Record] {
        &self.records
    }

    /// Takes the page that starts at this position, or ignores a duplicate: an epoch's manager decides once. Returns
    /// whether nothing is missing before it.
    pub(super) fn take(&mut self, from: u64, page: &[Record]) -> bool {
        if from == self.changes {
            self.changes += changes(page);
            for (id, updates) in page {
                match self.records.last_mut().filter(|(last, _)| last == id) {
                    Some((_, known)) => known.extend_from_slice(updates),
                    None => self.records.push((*id, updates.clone())),
                }
            }
        }
        from <= self.changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Key, Value, Version};

    fn record(sequence: u64, changes: u64) -> Record {
        let id = TransactionId {
            coordinator: 9 - sequence,
            slot: 0,
            sequence,
        };
        let update = |number| Update {
            key: Key::number(0, number),
            value: Some(Value::from(vec![7; 20])),
            version: Version(1),
        };
        (id, (0..changes).map(update).collect())
    }

    #[test]
    fn pages_of_any_size_are_the_whole() {
        let mut all = vec![record(1, 3), record(2, 1), record(3, 7)];
        for bytes in [0, 1, 100, 200, 500, 10_000] {
            let mut pages = Pages::new(Epoch(2));
            let mut next = Some(0);
            while let Some(from) = next {
                let decided = all.iter().map(|(id, updates)| (*id, &updates[..]));
                let (page, behind) = page(decided.collect(), from, bytes);
                assert!(changes(&page) as usize <= 1 + bytes / 60);
                // A duplicate page, or one that is too early, changes nothing.
                assert!(!pages.take(from + 1, &page));
                assert!(pages.take(from, &page) && pages.take(from, &page));
                next = behind;
            }
            all.sort_unstable_by_key(|(id, _)| *id);
            assert_eq!(pages.records(), all);
        }
        assert_eq!(page(Vec::new(), 0, 100), (Vec::new(), None));
    }
}
