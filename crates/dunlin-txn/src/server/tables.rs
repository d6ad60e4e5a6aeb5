//! Tables in registered memory as the [`Store`] of a participant.
//!
//! The layout of their regions is in [`shape`](super::shape). An absent key has the version of its *absence header*,
//! which many keys share; inserting or deleting one of them raises it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{fence, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dunlin_store::{Header, ItemAddress, StoreError, Table, MAX_OWNER, WRITER};
use dunlin_verbs::Region;

use super::shape::{
    absence_offset, address_of, decode_value, encode_value, TableSpec, ABSENCE_HEADERS,
    LENGTH_BYTES,
};
use crate::membership::Epoch;
use crate::store::{LockError, Store, Stored};
use crate::types::{Address, Key, Place, Raised, SlotMap, TransactionId, Update, Version};

/// Approximate number of items in a chunk that is copied.
const ITEMS_OF_CHUNK: usize = 10_000;
/// Number of reads of an item that a thread of this process is changing before it counts as locked.
const LOOKS: usize = 64;

/// No transaction: the owner of a lock that is free or unknown.
const NOBODY: TransactionId = TransactionId {
    coordinator: 0,
    slot: 0,
    sequence: 1,
};

/// The tables of a machine, shared by all of its participants.
#[derive(Debug)]
pub(crate) struct Tables<R: Region> {
    tables: Vec<OneTable<R>>,
    /// By the owner number in headers: the transaction that holds the lock.
    owners: Box<[Mutex<TransactionId>]>,
    /// While the machine copies: keys that have been deleted meanwhile, with the versions of their deletions.
    gone: Mutex<Option<HashMap<Key, Version>>>,
}

#[derive(Debug)]
struct OneTable<R: Region> {
    id: u16,
    table: Table<R>,
}

impl<R: Region> Tables<R> {
    /// Creates tables in these regions, each as long as [`TableSpec::region_bytes`] requires.
    pub(crate) fn create(specs: &[TableSpec], regions: Vec<R>) -> Result<Self, StoreError> {
        let tables = specs.iter().zip(regions).map(|(spec, region)| {
            let layout = spec.layout()?;
            let (needed, length) = (TableSpec::region_bytes(&layout), region.memory().len());
            if needed > length {
                return Err(StoreError::Memory { needed, length });
            }
            let from = absence_offset(&layout);
            region.memory().fill(from, needed - from, 0);
            let table = Table::create(region, layout)?;
            Ok(OneTable { id: spec.id, table })
        });
        Ok(Tables {
            tables: tables.collect::<Result<_, _>>()?,
            owners: (0..MAX_OWNER).map(|_| Mutex::new(NOBODY)).collect(),
            gone: Mutex::default(),
        })
    }

    fn gone(&self) -> MutexGuard<'_, Option<HashMap<Key, Version>>> {
        self.gone.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn owner(&self, number: u16) -> Option<TransactionId> {
        let owner = self.owners.get(usize::from(number))?;
        Some(*owner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The table of a key, its index among the regions, and the key in the table's own form.
    fn find(&self, key: &Key) -> Option<(usize, &Table<R>, u64)> {
        let number = key.as_number()?;
        let found = self.tables.iter().position(|one| one.id == key.table())?;
        Some((found, &self.tables[found].table, number))
    }
}

fn absence<'t, R: Region>(table: &'t Table<R>, key: &Key) -> (usize, &'t AtomicU64) {
    let header = key.spread() as usize % ABSENCE_HEADERS;
    let offset = absence_offset(table.layout()) + 8 * header;
    (offset, table.region().memory().atomic_u64(offset))
}

/// Raises the version of absent keys to at least this one.
fn raise(absence: &AtomicU64, version: u64) {
    absence.fetch_max(Header::new(version, false).0, Ordering::SeqCst);
}

/// The tables as used by one participant, with owner numbers of its own.
#[derive(Debug)]
pub(crate) struct TableStore<R: Region> {
    tables: Arc<Tables<R>>,
    numbers: SlotMap<u16>,
    free: Vec<u16>,
    buffer: RefCell<Vec<u8>>,
}

impl<R: Region> TableStore<R> {
    /// Creates this many stores over the same tables and divides the owner numbers among them.
    pub(crate) fn divide(tables: &Arc<Tables<R>>, count: usize) -> Vec<TableStore<R>> {
        let numbers: Vec<u16> = (0..MAX_OWNER).collect();
        let share = numbers.len() / count.max(1);
        let store = |free: &[u16]| TableStore {
            tables: Arc::clone(tables),
            numbers: SlotMap::default(),
            free: free.to_vec(),
            buffer: RefCell::default(),
        };
        numbers.chunks_exact(share.max(1)).map(store).collect()
    }

