//! The store: GETs without a lock, changes of a chain under a mutex in private memory.
//!
//! A reader that is disturbed again and again takes the mutex: it is never refused.

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

/// How often a reader looks at a chain that is being changed before it takes the lock of its writers.
const ATTEMPTS: usize = if cfg!(loom) { 1 } else { 100 };
/// Attempts without leaving the core to a writer that was interrupted.
const QUICK_ATTEMPTS: usize = 64;
/// Stripes of chains: far more than threads that write at once.
const MAX_STRIPES: u32 = 1024;
/// An item up to this long is changed where it stands: readers of its chain wait for the copy then. A longer one is
/// written to a new place first.
const IN_PLACE_BYTES: usize = 4096;
const _: () = assert!(MAX_KEY_BYTES + 16 <= IN_PLACE_BYTES && IN_PLACE_BYTES <= MAX_SHARED_BYTES);

/// Where a value is copied to.
pub trait Target {
    /// Why there is no room.
    type Error;
    /// Room for a value of `bytes`; it replaces what was given before. A GET may ask several times.
    ///
    /// # Errors
    /// When there is none: the GET ends with it.
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

/// How full a store is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvUsage {
    /// Keys.
    pub keys: u64,
    /// Bytes that their items take, with what their chunks are longer than they.
    pub item_bytes: usize,
    /// Bytes for items in all.
    pub item_memory: usize,
    /// Overflow buckets in use.
    pub overflow_buckets: u32,
}

/// A key-value store in one piece of memory: byte strings to byte strings.
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
    /// An empty store at the start of `space`.
    ///
    /// # Errors
    /// When that is too small for the layout.
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

    /// Where everything stands.
    pub fn layout(&self) -> &KvLayout {
        &self.layout
    }

    /// What it stands in.
    pub fn space(&self) -> &S {
        &self.space
    }

    /// How full it is.
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

    /// A key of this store; several operations on it hash it once.
    ///
    /// # Errors
    /// When it is longer than [`crate::kv::MAX_KEY_BYTES`].
    #[inline]
    pub fn key<'a>(&self, bytes: &'a [u8]) -> Result<Key<'a>, KvError> {
        self.layout.key(bytes)
    }

    /// Copies the value of `key` into `target` and says whether there is one. What `target` holds when there is none,
    /// or when this fails, is undefined.
    ///
    /// # Errors
    /// What `target` says when it has no room.
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

    /// Copies the values of several keys; `ended` hears of each in turn whether there was one. Memory is asked for all
    /// of them at once, so that their waits overlap.
    ///
    /// # Errors
    /// What a target says when it has no room.
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

    /// Asks for the bucket of a key that will be looked for soon: the first of two steps. The wait overlaps with those
    /// for other keys.
    #[inline]
    pub fn prefetch_bucket(&self, key: &Key<'_>) {
        self.chains().prefetch_bucket(key);
    }

    /// Asks for the item of a key whose bucket is here: the second step.
    #[inline]
    pub fn prefetch_item(&self, key: &Key<'_>) {
        self.chains().prefetch_item(key);
    }

    /// Sets the value of a key; says whether there was one before.
    ///
    /// # Errors
    /// When the value is too long or there is no room; the value before stays.
    pub fn put(&self, key: &Key<'_>, value: &[u8]) -> Result<bool, KvError> {
        self.put_with(key, value, || ())
    }

    /// As [`KvStore::put`]; where the key is new, `adding` is called before it can be found, and when nothing can go
    /// wrong any more. No other change of the key is under way meanwhile.
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
        // Whoever waits for the chain does not wait for the copy of a long value.
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

    /// Takes a key away; says whether it was there.
    pub fn delete(&self, key: &Key<'_>) -> bool {
        self.delete_with(key, || ())
    }

    /// As [`KvStore::delete`]; where the key was there, `taken` is called when it cannot be found any more. No other
    /// change of the key is under way meanwhile.
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
        // Who reads what stood here before, and then this, finds that its chain has changed since.
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
        // Neighbours in different stripes.
        locked(&self.stripes[main as usize % self.stripes.len()])
    }
}

/// What is to be stored.
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
