//! The reference implementation of [`Store`], for tests and the simulation: a map, with headers that keys share by
//! hash.
use crate::membership::Epoch;
use crate::placement::Placement;
use crate::store::{LockError, Store, Stored};
use crate::types::{Address, Key, Place, TransactionId, Update, Value, Version};
use dunlin_store::Header;
use std::collections::{BTreeMap, HashMap};
use std::hash::{Hash, Hasher};

/// Values may have any length, also in one-sided WRITEs.
const CAPACITY_BYTES: u32 = u32::MAX;

/// A store in memory. Addresses are indices, and a one-sided operation is a method.
#[derive(Clone, Debug)]
pub struct MemoryStore {
    headers: Vec<Cell>,
    shards: u64,
    index: HashMap<Key, usize>,
    items: Vec<Item>,
    items_max: usize,
    /// While it learns: the changed keys, each with its last version.
    learned: Option<HashMap<Key, Version>>,
}

#[derive(Clone, Copy, Debug, Default, Hash)]
struct Cell {
    version: Version,
    owner: Option<TransactionId>,
}

#[derive(Clone, Debug, Hash)]
struct Item {
    key: Key,
    value: Option<Value>,
}

impl MemoryStore {
    /// Creates a store of at most `items_max` items with this number of headers for each shard of the placement, at
    /// least one. With few headers, keys share them, like the keys of a bucket in MICA's table.
    pub fn new(placement: &Placement, headers: usize, items_max: usize) -> MemoryStore {
        let shards = placement.shards();
        MemoryStore {
            headers: vec![Cell::default(); headers.max(1) * shards],
            shards: shards as u64,
            index: HashMap::new(),
            items: Vec::new(),
            items_max,
            learned: None,
        }
    }

    /// Stores a value before the first transaction, with version 0.
    pub fn load(&mut self, key: Key, value: Value) -> Result<(), LockError> {
        let item = self.item(&key)?;
        self.items[item].value = Some(value);
        Ok(())
    }

    /// Returns all keys that have a value, in order.
    pub fn contents(&self) -> BTreeMap<Key, Value> {
        let present = |item: &Item| item.value.clone().map(|value| (item.key.clone(), value));
        self.items.iter().filter_map(present).collect()
    }

    /// The owners of locks.
    pub fn owners(&self) -> impl Iterator<Item = TransactionId> + '_ {
        self.headers.iter().filter_map(|cell| cell.owner)
    }

    /// A one-sided READ of a header; `None` if the address is invalid.
    pub fn header_at(&self, address: Address) -> Option<Header> {
        let cell = self.headers.get(usize::try_from(address.0).ok()?)?;
        let header = Header::new(cell.version.0, true);
        Some(match cell.owner {
            Some(_) => header.locked_by(0),
            None => header,
        })
    }

    /// A one-sided WRITE of an item. Returns whether the address is valid.
    pub fn write_item_at(&mut self, address: Address, value: Option<Value>) -> bool {
        let item = usize::try_from(address.0)
            .ok()
            .and_then(|at| self.items.get_mut(at));
        item.map(|item| item.value = value).is_some()
    }

    /// A one-sided WRITE of a header: the version, with the lock cleared. Returns whether the address is valid.
    pub fn write_header_at(&mut self, address: Address, version: Version) -> bool {
        let cell = usize::try_from(address.0)
            .ok()
            .and_then(|at| self.headers.get_mut(at));
        cell.map(|cell| {
            *cell = Cell {
                version,
                owner: None,
            }
        })
        .is_some()
    }

    fn item(&mut self, key: &Key) -> Result<usize, LockError> {
        if let Some(&item) = self.index.get(key) {
            return Ok(item);
        }
        if self.items.len() >= self.items_max {
            return Err(LockError::Full);
        }
        self.items.push(Item {
            key: key.clone(),
            value: None,
        });
        self.index.insert(key.clone(), self.items.len() - 1);
        Ok(self.items.len() - 1)
    }

    fn header_of(&self, key: &Key) -> usize {
        let in_shard = self.headers.len() as u64 / self.shards;
        (Placement::shard_of(key, self.shards) * in_shard + key.spread() % in_shard) as usize
    }
}

/// Covers everything that can affect the store's behaviour: its maps are derived from its items, or are hashed in
/// order.
impl Hash for MemoryStore {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.headers.hash(state);
        self.items.hash(state);
        let learned = self.learned.as_ref();
        let learned: Option<BTreeMap<&Key, &Version>> = learned.map(|map| map.iter().collect());
        learned.hash(state);
    }
}