    /// Number of coordinators' slots that may hold locks.
    pub(crate) fn owners_max(&self) -> usize {
        self.free.len() + self.numbers.len()
    }

    /// Stores a value before the first transaction, with version 0 or above.
    pub(crate) fn load(&mut self, key: &Key, value: &[u8]) -> Result<(), StoreError> {
        let Some((_, table, number)) = self.tables.find(key) else {
            return Err(StoreError::Absent(0));
        };
        let mut place = self.buffer.borrow_mut();
        encode_value(value, &mut place);
        let (bytes, expected) = (place.len(), table.layout().value_bytes());
        if bytes > expected {
            return Err(StoreError::ValueLength { bytes, expected });
        }
        place.resize(expected, 0);
        table.apply(number, Some(&place), 0).map(drop)
    }

    fn number(&mut self, owner: TransactionId) -> Option<u16> {
        let slot = (owner.coordinator, owner.slot);
        let number = match self.numbers.get(&slot) {
            Some(number) => *number,
            None => {
                let number = self.free.pop()?;
                self.numbers.insert(slot, number);
                number
            }
        };
        let name = self.tables.owners.get(usize::from(number))?;
        *name.lock().unwrap_or_else(PoisonError::into_inner) = owner;
        Some(number)
    }

    /// The owner number of exactly this transaction, if it has locked something.
    fn known(&self, owner: TransactionId) -> Option<u16> {
        let number = *self.numbers.get(&(owner.coordinator, owner.slot))?;
        (self.tables.owner(number)? == owner).then_some(number)
    }

    /// Whether the machine is copying the others' data.
    pub(crate) fn is_learning(&self) -> bool {
        self.tables.gone().is_some()
    }

    /// A value in the form in which it is stored in a place of this length, if it fits.
    fn padded<'b>(value: &[u8], length: usize, place: &'b mut Vec<u8>) -> Option<&'b [u8]> {
        encode_value(value, place);
        if place.len() > length {
            return None;
        }
        place.resize(length, 0);
        Some(place)
    }

    fn check_length(&self, update: &Update) -> Result<(), LockError> {
        let (_, table, _) = self.tables.find(&update.key).ok_or(LockError::Unknown)?;
        let length = update.value.as_ref().map_or(0, |value| value.len());
        match LENGTH_BYTES + length <= table.layout().value_bytes() {
            true => Ok(()),
            false => Err(LockError::Unknown),
        }
    }

    /// Whether a change inserts an item.
    fn is_insert(&self, update: &Update) -> bool {
        let found = self.tables.find(&update.key);
        let is_there = found.is_some_and(|(_, table, number)| table.contains(number));
        update.value.is_some() && !is_there
    }

    /// Undoes an insertion by [`Self::apply_one`].
    fn take_back(&self, update: &Update) {
        if let Some((_, table, number)) = self.tables.find(&update.key) {
            if let Err(error) = table.take_back(number, update.version.0) {
                tracing::error!(key = %update.key, %error, "cannot undo an insertion");
            }
        }
    }

    fn apply_one(&self, update: &Update) -> Result<(), LockError> {
        let mut place = self.buffer.borrow_mut();
        let (_, table, number) = self.tables.find(&update.key).ok_or(LockError::Unknown)?;
        let length = table.layout().value_bytes();
        let value = match &update.value {
            Some(value) => {
                let padded = Self::padded(value, length, &mut place);
                Some(padded.ok_or(LockError::Unknown)?)
            }
            None => None,
        };
        if value.is_none() {
            // So that the versions of the key continue from here if this copy becomes the primary's.
            raise(absence(table, &update.key).1, update.version.0);
            if let Some(gone) = self.tables.gone().as_mut() {
                gone.insert(update.key.clone(), update.version);
            }
        }
        let applied = table.apply(number, value, update.version.0);
        applied.map(drop).map_err(|_| LockError::Full)
    }

    fn stored(
        &self,
        region: usize,
        capacity: usize,
        (address, header): (ItemAddress, Header),
        owner: Option<TransactionId>,
    ) -> Stored {
        let at = |offset: usize| address_of(region, offset);
        Stored {
            value: header
                .is_present()
                .then(|| decode_value(&self.buffer.borrow())),
            version: Version(header.version()),
            owner,
            raised: None,
            place: Place {
                header: at(address.header),
                item: at(address.value),
                capacity: Some((capacity - LENGTH_BYTES) as u32),
            },
        }
    }
}

