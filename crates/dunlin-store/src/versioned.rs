//! Operations of transactions, which determine the versions of items themselves.
//!
//! A transaction locks the items that it will change, including those that do not exist yet, sets their values while it
//! holds the locks, and releases them at its end. No operation waits: if another owner holds a lock, it fails at once.

use std::sync::atomic::{fence, Ordering};

use dunlin_verbs::Region;

use crate::header::{Header, WRITER};
use crate::layout::{ItemAddress, KEYS_PER_BUCKET, KEY_OFFSET, VALUE_OFFSET};
use crate::table::{busy, check_owner, pause, Place, ATTEMPTS, CONTROL};
use crate::{StoreError, Table};

impl<R: Region> Table<R> {
    /// Like [`Table::get`], but also returns the location of the item; does not wait for an item that an owner has
    /// locked.
    pub fn read(&self, key: u64, value: &mut [u8]) -> Result<(ItemAddress, Header), StoreError> {
        self.check_length(value.len())?;
        let mut seen = Header::default();
        for attempt in 0..ATTEMPTS {
            let place = self.find(key)?.ok_or(StoreError::Absent(key))?;
            seen = self.header(place);
            if seen.is_locked() && seen.owner() != WRITER {
                break;
            }
            if !seen.is_locked() && seen.is_present() && self.key(place) == key {
                self.memory().read(place.item + VALUE_OFFSET, value);
                fence(Ordering::Acquire);
                // As for [`Table::get`].
                let is_same = self.word(place.item).load(Ordering::Relaxed) == seen.0;
                if is_same && self.key(place) == key {
                    return Ok((address(place), seen));
                }
            }
            pause(attempt);
        }
        Err(busy(key, seen))
    }

    /// Copies the value of an item that `owner` has locked. Its header tells whether there is one.
    pub fn read_locked(
        &self,
        key: u64,
        owner: u16,
        value: &mut [u8],
    ) -> Result<(ItemAddress, Header), StoreError> {
        self.check_length(value.len())?;
        let (place, header) = self.held(key, owner)?;
        if header.is_present() {
            self.memory().read(place.item + VALUE_OFFSET, value);
        }
        Ok((address(place), header))
    }

    /// Creates an item for a key that does not exist, locked by `owner` and without a value, so that no one else
    /// inserts it and its value has a place to be written to. `version` is called for the item's version once others
    /// can already find the item; its argument is the highest version that the place has had, below which the result
    /// must not be.
    pub fn reserve(
        &self,
        key: u64,
        owner: u16,
        version: impl FnOnce(u64) -> u64,
    ) -> Result<(ItemAddress, Header), StoreError> {
        check_owner(owner)?;
        let _chain = self.lock_chain(key);
        let place = self.occupy(key, owner)?;
        let before = Header(self.word(place.item).load(Ordering::Relaxed));
        let header = Header::new(version(before.version()), false).locked_by(owner);
        self.word(place.item).store(header.0, Ordering::Release);
        Ok((address(place), header))
    }

    /// Sets the value, or its absence, and the version of an item that `owner` has locked. The lock stays.
    pub fn set_locked(
        &self,
        key: u64,
        owner: u16,
        value: Option<&[u8]>,
        version: u64,
    ) -> Result<(), StoreError> {
        value.map_or(Ok(()), |value| self.check_length(value.len()))?;
        let (place, _) = self.held(key, owner)?;
        if let Some(value) = value {
            self.memory().write(place.item + VALUE_OFFSET, value);
        }
        let header = Header::new(version, value.is_some()).locked_by(owner);
        self.word(place.item).store(header.0, Ordering::Release);
        Ok(())
    }

    /// Releases the lock of `owner`. An item without a value is removed.
    pub fn release(&self, key: u64, owner: u16) -> Result<(), StoreError> {
        let (place, header) = self.held(key, owner)?;
        if header.is_present() {
            let word = self.word(place.item);
            word.store(header.unlocked().0, Ordering::Release);
            return Ok(());
        }
        let _chain = self.lock_chain(key);
        self.take_out(key, place, header.unlocked())
    }

