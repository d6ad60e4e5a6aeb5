//! Maps work requests to completions: ids, and the number of outstanding requests.
//!
//! The verbs layer gives every send queue a size and promises that polling completions frees entries. Providers differ
//! there, and a completion with an error does not tell whether it was a send. So each work request is passed to the
//! provider with an id of ours, which names a table, the table's generation and an entry; the user's own id, the verb
//! and the length are in the entry. Resetting a queue pair changes its table's generation, and completions of the old
//! one are ignored.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use dunlin_verbs::CompletionOpcode;

const INDEX_BITS: u32 = 20;
const GENERATION_BITS: u32 = 22;
const SLOT_BITS: u32 = 22;

/// The generation of a table whose queue is gone; no id has it.
const GONE: u32 = u32::MAX;

/// Maximum number of entries in a table: what an id can express.
pub(crate) const MAX_ENTRIES: usize = 1 << INDEX_BITS;

/// The kind of queue that a table belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A send queue: completes in order, and a completion covers the unsignaled ones before it.
    Send,
    /// A queue pair's own receive queue: completes in order.
    Receive,
    /// A shared receive queue: completes in any order.
    Shared,
}

#[derive(Debug)]
struct Entry {
    id: AtomicU64,
    /// The verb in the top byte, the length in the others.
    what: AtomicU64,
    /// The key of the first segment, zero for none.
    lkey: AtomicU32,
    /// For a shared queue: posted and not completed.
    busy: AtomicBool,
}

/// The user's view of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) id: u64,
    pub(crate) opcode: CompletionOpcode,
    pub(crate) length: usize,
    pub(crate) lkey: u32,
    pub(crate) kind: Kind,
}

/// The entries of one queue. A single owner posts; the thread that polls completions frees entries.
#[derive(Debug)]
pub(crate) struct WorkTable {
    slot: u32,
    generation: AtomicU32,
    kind: Kind,
    limit: u32,
    mask: u32,
    entries: Box<[Entry]>,
    posted: AtomicU32,
    completed: AtomicU32,
    /// Whether a completion has reported that the queue pair is in error.
    failed: AtomicBool,
    /// Whether datagrams arrive here, so that completions name their sender.
    datagrams: AtomicBool,
}

impl WorkTable {
    fn new(slot: u32, generation: u32, kind: Kind, limit: usize) -> Self {
        let limit = limit.clamp(1, MAX_ENTRIES);
        let size = limit.next_power_of_two();
        let entries = (0..size)
            .map(|_| Entry {
                id: AtomicU64::new(0),
                what: AtomicU64::new(0),
                lkey: AtomicU32::new(0),
                busy: AtomicBool::new(false),
            })
            .collect();
        Self {
            slot,
            generation: AtomicU32::new(generation),
            kind,
            limit: limit as u32,
            mask: size as u32 - 1,
            entries,
            posted: AtomicU32::new(0),
            completed: AtomicU32::new(0),
            failed: AtomicBool::new(false),
            datagrams: AtomicBool::new(false),
        }
    }

    /// Number of entries of the queue.
    pub(crate) fn limit(&self) -> usize {
        self.limit as usize
    }

    /// Number of places for additional data per entry.
    pub(crate) fn places(&self) -> usize {
        self.entries.len()
    }

    /// The index of the entry that an id of this table names.
    #[inline]
    pub(crate) fn place(&self, id: u64) -> usize {
        (id as u32 & self.mask) as usize
    }

    fn name(&self, index: u32) -> u64 {
        let generation = self.generation.load(Ordering::Relaxed);
        u64::from(self.slot) << (INDEX_BITS + GENERATION_BITS)
            | u64::from(generation) << INDEX_BITS
            | u64::from(index)
    }

    /// Takes an entry for a request and returns the id for the provider; `None` if all are outstanding.
    pub(crate) fn push(
        &self,
        id: u64,
        opcode: CompletionOpcode,
        length: usize,
        lkey: u32,
    ) -> Option<u64> {
        // Only the owner writes `posted`. Acquire: the poller has finished reading the entries that it freed.
        let posted = self.posted.load(Ordering::Relaxed);
        let completed = self.completed.load(Ordering::Acquire);
        if posted.wrapping_sub(completed) >= self.limit {
            return None;
        }
        let mut index = posted & self.mask;
        if self.kind == Kind::Shared {
            // Completions arrive in any order; some entry is free, because fewer than all are outstanding.
            while self.entries[index as usize].busy.load(Ordering::Acquire) {
                index = (index + 1) & self.mask;
            }
        }
        let entry = &self.entries[index as usize];
        entry.id.store(id, Ordering::Relaxed);
        let what = (opcode as u64) << 56 | length as u64;
        entry.what.store(what, Ordering::Relaxed);
        entry.lkey.store(lkey, Ordering::Relaxed);
        entry.busy.store(true, Ordering::Release);
        self.posted.store(posted.wrapping_add(1), Ordering::Release);
        Some(self.name(index))
    }

