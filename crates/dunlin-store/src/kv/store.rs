//! The store: GETs without a lock, changes of a chain under a mutex in private memory.
//!
//! The control word of a main bucket has a version for the whole chain and all items that it names (MICA §4.3.1). A writer
//! makes it odd, changes places or an item in place, and makes it even again; a reader copies what it finds between two
//! equal even versions. A chunk or overflow bucket that is free again was taken out of a chain under such a change
//! before, so whoever still reads it finds another version. A reader that is disturbed again and again takes the mutex:
//! it is never refused.

use std::convert::Infallible;

use super::bucket::{Control, Place, CONTROL, PLACES};
use super::classes::{class_of, most_bytes, Chunk, MAX_SHARED_BYTES, RUN};
use super::heap::Heap;
use super::item::{self, Lengths};
use super::layout::{Key, KvLayout, MAX_KEY_BYTES};
use super::words::Words;
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
/// Room for a value longer than this is asked for only after another look at the version.
const DEAR_BYTES: usize = 4096;

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
pub struct KvStore<W: Words> {
    words: W,
    layout: KvLayout,
    stripes: Box<[Mutex<()>]>,
    heap: Mutex<Heap>,
    overflow: Mutex<Pool>,
    keys: AtomicU64,
}

/// Where a key stands.
#[derive(Clone, Copy, Debug)]
struct Found {
    bucket: u32,
    slot: usize,
    chunk: Chunk,
}

/// What a look at a chain came to.
enum Look {
    Found,
    Absent,
    /// What stands there makes no sense: it is being changed.
    Torn,
}

/// The end of a chain, for a key that is not in it.
#[derive(Clone, Copy, Debug)]
struct ChainEnd {
    free: Option<(u32, usize)>,
    last: u32,
}

impl<W: Words> KvStore<W> {
    /// An empty store at the start of `words`.
    ///
    /// # Errors
    /// When that is too small for the layout.
    pub fn create(words: W, layout: KvLayout) -> Result<Self, KvError> {
        let (needed, length) = (layout.bytes(), words.bytes());
        if needed > length {
            return Err(KvError::Memory { needed, length });
        }
        let buckets = layout.main_buckets() + layout.overflow_buckets();
        for at in (0..layout.bucket_offset(buckets)).step_by(8) {
            words.word(at).store(0, Ordering::Relaxed);
        }
        let stripes = layout.main_buckets().min(MAX_STRIPES);
        Ok(Self {
            words,
            layout,
            stripes: (0..stripes).map(|_| Mutex::new(())).collect(),
            heap: Mutex::new(Heap::new(layout.heap_offset(), layout.blocks())),
            overflow: Mutex::new(Pool::new(layout.overflow_buckets())),
            keys: AtomicU64::new(0),
        })
    }

    /// Where everything stands.
    pub fn layout(&self) -> &KvLayout {
        &self.layout
    }