/// The state of a key that belongs to no table here: absent, without a place.
fn nowhere() -> Stored {
    Stored {
        value: None,
        version: Version(0),
        owner: None,
        raised: None,
        place: Place {
            header: Address(u64::MAX),
            item: Address(u64::MAX),
            capacity: None,
        },
    }
}

impl<R: Region> Store for TableStore<R> {
    fn read(&self, key: &Key) -> Stored {
        let Some((region, table, number)) = self.tables.find(key) else {
            return nowhere();
        };
        let length = table.layout().value_bytes();
        let (offset, absence) = absence(table, key);
        self.buffer.borrow_mut().resize(length, 0);
        let mut holder = None;
        for _ in 0..LOOKS {
            let before = absence.load(Ordering::SeqCst);
            let found = table.read(number, &mut self.buffer.borrow_mut());
            match found {
                Ok(found) => return self.stored(region, length, found, None),
                Err(StoreError::Locked { owner: WRITER, .. }) => {}
                Err(StoreError::Locked { owner, .. }) => {
                    holder = self.tables.owner(owner);
                    let found = table.read_locked(number, owner, &mut self.buffer.borrow_mut());
                    if let Ok(found) = found {
                        return self.stored(region, length, found, holder);
                    }
                }
                Err(StoreError::Absent(_)) => {
                    fence(Ordering::SeqCst);
                    // Unchanged, so the key was absent at this version during the whole lookup.
                    if absence.load(Ordering::SeqCst) == before {
                        let header = Header(before);
                        let at = address_of(region, offset);
                        return Stored {
                            value: None,
                            version: Version(header.version()),
                            owner: None,
                            raised: None,
                            place: Place {
                                header: at,
                                item: Address(u64::MAX),
                                capacity: None,
                            },
                        };
                    }
                }
                Err(_) => {}
            }
        }
        // It changed during every attempt: treated as locked.
        Stored {
            owner: Some(holder.unwrap_or(NOBODY)),
            ..nowhere()
        }
    }

    fn try_lock(
        &mut self,
        key: &Key,
        owner: TransactionId,
        room: u32,
    ) -> Result<Stored, LockError> {
        let me = self.number(owner).ok_or(LockError::Full)?;
        let (region, table, number) = self.tables.find(key).ok_or(LockError::Unknown)?;
        let length = table.layout().value_bytes();
        if room as usize + LENGTH_BYTES > length {
            return Err(LockError::Unknown);
        }
        self.buffer.borrow_mut().resize(length, 0);
        let (mut holder, mut raised) = (None, None);
        for _ in 0..LOOKS {
            let locked = match table.try_lock(number, me) {
                Ok(_) => true,
                Err(StoreError::Locked { owner, .. }) if owner == me => true,
                Err(StoreError::Locked { owner: WRITER, .. } | StoreError::Contended(_)) => false,
                Err(StoreError::Locked { owner, .. }) => {
                    holder = self.tables.owner(owner);
                    break;
                }
                Err(StoreError::Absent(_)) => {
                    let (offset, absence) = absence(table, key);
                    // Above all versions at which the key was absent: whoever saw one must find it changed.
                    let version = |of_place: u64| loop {
                        let before = absence.load(Ordering::SeqCst);
                        let version = Header(before).version().max(of_place) + 1;
                        let after = Header::new(version, false).0;
                        let order = Ordering::SeqCst;
                        if absence
                            .compare_exchange(before, after, order, order)
                            .is_ok()
                        {
                            raised = Some(Raised {
                                header: address_of(region, offset),
                                from: Version(Header(before).version()),
                                to: Version(version),
                            });
                            return version;
                        }
                    };
                    match table.reserve(number, me, version) {
                        Ok(_) => true,
                        Err(StoreError::Exists(_)) => false,
                        Err(_) => return Err(LockError::Full),
                    }
                }
                Err(_) => return Err(LockError::Full),
            };
            if locked {
                let found = table.read_locked(number, me, &mut self.buffer.borrow_mut());
                if let Ok(found) = found {
                    let stored = self.stored(region, length, found, Some(owner));
                    return Ok(Stored { raised, ..stored });
                }
            }
        }
        Err(LockError::Held(holder.unwrap_or(NOBODY)))
    }

