//! The store: GETs without a lock, changes of a chain under a mutex in private memory.
//!
//! A reader that is disturbed repeatedly takes the mutex, so a GET always completes.

use std::convert::Infallible;

use super::bucket::Place;
use super::chain::{ChainEnd, Chains, Look};
use super::classes::{class_of, Chunk, MAX_SHARED_BYTES};
use super::heap::Heap;
use super::item::{self, Lengths};
use super::layout::{Key, KvLayout, MAX_KEY_BYTES};
use super::words::{Space, Words};
use super::KvError;
use crate::pool::Pool;
use crate::sync::{fence, yield_now, AtomicU64, Mutex, MutexGuard, Ordering};

/// Number of times that a reader retries on a chain that is being changed before it takes the writers' lock.
const ATTEMPTS: usize = if cfg!(loom) { 1 } else { 100 };
/// Attempts before a reader yields its core, in case the writer was interrupted.
const QUICK_ATTEMPTS: usize = 64;
/// Stripes of chains: far more than there are threads that write at once.
const MAX_STRIPES: u32 = 1024;
/// An item up to this length is changed in place: readers of its chain wait for the copy. A longer one is first written
/// to a new chunk.
const IN_PLACE_BYTES: usize = 4096;
const _: () = assert!(MAX_KEY_BYTES + 16 <= IN_PLACE_BYTES && IN_PLACE_BYTES <= MAX_SHARED_BYTES);

/// The destination of a copied value.
pub trait Target {
    /// The error when there is no space.
    type Error;
    /// Returns space for a value of `bytes`; it replaces what was returned before. A GET may call this several times.
    ///
    /// # Errors
    /// When there is no space: the GET fails with this error.
    fn room(&mut self, bytes: usize) -> Result<&mut [u8], Self::Error>;
}

impl Target for Vec<u8> {
    type Error = Infallible;

    #[inline]
    fn room(&mut self, bytes: usize) -> Result<&mut [u8], Infallible> {
        self.resize(bytes, 0);
        Ok(self)
    }
}

/// The usage of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvUsage {
    /// Number of keys.
    pub keys: u64,
    /// Bytes that their items occupy, including the unused ends of their chunks.
    pub item_bytes: usize,
    /// Bytes for items in total.
    pub item_memory: usize,
    /// Number of overflow buckets in use.
    pub overflow_buckets: u32,
}

/// A key-value store in one piece of memory, from byte strings to byte strings.
#[derive(Debug)]
pub struct KvStore<S: Space> {
    space: S,
    layout: KvLayout,
    stripes: Box<[Mutex<()>]>,
    heap: Mutex<Heap>,
    overflow: Mutex<Pool>,
    keys: AtomicU64,
}

impl<S: Space> KvStore<S> {
    /// Creates an empty store at the start of `space`.
    ///
    /// # Errors
    /// When `space` is too small for the layout.
    pub fn create(space: S, layout: KvLayout) -> Result<Self, KvError> {
        let (needed, length) = (layout.bytes(), space.words().bytes());
        if needed > length {
            return Err(KvError::Memory { needed, length });
        }
        let buckets = layout.main_buckets() + layout.overflow_buckets();
        for at in (0..layout.bucket_offset(buckets)).step_by(8) {
            space.words().word(at).store(0, Ordering::Relaxed);
        }
        let stripes = layout.main_buckets().min(MAX_STRIPES);
        Ok(Self {
            space,
            stripes: (0..stripes).map(|_| Mutex::new(())).collect(),
            heap: Mutex::new(Heap::new(layout.heap_offset(), layout.blocks())),
            overflow: Mutex::new(Pool::new(layout.overflow_buckets())),
            keys: AtomicU64::new(0),
            layout,
        })
    }

    /// The layout of its memory.
    pub fn layout(&self) -> &KvLayout {
        &self.layout
    }

    /// The memory in which it is stored.
    pub fn space(&self) -> &S {
        &self.space
    }

    /// Returns the current usage.
    pub fn usage(&self) -> KvUsage {
        // One lock at a time.
        let overflow_buckets = locked(&self.overflow).in_use();
        let heap = locked(&self.heap);
        KvUsage {
            keys: self.keys.load(Ordering::Relaxed),
            item_bytes: heap.used_bytes(),
            item_memory: heap.total_bytes(),
            overflow_buckets,
        }
    }

