//! The table: lookups without a lock, changes of items under the lock in their header, changes of chains under a mutex.
//!
//! A reader reads an item's header, its key and value, and the header again: if both headers are equal and unlocked,
//! the copy is consistent. A chain changes under the mutex of its stripe, which is private memory, so no peer can hold
//! it. An overflow bucket that becomes empty leaves its chain; a reader that might have followed it into another chain
//! detects this by the stripe's count of such changes, and retries.

use std::sync::atomic::{fence, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use dunlin_verbs::{Memory, Region};

use crate::header::{Header, MAX_OWNER, WRITER};
use crate::layout::{ItemAddress, Layout, KEYS_PER_BUCKET, KEY_OFFSET, VALUE_OFFSET};
use crate::pool::Pool;
use crate::StoreError;

/// Number of times that an operation retries on an item that is being changed before it fails: a writer of this process
/// needs no longer than a copy of 4 KiB takes, unless its thread was interrupted.
pub(crate) const ATTEMPTS: usize = 1000;
/// Attempts before a reader yields its core, in case the writer was interrupted.
const QUICK_ATTEMPTS: usize = 64;
/// Stripes of chains: far more than there are threads that change chains at once.
const MAX_STRIPES: u32 = 1024;
const OCCUPIED: u64 = (1 << KEYS_PER_BUCKET) - 1;
pub(crate) const CONTROL: usize = KEYS_PER_BUCKET * 8;

/// A place in the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) bucket: u32,
    pub(crate) slot: usize,
    pub(crate) item: usize,
}

#[derive(Debug, Default)]
struct Stripe {
    chains: Mutex<()>,
    unlinked: AtomicU64,
}

/// A table in a region's memory.
#[derive(Debug)]
pub struct Table<R: Region> {
    region: R,
    layout: Layout,
    stripes: Box<[Stripe]>,
    pool: Mutex<Pool>,
}

impl<R: Region> Table<R> {
    /// Creates an empty table at the start of `region`, whose bytes it clears.
    pub fn create(region: R, layout: Layout) -> Result<Self, StoreError> {
        let (needed, length) = (layout.bytes(), region.memory().len());
        if needed > length {
            return Err(StoreError::Memory { needed, length });
        }
        region.memory().fill(0, needed, 0);
        let stripes = layout.main_buckets().min(MAX_STRIPES);
        Ok(Self {
            region,
            stripes: (0..stripes).map(|_| Stripe::default()).collect(),
            pool: Mutex::new(Pool::new(layout.overflow_buckets())),
            layout,
        })
    }

    /// The layout of its memory; [`Layout::describe`] encodes it for clients.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The region that holds the table.
    pub fn region(&self) -> &R {
        &self.region
    }

    /// Copies the value of `key` into `value` and returns its version. If this fails, the contents of `value` are
    /// undefined.
    #[inline]
    pub fn get(&self, key: u64, value: &mut [u8]) -> Result<u64, StoreError> {
        self.check_length(value.len())?;
        let mut seen = Header::default();
        for attempt in 0..ATTEMPTS {
            let place = self.find(key)?.ok_or(StoreError::Absent(key))?;
            let before = self.header(place);
            seen = before;
            if !before.is_locked() && before.is_present() && self.key(place) == key {
                self.memory().read(place.item + VALUE_OFFSET, value);
                fence(Ordering::Acquire);
                // The key is checked again: where another table's versions are applied, the place may have the same
                // version twice.
                let is_same = self.word(place.item).load(Ordering::Relaxed) == before.0;
                if is_same && self.key(place) == key {
                    return Ok(before.version());
                }
            }
            pause(attempt);
        }
        Err(busy(key, seen))
    }

    /// Returns the current location of the item of `key`, and its header. Once the version has changed, the place may
    /// belong to another key.
    pub fn address_of(&self, key: u64) -> Result<(ItemAddress, Header), StoreError> {
        for attempt in 0..ATTEMPTS {
            let place = self.find(key)?.ok_or(StoreError::Absent(key))?;
            let header = self.header(place);
            if header.is_present() && self.key(place) == key {
                let address = ItemAddress {
                    header: place.item,
                    value: place.item + VALUE_OFFSET,
                };
                return Ok((address, header));
            }
            pause(attempt);
        }
        Err(StoreError::Contended(key))
    }