impl Store for MemoryStore {
    fn read(&self, key: &Key) -> Stored {
        let header = self.header_of(key);
        let cell = self.headers[header];
        let item = self.index.get(key).copied();
        Stored {
            value: item.and_then(|item| self.items[item].value.clone()),
            version: cell.version,
            owner: cell.owner,
            raised: None,
            place: Place {
                header: Address(header as u64),
                item: Address(item.map_or(u64::MAX, |item| item as u64)),
                capacity: item.map(|_| CAPACITY_BYTES),
            },
        }
    }

    fn try_lock(
        &mut self,
        key: &Key,
        owner: TransactionId,
        _room: u32,
    ) -> Result<Stored, LockError> {
        let header = self.header_of(key);
        if let Some(other) = self.headers[header].owner.filter(|&other| other != owner) {
            return Err(LockError::Held(other));
        }
        self.item(key)?;
        self.headers[header].owner = Some(owner);
        Ok(self.read(key))
    }

    fn install(&mut self, update: &Update, owner: TransactionId) -> bool {
        let header = self.header_of(&update.key);
        if self.headers[header].owner != Some(owner) {
            return false;
        }
        let Ok(item) = self.item(&update.key) else {
            return false;
        };
        self.items[item].value = update.value.clone();
        self.headers[header].version = update.version;
        true
    }

    fn unlock(&mut self, key: &Key, owner: TransactionId) {
        let header = self.header_of(key);
        let cell = &mut self.headers[header];
        if cell.owner == Some(owner) {
            cell.owner = None;
        }
    }

    fn apply(&mut self, updates: &[Update]) -> Result<(), LockError> {
        let before: Vec<Version> = updates
            .iter()
            .map(|update| self.headers[self.header_of(&update.key)].version)
            .collect();
        for (update, before) in updates.iter().zip(&before) {
            if update.version > *before {
                // Checked first, so that either all of them fit or nothing changes.
                self.item(&update.key)?;
            }
        }
        for (update, before) in updates.iter().zip(before) {
            if update.version > before {
                let (item, header) = (self.item(&update.key)?, self.header_of(&update.key));
                self.items[item].value = update.value.clone();
                self.headers[header].version = update.version;
            }
            if let Some(learned) = &mut self.learned {
                learned.insert(update.key.clone(), update.version);
            }
        }
        Ok(())
    }

    fn new_epoch(&mut self, epoch: Epoch) {
        // Absent keys share headers with others, so all are raised: a machine that comes back alone may lack a change
        // that was visible through the version of its header, although it was reported to nobody.
        let version = epoch.first_version();
        for header in &mut self.headers {
            header.version = header.version.max(version);
        }
    }

    fn learn(&mut self, learns: bool) {
        self.learned = learns.then(HashMap::new);
    }

    fn chunk(
        &self,
        cursor: u64,
        bytes: usize,
        wanted: &dyn Fn(&Key) -> bool,
    ) -> (Vec<Update>, Option<u64>) {
        // Item numbers are local to this store, so items are ordered by key.
        let keys: BTreeMap<&Key, usize> = self.index.iter().map(|(key, at)| (key, *at)).collect();
        let (mut items, mut taken) = (Vec::new(), 0);
        for (next, (key, at)) in (cursor..).zip(keys.iter().skip(cursor as usize)) {
            if taken > bytes {
                return (items, Some(next));
            }
            if wanted(key) {
                let value = self.items[*at].value.clone();
                taken += 32 + value.as_ref().map_or(0, |value| value.len());
                items.push(Update {
                    key: (*key).clone(),
                    value,
                    version: self.headers[self.header_of(key)].version,
                });
            }
        }
        (items, None)
    }

    fn adopt(&mut self, items: &[Update]) -> Result<(), LockError> {
        for update in items {
            let Some(learned) = &self.learned else {
                return Ok(());
            };
            let known = learned.get(&update.key);
            if known.is_none_or(|version| *version < update.version) {
                let (item, header) = (self.item(&update.key)?, self.header_of(&update.key));
                self.items[item].value = update.value.clone();
                let version = &mut self.headers[header].version;
                *version = update.version.max(*version);
            }
        }
        Ok(())
    }
}