    fn install(&mut self, update: &Update, owner: TransactionId) -> bool {
        let found = self.known(owner).zip(self.tables.find(&update.key));
        let Some((me, (_, table, number))) = found else {
            return false;
        };
        let version = update.version.0;
        let mut place = self.buffer.borrow_mut();
        let Some(value) = &update.value else {
            raise(absence(table, &update.key).1, version);
            return table.set_locked(number, me, None, version).is_ok();
        };
        let length = table.layout().value_bytes();
        match Self::padded(value, length, &mut place) {
            Some(bytes) => table.set_locked(number, me, Some(bytes), version).is_ok(),
            None => false,
        }
    }

    fn unlock(&mut self, key: &Key, owner: TransactionId) {
        if let Some((me, (_, table, number))) = self.known(owner).zip(self.tables.find(key)) {
            // If it is no longer locked it was unlocked one-sided.
            let _ = table.release(number, me);
        }
    }

    fn apply(&mut self, updates: &[Update]) -> Result<(), LockError> {
        if let [update] = updates {
            return self.apply_one(update);
        }
        updates.iter().try_for_each(|one| self.check_length(one))?;
        // Only an absent key needs space, and only its insertion can be undone: those come first.
        let (inserts, others): (Vec<&Update>, Vec<&Update>) =
            updates.iter().partition(|update| self.is_insert(update));
        for (done, update) in inserts.iter().enumerate() {
            if let Err(error) = self.apply_one(update) {
                inserts[..done].iter().for_each(|one| self.take_back(one));
                return Err(error);
            }
        }
        others.into_iter().try_for_each(|one| self.apply_one(one))
    }

    fn new_epoch(&mut self, epoch: Epoch) {
        // The previous primary may have assigned versions to absent keys that no copy knows.
        let version = epoch.first_version().0;
        for one in &self.tables.tables {
            let from = absence_offset(one.table.layout());
            for header in 0..ABSENCE_HEADERS {
                let memory = one.table.region().memory();
                raise(memory.atomic_u64(from + 8 * header), version);
            }
        }
    }

    fn learn(&mut self, learns: bool) {
        let mut gone = self.tables.gone();
        if gone.is_some() != learns {
            *gone = learns.then(HashMap::new);
        }
    }

    fn chunk(
        &self,
        cursor: u64,
        bytes: usize,
        wanted: &dyn Fn(&Key) -> bool,
    ) -> (Vec<Update>, Option<u64>) {
        let (mut items, mut taken) = (Vec::new(), 0);
        let (first, mut bucket) = ((cursor >> 32) as usize, cursor as u32);
        for (number, one) in self.tables.tables.iter().enumerate().skip(first) {
            while bucket < one.table.layout().main_buckets() {
                if taken > bytes || items.len() > ITEMS_OF_CHUNK {
                    return (items, Some((number as u64) << 32 | u64::from(bucket)));
                }
                // A damaged chain contains nothing that could be copied.
                let _ = one.table.items_of(bucket, |key, header, place| {
                    let key = Key::number(one.id, key);
                    if wanted(&key) {
                        taken += 32 + place.len();
                        items.push(Update {
                            key,
                            value: Some(decode_value(place)),
                            version: Version(header.version()),
                        });
                    }
                });
                taken += 1;
                bucket += 1;
            }
            bucket = 0;
        }
        (items, None)
    }

    fn adopt(&mut self, items: &[Update]) -> Result<(), LockError> {
        let left: Vec<Update> = {
            let gone = self.tables.gone();
            let is_gone = |item: &Update| {
                let known = gone.as_ref().and_then(|gone| gone.get(&item.key));
                known.is_some_and(|version| *version >= item.version)
            };
            items
                .iter()
                .filter(|item| !is_gone(item))
                .cloned()
                .collect()
        };
        self.apply(&left)
    }

    fn forget(&mut self, coordinator: u64, slot: u16) {
        if let Some(number) = self.numbers.remove(&(coordinator, slot)) {
            self.free.push(number);
        }
    }
}

#[cfg(test)]
mod tests;