    /// Returns the last entries, which the provider refused; `ids` are the provider's, oldest first.
    pub(crate) fn withdraw(&self, ids: impl Iterator<Item = u64>) {
        let mut count = 0;
        for id in ids {
            self.entries[self.place(id)]
                .busy
                .store(false, Ordering::Release);
            count += 1;
        }
        let posted = self.posted.load(Ordering::Relaxed);
        self.posted
            .store(posted.wrapping_sub(count), Ordering::Release);
    }

    /// The request of a completion, whose entry and those before it are now free. `None` for an older generation.
    pub(crate) fn complete(&self, id: u64) -> Option<Found> {
        let generation = (id >> INDEX_BITS) as u32 & ((1 << GENERATION_BITS) - 1);
        if generation != self.generation.load(Ordering::Acquire) {
            return None;
        }
        let index = self.place(id);
        let entry = &self.entries[index];
        let what = entry.what.load(Ordering::Acquire);
        let found = Found {
            id: entry.id.load(Ordering::Acquire),
            opcode: opcode((what >> 56) as u8),
            length: (what & 0x00ff_ffff_ffff_ffff) as usize,
            lkey: entry.lkey.load(Ordering::Acquire),
            kind: self.kind,
        };
        entry.busy.store(false, Ordering::Release);
        if self.kind == Kind::Shared {
            // Several completion queues may complete concurrently.
            self.completed.fetch_add(1, Ordering::AcqRel);
        } else {
            let completed = self.completed.load(Ordering::Relaxed);
            let step = ((index as u32).wrapping_sub(completed) & self.mask) + 1;
            self.completed
                .store(completed.wrapping_add(step), Ordering::Release);
        }
        Some(found)
    }

    /// Discards all outstanding requests.
    pub(crate) fn reset(&self) {
        let next = (self.generation.load(Ordering::Relaxed) + 1) & ((1 << GENERATION_BITS) - 1);
        self.generation.store(next, Ordering::Release);
        self.posted.store(0, Ordering::Release);
        self.completed.store(0, Ordering::Release);
        self.failed.store(false, Ordering::Release);
    }

    /// Ends the table, whose queue is gone: it accepts no further completions. Returns the generation of the next one
    /// in its slot.
    fn retire(&self) -> u32 {
        self.reset();
        self.generation.swap(GONE, Ordering::AcqRel)
    }

    pub(crate) fn failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    pub(crate) fn set_failed(&self) {
        self.failed.store(true, Ordering::Release);
    }

    pub(crate) fn datagrams(&self) -> bool {
        self.datagrams.load(Ordering::Relaxed)
    }

    pub(crate) fn set_datagrams(&self) {
        self.datagrams.store(true, Ordering::Relaxed);
    }
}

fn opcode(number: u8) -> CompletionOpcode {
    use CompletionOpcode as O;
    [
        O::Send,
        O::Write,
        O::Read,
        O::CompareAndSwap,
        O::FetchAndAdd,
        O::Receive,
        O::ReceiveWriteWithImmediate,
    ]
    .into_iter()
    .find(|&opcode| opcode as u8 == number)
    .unwrap_or(O::Receive)
}

#[derive(Debug, Default)]
struct Slot {
    table: Option<Arc<WorkTable>>,
    next_generation: u32,
}

/// All tables of a device.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    slots: Mutex<(Vec<Slot>, Vec<u32>)>,
}

impl Registry {
    /// Creates a table of at least `limit` entries; `None` if there are too many.
    pub(crate) fn insert(&self, kind: Kind, limit: usize) -> Option<Arc<WorkTable>> {
        let mut guard = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let (slots, free) = &mut *guard;
        let slot = match free.pop() {
            Some(slot) => slot,
            None if slots.len() < 1 << SLOT_BITS => {
                slots.push(Slot::default());
                slots.len() as u32 - 1
            }
            None => return None,
        };
        let place = &mut slots[slot as usize];
        let table = Arc::new(WorkTable::new(slot, place.next_generation, kind, limit));
        place.table = Some(Arc::clone(&table));
        Some(table)
    }

    /// Removes `table`, whose queue is gone.
    pub(crate) fn remove(&self, table: &WorkTable) {
        let next_generation = table.retire();
        let mut guard = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let (slots, free) = &mut *guard;
        let place = &mut slots[table.slot as usize];
        place.table = None;
        place.next_generation = next_generation;
        free.push(table.slot);
    }

    fn at(&self, slot: u32) -> Option<Arc<WorkTable>> {
        let guard = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        guard.0.get(slot as usize)?.table.clone()
    }
}