    /// Stores what another copy of the table has decided: a value, or that there is none, with its version. Returns
    /// whether it was newer than the current one.
    ///
    /// The other table has counted the versions, so a place that is freed and reused may then have a lower version, or
    /// the same: a client that has kept the address of an item compares the key, too.
    pub fn apply(&self, key: u64, value: Option<&[u8]>, version: u64) -> Result<bool, StoreError> {
        value.map_or(Ok(()), |value| self.check_length(value.len()))?;
        let _chain = self.lock_chain(key);
        let place = match (self.lock_item(key, WRITER, ATTEMPTS), value) {
            (Ok((place, before)), _) if before.version() >= version => {
                let word = self.word(place.item);
                word.store(before.unlocked().0, Ordering::Release);
                return Ok(false);
            }
            (Ok((place, _)), _) => place,
            (Err(StoreError::Absent(_)), Some(_)) => self.occupy(key, WRITER)?,
            (Err(StoreError::Absent(_)), None) => return Ok(true),
            (Err(other), _) => return Err(other),
        };
        let header = Header::new(version, value.is_some());
        let Some(value) = value else {
            return self.take_out(key, place, header).map(|()| true);
        };
        fence(Ordering::Release);
        self.memory().write(place.item + VALUE_OFFSET, value);
        self.word(place.item).store(header.0, Ordering::Release);
        Ok(true)
    }

    /// Whether there is an item for the key, with or without a value. Other threads may change this at any moment.
    pub fn contains(&self, key: u64) -> bool {
        matches!(self.find(key), Ok(Some(_)))
    }

    /// Removes an item that [`Table::apply`] has inserted with this version; an item with another version stays.
    pub fn take_back(&self, key: u64, version: u64) -> Result<(), StoreError> {
        let _chain = self.lock_chain(key);
        let (place, header) = self.lock_item(key, WRITER, ATTEMPTS)?;
        if header.version() != version {
            let word = self.word(place.item);
            word.store(header.unlocked().0, Ordering::Release);
            return Ok(());
        }
        self.take_out(key, place, Header::new(version, false))
    }

    /// Calls back with every item of a main bucket's chain that has a value: key, header and value, locked or not.
    /// Concurrent changes may be seen torn, so the caller must exclude them.
    pub fn items_of(
        &self,
        main: u32,
        mut show: impl FnMut(u64, Header, &[u8]),
    ) -> Result<(), StoreError> {
        let mut value = vec![0; self.layout().value_bytes()];
        let mut bucket = main;
        for _ in 0..=self.layout().overflow_buckets() {
            let control = self
                .word(self.layout().bucket_offset(bucket) + CONTROL)
                .load(Ordering::Acquire);
            for slot in (0..KEYS_PER_BUCKET).filter(|slot| control >> slot & 1 != 0) {
                let item = self.layout().item_offset(bucket, slot);
                let place = Place { bucket, slot, item };
                let header = self.header(place);
                if header.is_present() {
                    self.memory().read(item + VALUE_OFFSET, &mut value);
                    show(self.key(place), header, &value);
                }
            }
            match self.layout().next_bucket(control) {
                Ok(None) => return Ok(()),
                Ok(Some(next)) => bucket = next,
                Err(_) => break,
            }
        }
        Err(StoreError::Damaged { bucket: main })
    }

    /// Creates a locked item without a value for a key that does not exist, whose chain the caller has locked.
    fn occupy(&self, key: u64, owner: u16) -> Result<Place, StoreError> {
        let (bucket, slot) = self.vacancy(key)?;
        let item = self.layout().item_offset(bucket, slot);
        let before = Header(self.word(item).load(Ordering::Relaxed));
        let header = Header::new(before.version(), false).locked_by(owner);
        self.word(item).store(header.0, Ordering::Relaxed);
        fence(Ordering::Release);
        self.word(item + KEY_OFFSET).store(key, Ordering::Relaxed);
        let line = self.layout().bucket_offset(bucket);
        self.word(line + slot * 8).store(key, Ordering::Relaxed);
        self.word(line + CONTROL)
            .fetch_or(1 << slot, Ordering::SeqCst);
        Ok(Place { bucket, slot, item })
    }

    /// The place of a key that `owner` has locked, with or without a value.
    fn held(&self, key: u64, owner: u16) -> Result<(Place, Header), StoreError> {
        check_owner(owner)?;
        let place = self.find(key)?.ok_or(StoreError::Absent(key))?;
        let header = self.header(place);
        if !header.is_locked() || header.owner() != owner || self.key(place) != key {
            return Err(StoreError::NotLocked { key, owner });
        }
        Ok((place, header))
    }
}

fn address(place: Place) -> ItemAddress {
    ItemAddress {
        header: place.item,
        value: place.item + VALUE_OFFSET,
    }
}