    /// Inserts a key that does not exist, and returns its version.
    pub fn insert(&self, key: u64, value: &[u8]) -> Result<u64, StoreError> {
        self.check_length(value.len())?;
        let _chain = self.lock_chain(key);
        let (bucket, slot) = self.vacancy(key)?;
        let item = self.layout.item_offset(bucket, slot);
        // A free place has no owner. Whatever a peer may have written there, only its version is used.
        let header = Header(self.word(item).load(Ordering::Relaxed));
        self.word(item)
            .store(header.locked_by(WRITER).0, Ordering::Relaxed);
        fence(Ordering::Release);
        self.word(item + KEY_OFFSET).store(key, Ordering::Relaxed);
        self.memory().write(item + VALUE_OFFSET, value);
        let line = self.layout.bucket_offset(bucket);
        self.word(line + slot * 8).store(key, Ordering::Relaxed);
        let header = header.changed(true);
        self.word(item).store(header.0, Ordering::Release);
        self.word(line + CONTROL)
            .fetch_or(1 << slot, Ordering::Release);
        Ok(header.version())
    }

    /// Finds a place for a key that does not exist; the caller has locked its chain.
    pub(crate) fn vacancy(&self, key: u64) -> Result<(u32, usize), StoreError> {
        let mut free = None;
        let mut last = self.layout.main_bucket(key);
        let found = self.walk(key, |bucket, line| {
            last = bucket;
            if free.is_none() && line[KEYS_PER_BUCKET] & OCCUPIED != OCCUPIED {
                free = Some((bucket, (!line[KEYS_PER_BUCKET]).trailing_zeros() as usize));
            }
        })?;
        match (found, free) {
            (Some(_), _) => Err(StoreError::Exists(key)),
            (None, Some(free)) => Ok(free),
            (None, None) => Ok((self.extend(last)?, 0)),
        }
    }

    /// Replaces the value of a key that is not locked, and returns its new version.
    pub fn update(&self, key: u64, value: &[u8]) -> Result<u64, StoreError> {
        self.check_length(value.len())?;
        let (place, header) = self.lock_item(key, WRITER, ATTEMPTS)?;
        Ok(self.write_locked(place, header, value))
    }

    /// Deletes a key that is not locked.
    pub fn delete(&self, key: u64) -> Result<(), StoreError> {
        let _chain = self.lock_chain(key);
        let (place, header) = self.lock_item(key, WRITER, ATTEMPTS)?;
        self.take_out(key, place, header.changed(false))
    }

    /// Clears a place, whose chain and item the caller has locked, and stores this header there.
    pub(crate) fn take_out(
        &self,
        key: u64,
        place: Place,
        header: Header,
    ) -> Result<(), StoreError> {
        let control = self.layout.bucket_offset(place.bucket) + CONTROL;
        let left = self
            .word(control)
            .fetch_and(!(1 << place.slot), Ordering::Release)
            & !(1 << place.slot);
        self.word(place.item).store(header.0, Ordering::Release);
        if left & OCCUPIED == 0 {
            self.unlink(key, place.bucket)?;
        }
        Ok(())
    }

    /// Tries to lock the item of `key` for `owner`, without waiting, and returns its location and version. The lock
    /// does not expire.
    pub fn try_lock(&self, key: u64, owner: u16) -> Result<(ItemAddress, u64), StoreError> {
        check_owner(owner)?;
        let (place, header) = self.lock_item(key, owner, 1)?;
        let address = ItemAddress {
            header: place.item,
            value: place.item + VALUE_OFFSET,
        };
        Ok((address, header.version()))
    }

    /// Releases a lock of `owner`, with the item unchanged.
    pub fn unlock(&self, key: u64, owner: u16) -> Result<(), StoreError> {
        let (place, header) = self.owned(key, owner)?;
        let word = self.word(place.item);
        word.compare_exchange(
            header.0,
            header.unlocked().0,
            Ordering::Release,
            Ordering::Relaxed,
        )
        .map(drop)
        .map_err(|_| StoreError::NotLocked { key, owner })
    }