/// The tables that one completion queue has used, found without a lock.
#[derive(Debug, Default)]
pub(crate) struct Met {
    tables: Vec<Option<Arc<WorkTable>>>,
}

impl Met {
    /// The table and the request of a completion.
    pub(crate) fn complete(&mut self, registry: &Registry, id: u64) -> Option<(&WorkTable, Found)> {
        let slot = (id >> (INDEX_BITS + GENERATION_BITS)) as u32;
        let at = slot as usize;
        let known = self.tables.get(at).and_then(Option::as_ref);
        let mut found = known.and_then(|table| table.complete(id));
        if found.is_none() {
            // New here, or the slot has been reassigned, or an outdated completion.
            let table = registry.at(slot)?;
            if self.tables.len() <= at {
                self.tables.resize(at + 1, None);
            }
            found = table.complete(id);
            self.tables[at] = Some(table);
        }
        let found = found?;
        Some((self.tables.get(at)?.as_ref()?, found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const W: CompletionOpcode = CompletionOpcode::Write;

    #[test]
    fn a_completion_frees_those_before_it() {
        let registry = Registry::default();
        let table = registry.insert(Kind::Send, 6).expect("a table");
        let ids: Vec<u64> = (0..6)
            .map(|i| table.push(i, W, 8, 0).expect("room"))
            .collect();
        assert_eq!(table.push(9, W, 0, 0), None);
        let found = table.complete(ids[3]).expect("known");
        assert_eq!((found.id, found.opcode, found.length), (3, W, 8));
        for i in 10..14 {
            table.push(i, W, 0, 0).expect("four came back");
        }
        assert_eq!(table.push(9, W, 0, 0), None);
    }

    #[test]
    fn withdrawn_is_free_again() {
        let registry = Registry::default();
        let table = registry.insert(Kind::Send, 2).expect("a table");
        let ids = [table.push(1, W, 0, 0), table.push(2, W, 0, 0)].map(|id| id.expect("room"));
        table.withdraw(ids[1..].iter().copied());
        let again = table.push(3, W, 0, 0).expect("room");
        assert_eq!(again, ids[1]);
        assert_eq!(table.complete(again).expect("known").id, 3);
    }

    #[test]
    fn shared_ones_complete_in_any_order() {
        let registry = Registry::default();
        let table = registry.insert(Kind::Shared, 3).expect("a table");
        let ids: Vec<u64> = (0..3)
            .map(|i| table.push(i, W, 0, 0).expect("room"))
            .collect();
        assert_eq!(table.complete(ids[1]).expect("known").id, 1);
        let next = table.push(7, W, 0, 0).expect("room");
        assert!(!ids.contains(&next) || next == ids[1]);
        assert_eq!(table.push(8, W, 0, 0), None);
        assert_eq!(table.complete(ids[0]).expect("known").id, 0);
        assert_eq!(table.complete(next).expect("known").id, 7);
    }

    #[test]
    fn completions_of_the_past_are_nobodys() {
        let registry = Registry::default();
        let mut met = Met::default();
        let table = registry.insert(Kind::Send, 4).expect("a table");
        let old = table.push(1, W, 0, 0).expect("room");
        table.reset();
        assert!(met.complete(&registry, old).is_none());
        let new = table.push(2, W, 0, 0).expect("room");
        assert_eq!(met.complete(&registry, new).map(|(_, f)| f.id), Some(2));
        let unfinished = table.push(3, W, 0, 0).expect("room");
        registry.remove(&table);
        let tenant = registry.insert(Kind::Receive, 4).expect("a table");
        assert!(met.complete(&registry, unfinished).is_none());
        let id = tenant.push(5, W, 0, 0).expect("room");
        assert_eq!(met.complete(&registry, id).map(|(_, f)| f.id), Some(5));
    }

    /// A completion queue has used the tables of a queue pair that is gone; those of the next one, in the same slots,
    /// receive their own completions.
    #[test]
    fn a_table_of_the_past_takes_no_completions() {
        let registry = Registry::default();
        let mut met = Met::default();
        let first = [Kind::Send, Kind::Receive].map(|kind| registry.insert(kind, 4));
        for table in first.iter().flatten() {
            let id = table.push(1, W, 8, 0).expect("room");
            assert_eq!(met.complete(&registry, id).map(|(_, f)| f.id), Some(1));
        }
        for table in first.iter().flatten() {
            registry.remove(table);
        }
        for kind in [Kind::Send, Kind::Receive] {
            let table = registry.insert(kind, 4).expect("a table");
            for number in 0..9 {
                let id = table.push(number, W, 8, 0).expect("room");
                let (_, found) = met.complete(&registry, id).expect("of the new one");
                assert_eq!((found.id, found.kind), (number, kind));
            }
        }
    }
}