    /// How full it is.
    pub fn usage(&self) -> KvUsage {
        let heap = locked(&self.heap);
        KvUsage {
            keys: self.keys.load(Ordering::Relaxed),
            item_bytes: heap.used_bytes(),
            item_memory: heap.total_bytes(),
            overflow_buckets: locked(&self.overflow).in_use(),
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

    /// Copies the value of `key` into `target` and says whether there is one. What `target` holds when there is none, or
    /// when this fails, is undefined.
    ///
    /// # Errors
    /// What `target` says when it has no room.
    #[inline]
    pub fn get<T: Target>(&self, key: &Key<'_>, target: &mut T) -> Result<bool, T::Error> {
        let main = self.layout.main_bucket(key);
        let word = self.control_word(main);
        for attempt in 0..ATTEMPTS {
            let before = Control(word.load(Ordering::Acquire));
            if !before.is_changing() {
                let look = self.copy(key, main, before, target)?;
                fence(Ordering::Acquire);
                if word.load(Ordering::Relaxed) == before.0 {
                    return Ok(matches!(look, Look::Found));
                }
            }
            pause(attempt);
        }
        let _chain = self.lock_chain(main);
        let now = Control(word.load(Ordering::Relaxed));
        Ok(matches!(self.copy(key, main, now, target)?, Look::Found))
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
        let main = self.layout.main_bucket(key);
        self.words.prefetch(self.layout.bucket_offset(main));
    }

    /// Asks for the item of a key whose bucket is here: the second step.
    #[inline]
    pub fn prefetch_item(&self, key: &Key<'_>) {
        let tag = key.tag();
        let line = self.layout.bucket_offset(self.layout.main_bucket(key));
        for slot in 0..PLACES {
            let place = Place(self.words.word(line + slot * 8).load(Ordering::Relaxed));
            if place.has_tag(tag) {
                let chunk = place.chunk();
                let bytes = most_bytes(chunk.code).min(MAX_PREFETCHED_BYTES);
                for at in (0..bytes).step_by(64) {
                    self.words.prefetch(chunk.offset + at);
                }
            }
        }
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
        let limit = self.layout.longest_value();
        if value.len() > limit {
            let bytes = value.len();
            return Err(KvError::ValueBytes { bytes, limit });
        }
        let lengths = Lengths {
            key: key.bytes.len(),
            value: value.len(),
        };
        let bytes = lengths.item_bytes();
        // Whoever waits for the chain does not wait for the copy of a long value.
        let mut written = match bytes <= IN_PLACE_BYTES {
            true => None,
            false => Some(self.write_new(key, value, bytes)?),
        };
        let main = self.layout.main_bucket(key);
        let _chain = self.lock_chain(main);
        let outcome = match self.find(key, main) {
            Ok(found) if written.is_none() && Some(found.chunk.code) == class_of(bytes) => {
                self.change(main, |control| {
                    item::write(&self.words, found.chunk.offset, key.bytes, value);
                    control
                });
                return Ok(true);
            }
            Ok(found) => self
                .new_chunk(&mut written, key, value, bytes)
                .map(|chunk| {
                    self.change(main, |control| {
                        self.set_place(found.bucket, found.slot, Place::new(key.tag(), chunk));
                        control
                    });
                    written = Some(found.chunk);
                    true
                }),
            Err(end) => self
                .add(key, main, end, adding, || {
                    self.new_chunk(&mut written, key, value, bytes)
                })
                .map(|()| {
                    written = None;
                    false
                }),
        };
        // What was replaced, or what found no place.
        if let Some(chunk) = written {
            locked(&self.heap).give_back(chunk);
        }
        outcome
    }

    /// Takes a key away; says whether it was there.
    pub fn delete(&self, key: &Key<'_>) -> bool {
        self.delete_with(key, || ())
    }

    /// As [`KvStore::delete`]; where the key was there, `taken` is called when it cannot be found any more. No other
    /// change of the key is under way meanwhile.
    pub fn delete_with(&self, key: &Key<'_>, taken: impl FnOnce()) -> bool {
        let main = self.layout.main_bucket(key);
        let _chain = self.lock_chain(main);
        let Ok(found) = self.find(key, main) else {
            return false;
        };
        let mut unlinked = None;
        self.change(main, |control| {
            self.set_place(found.bucket, found.slot, Place::EMPTY);
            let number = found.bucket.checked_sub(self.layout.main_buckets());
            match number {
                Some(number) if self.is_empty(found.bucket) => {
                    unlinked = Some(number);
                    self.unlink(main, control, found.bucket)
                }
                _ => control,
            }
        });
        taken();
        self.keys.fetch_sub(1, Ordering::Relaxed);
        if let Some(number) = unlinked {
            locked(&self.overflow).give_back(number);
        }
        locked(&self.heap).give_back(found.chunk);
        true
    }

    /// Adds a key at the end of its chain.
    fn add(
        &self,
        key: &Key<'_>,
        main: u32,
        end: ChainEnd,
        adding: impl FnOnce(),
        chunk: impl FnOnce() -> Result<Chunk, KvError>,
    ) -> Result<(), KvError> {
        let (number, (bucket, slot)) = match end.free {
            Some(free) => (None, free),
            None => {
                let number = locked(&self.overflow).take();
                let number = number.ok_or(KvError::NoBuckets(self.layout.overflow_buckets()))?;
                (Some(number), (self.layout.main_buckets() + number, 0))
            }
        };
        let chunk = match chunk() {
            Ok(chunk) => chunk,
            Err(error) => {
                if let Some(number) = number {
                    locked(&self.overflow).give_back(number);
                }
                return Err(error);
            }
        };
        adding();
        let place = Place::new(key.tag(), chunk);
        let Some(number) = number else {
            self.change(main, |control| {
                self.set_place(bucket, slot, place);
                control
            });
            self.keys.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        };
        // A reader may be in it still, from another chain.
        fence(Ordering::Release);
        for slot in 1..=PLACES {
            self.set_place(bucket, slot, Place::EMPTY);
        }
        self.set_place(bucket, 0, place);
        self.change(main, |control| {
            if end.last == main {
                return control.with_next(number + 1);
            }
            let word = self.control_word(end.last);
            let last = Control(word.load(Ordering::Relaxed));
            word.store(last.with_next(number + 1).0, Ordering::Relaxed);
            control
        });
        self.keys.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// A chunk with the item: the one that is written already, or one that is written now. It stays in `written` until
    /// it is in use.
    fn new_chunk(
        &self,
        written: &mut Option<Chunk>,
        key: &Key<'_>,
        value: &[u8],
        bytes: usize,
    ) -> Result<Chunk, KvError> {
        match *written {
            Some(chunk) => Ok(chunk),
            None => {
                let chunk = self.write_new(key, value, bytes)?;
                *written = Some(chunk);
                Ok(chunk)
            }
        }
    }

    fn write_new(&self, key: &Key<'_>, value: &[u8], bytes: usize) -> Result<Chunk, KvError> {
        let chunk = locked(&self.heap).allocate(bytes)?;
        // Who reads what stood here before, and then this, finds that its chain has changed since.
        fence(Ordering::Release);
        item::write(&self.words, chunk.offset, key.bytes, value);
        Ok(chunk)
    }

    /// Changes a chain whose lock the caller has. `what` returns the control word as it will be but for the version.
    #[inline]
    fn change(&self, main: u32, what: impl FnOnce(Control) -> Control) {
        let word = self.control_word(main);
        let now = Control(word.load(Ordering::Relaxed));
        // It is odd already where a writer panicked.
        let changing = match now.is_changing() {
            true => now,
            false => now.advanced(),
        };
        word.store(changing.0, Ordering::Relaxed);
        fence(Ordering::Release);
        let control = what(changing);
        word.store(control.advanced().0, Ordering::Release);
    }

    /// Takes an empty overflow bucket out of its chain, which is being changed.
    fn unlink(&self, main: u32, control: Control, bucket: u32) -> Control {
        let next = Control(self.control_word(bucket).load(Ordering::Relaxed)).next();
        let number = bucket - self.layout.main_buckets() + 1;
        if control.next() == number {
            return control.with_next(next);
        }
        let mut at = self.next_bucket(control);
        while let Some(before) = at {
            debug_assert_ne!(before, main);
            let word = self.control_word(before);
            let its = Control(word.load(Ordering::Relaxed));
            if its.next() == number {
                word.store(its.with_next(next).0, Ordering::Relaxed);
                break;
            }
            at = self.next_bucket(its);
        }
        control
    }

    /// One look at a chain for a reader.
    #[inline]
    fn copy<T: Target>(
        &self,
        key: &Key<'_>,
        main: u32,
        before: Control,
        target: &mut T,
    ) -> Result<Look, T::Error> {
        let (tag, mut bucket, mut control) = (key.tag(), main, before);
        loop {
            let line = self.layout.bucket_offset(bucket);
            for slot in 0..PLACES {
                let place = Place(self.words.word(line + slot * 8).load(Ordering::Relaxed));
                if !place.has_tag(tag) {
                    continue;
                }
                let chunk = place.chunk();
                let lengths = item::lengths(&self.words, chunk.offset);
                if lengths.key != key.bytes.len()
                    || !item::has_key(&self.words, chunk.offset, key.bytes)
                {
                    continue;
                }
                if !self.is_inside(chunk, lengths) || !self.is_affordable(main, before, lengths) {
                    return Ok(Look::Torn);
                }
                let room = target.room(lengths.value)?;
                self.words.read(
                    chunk.offset + lengths.value_offset(),
                    &mut room[..lengths.value],
                );
                return Ok(Look::Found);
            }
            let Some(next) = self.next_bucket(control) else {
                return Ok(Look::Absent);
            };
            bucket = next;
            control = Control(self.control_word(bucket).load(Ordering::Relaxed));
            // A chain that changes may lead in circles.
            fence(Ordering::Acquire);
            if self.control_word(main).load(Ordering::Relaxed) != before.0 {
                return Ok(Look::Torn);
            }
        }
    }

    /// Whether lengths that may be changing keep to their chunk, and to the memory.
    #[inline]
    fn is_inside(&self, chunk: Chunk, lengths: Lengths) -> bool {
        let bytes = lengths.item_bytes();
        let most = match chunk.code {
            RUN => self.words.bytes() - chunk.offset,
            code => most_bytes(code),
        };
        bytes <= most
    }

    /// Whether room for a value is not asked for in vain.
    #[inline]
    fn is_affordable(&self, main: u32, before: Control, lengths: Lengths) -> bool {
        if lengths.value <= DEAR_BYTES {
            return true;
        }
        fence(Ordering::Acquire);
        self.control_word(main).load(Ordering::Relaxed) == before.0
    }

    /// Where a key stands in its chain, whose lock the caller has, or else how the chain ends.
    fn find(&self, key: &Key<'_>, main: u32) -> Result<Found, ChainEnd> {
        let tag = key.tag();
        let mut end = ChainEnd {
            free: None,
            last: main,
        };
        let mut at = Some(main);
        while let Some(bucket) = at {
            let line = self.layout.bucket_offset(bucket);
            end.last = bucket;
            for slot in 0..PLACES {
                let place = Place(self.words.word(line + slot * 8).load(Ordering::Relaxed));
                if place.is_empty() {
                    end.free = end.free.or(Some((bucket, slot)));
                } else if place.has_tag(tag) {
                    let chunk = place.chunk();
                    let lengths = item::lengths(&self.words, chunk.offset);
                    if lengths.key == key.bytes.len()
                        && item::has_key(&self.words, chunk.offset, key.bytes)
                    {
                        return Ok(Found {
                            bucket,
                            slot,
                            chunk,
                        });
                    }
                }
            }
            at = self.next_bucket(Control(self.control_word(bucket).load(Ordering::Relaxed)));
        }
        Err(end)
    }

    fn is_empty(&self, bucket: u32) -> bool {
        let line = self.layout.bucket_offset(bucket);
        (0..PLACES).all(|slot| self.words.word(line + slot * 8).load(Ordering::Relaxed) == 0)
    }

    #[inline]
    fn next_bucket(&self, control: Control) -> Option<u32> {
        let number = control.next().checked_sub(1)?;
        Some(self.layout.main_buckets() + number)
    }

    #[inline]
    fn set_place(&self, bucket: u32, slot: usize, place: Place) {
        let at = self.layout.bucket_offset(bucket) + slot * 8;
        self.words.word(at).store(place.0, Ordering::Relaxed);
    }

    #[inline]
    fn control_word(&self, bucket: u32) -> &AtomicU64 {
        self.words.word(self.layout.bucket_offset(bucket) + CONTROL)
    }

    fn lock_chain(&self, main: u32) -> MutexGuard<'_, ()> {
        // Neighbours in different stripes.
        locked(&self.stripes[main as usize % self.stripes.len()])
    }
}

/// What of an item is asked for ahead: more than these lines the processor finds by itself, one after the other.
const MAX_PREFETCHED_BYTES: usize = 512;
const _: () = assert!(MAX_KEY_BYTES + 16 <= IN_PLACE_BYTES && IN_PLACE_BYTES <= MAX_SHARED_BYTES);

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