    /// Replaces the value of an item that `owner` has locked, raises its version and releases the lock.
    pub fn update_and_unlock(&self, key: u64, owner: u16, value: &[u8]) -> Result<u64, StoreError> {
        self.check_length(value.len())?;
        let (place, header) = self.owned(key, owner)?;
        // The lock passes from the owner to the writer: of two concurrent calls with one owner, one fails.
        let ours = header.locked_by(WRITER);
        self.word(place.item)
            .compare_exchange(header.0, ours.0, Ordering::Acquire, Ordering::Relaxed)
            .map_err(|_| StoreError::NotLocked { key, owner })?;
        Ok(self.write_locked(place, ours, value))
    }

    fn write_locked(&self, place: Place, header: Header, value: &[u8]) -> u64 {
        fence(Ordering::Release);
        self.memory().write(place.item + VALUE_OFFSET, value);
        let header = header.changed(true);
        self.word(place.item).store(header.0, Ordering::Release);
        header.version()
    }

    /// The place of a key that `owner` has locked, and which therefore stays.
    fn owned(&self, key: u64, owner: u16) -> Result<(Place, Header), StoreError> {
        check_owner(owner)?;
        let place = self.find(key)?.ok_or(StoreError::Absent(key))?;
        let header = self.header(place);
        let owned = header.is_locked() && header.is_present() && header.owner() == owner;
        if !owned || self.key(place) != key {
            return Err(StoreError::NotLocked { key, owner });
        }
        Ok((place, header))
    }