    /// Makes a key of this store; several operations with it compute the hash only once.
    ///
    /// # Errors
    /// When it is longer than [`crate::kv::MAX_KEY_BYTES`].
    #[inline]
    pub fn key<'a>(&self, bytes: &'a [u8]) -> Result<Key<'a>, KvError> {
        self.layout.key(bytes)
    }

    /// Copies the value of `key` into `target` and returns whether the key exists. If it does not, or if this fails,
    /// the contents of `target` are undefined.
    ///
    /// # Errors
    /// The error of `target` when it has no space.
    #[inline]
    pub fn get<T: Target>(&self, key: &Key<'_>, target: &mut T) -> Result<bool, T::Error> {
        let (main, chains) = (self.layout.main_bucket(key), self.chains());
        for attempt in 0..ATTEMPTS {
            match chains.look(key, main, target)? {
                Look::Found => return Ok(true),
                Look::Absent => return Ok(false),
                Look::Disturbed => pause(attempt),
            }
        }
        self.get_locked(key, main, target)
    }

    #[cold]
    fn get_locked<T: Target>(
        &self,
        key: &Key<'_>,
        main: u32,
        target: &mut T,
    ) -> Result<bool, T::Error> {
        let _chain = self.lock_chain(main);
        let chains = self.chains();
        Ok(chains.copy(key, main, chains.control(main), target)? == Look::Found)
    }

    /// Copies the values of several keys; `ended` is called for each, in order, with whether it exists. Memory is
    /// prefetched for all of them at once, so that the accesses overlap.
    ///
    /// # Errors
    /// The error of a target when it has no space.
    ///
    /// # Panics
    /// When there are fewer targets than keys.
    pub fn get_many<T: Target>(
        &self,
        keys: &[Key<'_>],
        targets: &mut [T],
        mut ended: impl FnMut(usize, bool),
    ) -> Result<(), T::Error> {
        keys.iter().for_each(|key| self.prefetch_bucket(key));
        keys.iter().for_each(|key| self.prefetch_item(key));
        for (index, key) in keys.iter().enumerate() {
            ended(index, self.get(key, &mut targets[index])?);
        }
        Ok(())
    }

    /// Prefetches the bucket of a key that will be looked up soon: the first of two steps. The access overlaps with
    /// those for other keys.
    #[inline]
    pub fn prefetch_bucket(&self, key: &Key<'_>) {
        self.chains().prefetch_bucket(key);
    }

    /// Prefetches the item of a key whose bucket is in the cache: the second step.
    #[inline]
    pub fn prefetch_item(&self, key: &Key<'_>) {
        self.chains().prefetch_item(key);
    }

    /// Sets the value of a key; returns whether the key existed.
    ///
    /// # Errors
    /// When the value is too long or there is no space; the previous value stays.
    pub fn put(&self, key: &Key<'_>, value: &[u8]) -> Result<bool, KvError> {
        self.put_with(key, value, || ())
    }

    /// Like [`KvStore::put`]; if the key is new, `adding` is called before the key becomes visible, and when the insert
    /// can no longer fail. Meanwhile no other change of the key is in progress.
    ///
    /// # Errors
    /// As for [`KvStore::put`].
    pub fn put_with(
        &self,
        key: &Key<'_>,
        value: &[u8],
        adding: impl FnOnce(),
    ) -> Result<bool, KvError> {
        let (bytes, limit) = (value.len(), self.layout.longest_value());
        if bytes > limit {
            return Err(KvError::ValueBytes { bytes, limit });
        }
        let item = Item::new(key, value);
        // Writers that wait for the chain should not have to wait for the copy of a long value.
        let written = match item.bytes <= IN_PLACE_BYTES {
            true => None,
            false => Some(self.write_new(&item)?),
        };
        let (main, chains) = (self.layout.main_bucket(key), self.chains());
        let _chain = self.lock_chain(main);
        let found = match chains.find(key, main) {
            Ok(found) => found,
            Err(end) => return self.add(&item, main, end, written, adding),
        };
        if written.is_none() && Some(found.chunk.code) == class_of(item.bytes) {
            chains.change(main, |control| {
                item::write(chains.words, found.chunk.offset, key.bytes, value);
                control
            });
            return Ok(true);
        }
        let chunk = written.map_or_else(|| self.write_new(&item), Ok)?;
        chains.replace(main, found.bucket, found.slot, item.place(chunk));
        locked(&self.heap).give_back(found.chunk);
        Ok(true)
    }

    /// Adds a key at the end of its chain.
    fn add(
        &self,
        item: &Item<'_>,
        main: u32,
        end: ChainEnd,
        written: Option<Chunk>,
        adding: impl FnOnce(),
    ) -> Result<bool, KvError> {
        let overflow = match end.free {
            Some(_) => None,
            None => {
                let taken = locked(&self.overflow).take();
                if taken.is_none() {
                    self.give_back(written);
                    return Err(KvError::NoBuckets(self.layout.overflow_buckets()));
                }
                taken
            }
        };
        let chunk = match written.map_or_else(|| self.write_new(item), Ok) {
            Ok(chunk) => chunk,
            Err(error) => {
                overflow.map(|number| locked(&self.overflow).give_back(number));
                return Err(error);
            }
        };
        adding();
        let place = item.place(chunk);
        if let Some(number) = overflow {
            self.chains().append(main, end.last, number, place);
        } else if let Some((bucket, slot)) = end.free {
            self.chains().replace(main, bucket, slot, place);
        }
        self.keys.fetch_add(1, Ordering::Relaxed);
        Ok(false)
    }

    /// Deletes a key; returns whether it existed.
    pub fn delete(&self, key: &Key<'_>) -> bool {
        self.delete_with(key, || ())
    }

    /// Like [`KvStore::delete`]; if the key existed, `taken` is called when it is no longer visible. Meanwhile no other
    /// change of the key is in progress.
    pub fn delete_with(&self, key: &Key<'_>, taken: impl FnOnce()) -> bool {
        let (main, chains) = (self.layout.main_bucket(key), self.chains());
        let _chain = self.lock_chain(main);
        let Ok(found) = chains.find(key, main) else {
            return false;
        };
        let unlinked = chains.remove(main, found);
        taken();
        self.keys.fetch_sub(1, Ordering::Relaxed);
        unlinked.map(|number| locked(&self.overflow).give_back(number));
        self.give_back(Some(found.chunk));
        true
    }

    fn write_new(&self, item: &Item<'_>) -> Result<Chunk, KvError> {
        let chunk = locked(&self.heap).allocate(item.bytes)?;
        // A reader that reads the previous contents and then the new ones finds that the chain's version has changed.
        fence(Ordering::Release);
        item::write(self.space.words(), chunk.offset, item.key.bytes, item.value);
        Ok(chunk)
    }

    fn give_back(&self, chunk: Option<Chunk>) {
        if let Some(chunk) = chunk {
            locked(&self.heap).give_back(chunk);
        }
    }

    #[inline]
    fn chains(&self) -> Chains<'_, S::Words> {
        Chains {
            words: self.space.words(),
            layout: &self.layout,
        }
    }

    fn lock_chain(&self, main: u32) -> MutexGuard<'_, ()> {
        // Adjacent buckets are in different stripes.
        locked(&self.stripes[main as usize % self.stripes.len()])
    }
}

/// An item to be stored.
struct Item<'a> {
    key: &'a Key<'a>,
    value: &'a [u8],
    bytes: usize,
}

impl<'a> Item<'a> {
    fn new(key: &'a Key<'a>, value: &'a [u8]) -> Self {
        let lengths = Lengths {
            key: key.bytes.len(),
            value: value.len(),
        };
        let bytes = lengths.item_bytes();
        Self { key, value, bytes }
    }

    fn place(&self, chunk: Chunk) -> Place {
        Place::new(self.key.tag(), chunk)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cold]
fn pause(attempt: usize) {
    if attempt < QUICK_ATTEMPTS && !cfg!(loom) {
        std::hint::spin_loop();
    } else {
        yield_now();
    }
}