    /// Locks an item. Its key was read after the header, so an unchanged header means an unchanged key.
    pub(crate) fn lock_item(
        &self,
        key: u64,
        owner: u16,
        attempts: usize,
    ) -> Result<(Place, Header), StoreError> {
        let mut seen = Header::default();
        for attempt in 0..attempts {
            let place = self.find(key)?.ok_or(StoreError::Absent(key))?;
            seen = self.header(place);
            if !seen.is_locked() && seen.is_present() && self.key(place) == key {
                let locked = seen.locked_by(owner);
                fence(Ordering::Acquire);
                let word = self.word(place.item);
                if word
                    .compare_exchange(seen.0, locked.0, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
                {
                    return Ok((place, locked));
                }
            }
            if attempt + 1 < attempts {
                pause(attempt);
            }
        }
        Err(busy(key, seen))
    }

    /// Finds the place of a key. The key may be deleted or moved meanwhile, which shows in the item's header and key.
    #[inline]
    pub(crate) fn find(&self, key: u64) -> Result<Option<Place>, StoreError> {
        let unlinked = &self.stripe(key).unlinked;
        for attempt in 0..ATTEMPTS {
            let before = unlinked.load(Ordering::Acquire);
            let found = self.walk(key, |_, _| ());
            if matches!(found, Ok(Some(_))) {
                return found;
            }
            fence(Ordering::Acquire);
            if unlinked.load(Ordering::Relaxed) == before {
                return found;
            }
            pause(attempt);
        }
        Err(StoreError::Contended(key))
    }

    /// Visits the buckets of a key's chain up to the one that holds it.
    #[inline]
    fn walk(
        &self,
        key: u64,
        mut look: impl FnMut(u32, &[u64; 8]),
    ) -> Result<Option<Place>, StoreError> {
        let main = self.layout.main_bucket(key);
        let mut bucket = main;
        // A chain contains each overflow bucket at most once.
        for _ in 0..=self.layout.overflow_buckets() {
            let line = self.line(bucket);
            look(bucket, &line);
            let control = line[KEYS_PER_BUCKET];
            // All are compared before any is followed: the result is a number and not a branch that the processor would
            // mispredict, so it can start on the next key while it waits for this bucket.
            let mut same = 0;
            for (slot, known) in line.iter().enumerate().take(KEYS_PER_BUCKET) {
                same |= u64::from(*known == key) << slot;
            }
            let slot = (same & control & OCCUPIED).trailing_zeros() as usize;
            if slot < KEYS_PER_BUCKET {
                let item = self.layout.item_offset(bucket, slot);
                return Ok(Some(Place { bucket, slot, item }));
            }
            match self.layout.next_bucket(control) {
                Ok(None) => return Ok(None),
                Ok(Some(next)) => bucket = next,
                Err(_) => break,
            }
        }
        Err(StoreError::Damaged { bucket: main })
    }

    /// Reads a bucket, its control word first: a key is written before its bit is set.
    #[inline]
    fn line(&self, bucket: u32) -> [u64; 8] {
        let at = self.layout.bucket_offset(bucket);
        // Requested once: for some regions this is a call.
        let memory = self.memory();
        let control = memory.atomic_u64(at + CONTROL).load(Ordering::Acquire);
        let mut line = [0; 8];
        for (slot, key) in line.iter_mut().enumerate().take(KEYS_PER_BUCKET) {
            *key = memory.atomic_u64(at + slot * 8).load(Ordering::Relaxed);
        }
        line[KEYS_PER_BUCKET] = control;
        line
    }

    /// Appends an empty overflow bucket to the chain that ends with `last`.
    fn extend(&self, last: u32) -> Result<u32, StoreError> {
        let overflow_buckets = self.layout.overflow_buckets();
        let number = self
            .pool()
            .take()
            .ok_or(StoreError::Full { overflow_buckets })?;
        let bucket = self.layout.main_buckets() + number;
        self.word(self.layout.bucket_offset(bucket) + CONTROL)
            .store(0, Ordering::Release);
        let control = self.word(self.layout.bucket_offset(last) + CONTROL);
        control.fetch_or(u64::from(number + 1) << 32, Ordering::Release);
        Ok(bucket)
    }

    /// Removes an empty overflow bucket from its chain; main buckets stay.
    fn unlink(&self, key: u64, empty: u32) -> Result<(), StoreError> {
        let Some(number) = self.layout.is_overflow(empty) else {
            return Ok(());
        };
        let main = self.layout.main_bucket(key);
        let next = self
            .word(self.layout.bucket_offset(empty) + CONTROL)
            .load(Ordering::Relaxed)
            & !0xffff_ffff;
        let mut bucket = main;
        for _ in 0..=self.layout.overflow_buckets() {
            let control = self.word(self.layout.bucket_offset(bucket) + CONTROL);
            let now = control.load(Ordering::Relaxed);
            match self.layout.next_bucket(now) {
                Ok(Some(after)) if after == empty => {
                    control.store((now & 0xffff_ffff) | next, Ordering::Release);
                    // Before the bucket can be used elsewhere: a reader that follows it there sees the new count.
                    self.stripe(key).unlinked.fetch_add(1, Ordering::AcqRel);
                    fence(Ordering::SeqCst);
                    let used = self.pool().give_back(number);
                    return if used {
                        Ok(())
                    } else {
                        Err(StoreError::Damaged { bucket: main })
                    };
                }
                Ok(Some(after)) => bucket = after,
                Ok(None) | Err(_) => break,
            }
        }
        Err(StoreError::Damaged { bucket: main })
    }

    pub(crate) fn check_length(&self, bytes: usize) -> Result<(), StoreError> {
        let expected = self.layout.value_bytes();
        if bytes == expected {
            Ok(())
        } else {
            Err(StoreError::ValueLength { bytes, expected })
        }
    }

    fn stripe(&self, key: u64) -> &Stripe {
        &self.stripes[self.layout.main_bucket(key) as usize & (self.stripes.len() - 1)]
    }

    pub(crate) fn lock_chain(&self, key: u64) -> MutexGuard<'_, ()> {
        self.stripe(key)
            .chains
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    pub(crate) fn memory(&self) -> &Memory {
        self.region.memory()
    }

    #[inline]
    pub(crate) fn word(&self, offset: usize) -> &AtomicU64 {
        self.memory().atomic_u64(offset)
    }

    #[inline]
    pub(crate) fn header(&self, place: Place) -> Header {
        Header(self.word(place.item).load(Ordering::Acquire))
    }

    #[inline]
    pub(crate) fn key(&self, place: Place) -> u64 {
        self.word(place.item + KEY_OFFSET).load(Ordering::Relaxed)
    }
}

pub(crate) fn check_owner(owner: u16) -> Result<(), StoreError> {
    if owner > MAX_OWNER {
        return Err(StoreError::Owner {
            owner,
            limit: MAX_OWNER,
        });
    }
    Ok(())
}

pub(crate) fn busy(key: u64, seen: Header) -> StoreError {
    if seen.is_locked() {
        StoreError::Locked {
            key,
            owner: seen.owner(),
        }
    } else {
        StoreError::Contended(key)
    }
}

#[cold]
pub(crate) fn pause(attempt: usize) {
    if attempt < QUICK_ATTEMPTS {
        std::hint::spin_loop();
    } else {
        dunlin_verbs::thread::yield_now();
    }
}
