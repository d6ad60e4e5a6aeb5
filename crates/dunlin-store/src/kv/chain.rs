//! Chains of buckets: finding and changing keys.
//!
//! The control word of a main bucket has a version for the whole chain and all its items (MICA §4.3.1). A writer makes
//! it odd, changes places or an item in place, and makes it even again; a reader copies what it finds between two reads
//! of the same even version. A chunk or overflow bucket is freed only after such a change has taken it out of a chain,
//! so a reader that is still reading it sees a different version afterwards.

use super::bucket::{Control, Place, CONTROL, PLACES};
use super::classes::{most_bytes, Chunk, RUN};
use super::item::{self, Lengths};
use super::layout::{Key, KvLayout};
use super::store::Target;
use super::words::Words;
use crate::sync::{fence, AtomicU64, Ordering};

/// Before space for a value longer than this is requested, the version is checked again.
const DEAR_BYTES: usize = 4096;
/// Bytes of an item that are prefetched at most; the hardware prefetcher finds further lines by itself, one after the
/// other.
const MAX_PREFETCHED_BYTES: usize = 512;

/// The chains of one store.
#[derive(Debug)]
pub(super) struct Chains<'a, W: Words> {
    pub(super) words: &'a W,
    pub(super) layout: &'a KvLayout,
}

/// The position of a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) bucket: u32,
    pub(super) slot: usize,
    pub(super) chunk: Chunk,
}

/// Slots as a bit mask.
#[derive(Clone, Copy, Debug)]
struct Candidates(u32);

impl Iterator for Candidates {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        let slot = self.0.trailing_zeros() as usize;
        // Clears the lowest bit; an empty mask stays empty.
        self.0 &= self.0.wrapping_sub(1);
        (slot < PLACES).then_some(slot)
    }
}

/// The end of a chain, for a key that is not in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChainEnd {
    pub(super) free: Option<(u32, usize)>,
    pub(super) last: u32,
}

/// The result of reading a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    Found,
    Absent,
    /// The chain is being changed; what was read is invalid.
    Disturbed,
}

impl<W: Words> Chains<'_, W> {
    /// Reads a chain once, without its lock.
    #[inline]
    pub(super) fn look<T: Target>(
        &self,
        key: &Key<'_>,
        main: u32,
        target: &mut T,
    ) -> Result<Look, T::Error> {
        let word = self.control_word(main);
        let before = Control(word.load(Ordering::Acquire));
        if before.is_changing() {
            return Ok(Look::Disturbed);
        }
        let look = self.copy(key, main, before, target)?;
        fence(Ordering::Acquire);
        Ok(match word.load(Ordering::Relaxed) == before.0 {
            true => look,
            false => Look::Disturbed,
        })
    }

    /// Copies the value of a key if it is in the chain. The result is valid only if the control word is still `before`.
    #[inline]
    pub(super) fn copy<T: Target>(
        &self,
        key: &Key<'_>,
        main: u32,
        before: Control,
        target: &mut T,
    ) -> Result<Look, T::Error> {
        let (tag, mut bucket, mut control) = (key.tag(), main, before);
        loop {
            for slot in self.candidates(bucket, tag) {
                let chunk = self.place(bucket, slot).chunk();
                let lengths = item::lengths(self.words, chunk.offset);
                if !self.is_its(key, chunk, lengths) {
                    continue;
                }
                if !self.is_affordable(main, before, lengths) {
                    return Ok(Look::Disturbed);
                }
                let room = match target.room(lengths.value) {
                    Ok(room) => room,
                    // An error that is due to a length being changed is not reported.
                    Err(_) if !self.is_still(main, before) => return Ok(Look::Disturbed),
                    Err(error) => return Err(error),
                };
                let from = chunk.offset + lengths.value_offset();
                self.words.read(from, &mut room[..lengths.value]);
                return Ok(Look::Found);
            }
            let Some(next) = self.next_bucket(control) else {
                return Ok(Look::Absent);
            };
            bucket = next;
            control = self.control(bucket);
            // A chain that is being changed may contain a cycle.
            if !self.is_still(main, before) {
                return Ok(Look::Disturbed);
            }
        }
    }

    /// Prefetches the bucket of a key.
    #[inline]
    pub(super) fn prefetch_bucket(&self, key: &Key<'_>) {
        let main = self.layout.main_bucket(key);
        self.words.prefetch(self.layout.bucket_offset(main));
    }

    /// Prefetches the items in the key's main bucket that may be the key's.
    #[inline]
    pub(super) fn prefetch_item(&self, key: &Key<'_>) {
        let (tag, main) = (key.tag(), self.layout.main_bucket(key));
        for slot in self.candidates(main, tag) {
            let chunk = self.place(main, slot).chunk();
            let bytes = most_bytes(chunk.code).min(MAX_PREFETCHED_BYTES);
            for at in (0..bytes).step_by(64) {
                self.words.prefetch(chunk.offset + at);
            }
        }
    }

    /// Returns the places with a tag. All are compared before any is followed: the result is then a number and not a
    /// branch, which the processor would mispredict, so that it could not start on the next key while it waits for this
    /// bucket.
    #[inline]
    fn candidates(&self, bucket: u32, tag: u16) -> Candidates {
        let mut mask = 0;
        for slot in 0..PLACES {
            mask |= u32::from(self.place(bucket, slot).has_tag(tag)) << slot;
        }
        Candidates(mask)
    }

    /// Returns the position of a key in its chain, or the end of the chain if it is absent. The caller holds the
    /// chain's lock.
    pub(super) fn find(&self, key: &Key<'_>, main: u32) -> Result<Found, ChainEnd> {
        let tag = key.tag();
        let (mut free, mut bucket) = (None, main);
        loop {
            for slot in self.candidates(bucket, tag) {
                let chunk = self.place(bucket, slot).chunk();
                let lengths = item::lengths(self.words, chunk.offset);
                if self.is_its(key, chunk, lengths) {
                    return Ok(Found {
                        bucket,
                        slot,
                        chunk,
                    });
                }
            }
            let mut empty = (0..PLACES).filter(|slot| self.place(bucket, *slot).is_empty());
            free = free.or_else(|| empty.next().map(|slot| (bucket, slot)));
            match self.next_bucket(self.control(bucket)) {
                Some(next) => bucket = next,
                None => return Err(ChainEnd { free, last: bucket }),
            }
        }
    }

    /// Changes a chain whose lock the caller holds. `what` returns the new control word, apart from the version.
    #[inline]
    pub(super) fn change(&self, main: u32, what: impl FnOnce(Control) -> Control) {
        let word = self.control_word(main);
        let now = Control(word.load(Ordering::Relaxed));
        // It is already odd if a writer has panicked.
        let changing = match now.is_changing() {
            true => now,
            false => now.advanced(),
        };
        word.store(changing.0, Ordering::Relaxed);
        fence(Ordering::Release);
        let control = what(changing);
        word.store(control.advanced().0, Ordering::Release);
    }

    /// Stores `place` at the position of a key, existing or new.
    pub(super) fn replace(&self, main: u32, bucket: u32, slot: usize, place: Place) {
        self.change(main, |control| {
            self.set_place(bucket, slot, place);
            control
        });
    }

    /// Appends an unused overflow bucket with one place filled.
    pub(super) fn append(&self, main: u32, last: u32, number: u32, place: Place) {
        let bucket = self.layout.main_buckets() + number;
        // A reader may still be in it, coming from another chain.
        fence(Ordering::Release);
        for slot in 1..PLACES {
            self.set_place(bucket, slot, Place::EMPTY);
        }
        self.control_word(bucket).store(0, Ordering::Relaxed);
        self.set_place(bucket, 0, place);
        self.change(main, |control| {
            if last == main {
                return control.with_next(number + 1);
            }
            self.link(last, number + 1);
            control
        });
    }

    /// Clears the place of a key. Returns the number of the overflow bucket if it became empty and has left the chain.
    pub(super) fn remove(&self, main: u32, found: Found) -> Option<u32> {
        let mut unlinked = None;
        self.change(main, |control| {
            self.set_place(found.bucket, found.slot, Place::EMPTY);
            let number = found.bucket.checked_sub(self.layout.main_buckets());
            unlinked = number.filter(|_| self.is_empty(found.bucket));
            match unlinked {
                Some(number) => self.unlink(control, number),
                None => control,
            }
        });
        unlinked
    }

    /// Removes an empty overflow bucket from its chain, which is being changed.
    fn unlink(&self, control: Control, number: u32) -> Control {
        let next = self.control(self.layout.main_buckets() + number).next();
        if control.next() == number + 1 {
            return control.with_next(next);
        }
        let mut at = control;
        while let Some(before) = self.next_bucket(at) {
            at = self.control(before);
            if at.next() == number + 1 {
                self.link(before, next);
                break;
            }
        }
        control
    }

    /// Makes `next`, a number plus one or 0, the successor of an overflow bucket.
    fn link(&self, bucket: u32, next: u32) {
        let linked = self.control(bucket).with_next(next);
        self.control_word(bucket).store(linked.0, Ordering::Relaxed);
    }

    /// Whether an item belongs to a key. If the item is being changed its lengths may have any value: nothing outside
    /// its chunk is read.
    #[inline]
    fn is_its(&self, key: &Key<'_>, chunk: Chunk, lengths: Lengths) -> bool {
        lengths.key == key.bytes.len()
            && self.is_inside(chunk, lengths)
            && item::has_key(self.words, chunk.offset, key.bytes)
    }

    /// Whether the lengths lie within their chunk and within the memory.
    #[inline]
    fn is_inside(&self, chunk: Chunk, lengths: Lengths) -> bool {
        let most = match chunk.code {
            RUN => self.words.bytes() - chunk.offset,
            code => most_bytes(code),
        };
        lengths.item_bytes() <= most
    }

    /// Whether it is worth requesting space for a value of this length.
    #[inline]
    fn is_affordable(&self, main: u32, before: Control, lengths: Lengths) -> bool {
        lengths.value <= DEAR_BYTES || self.is_still(main, before)
    }

    /// Whether what has been read so far is valid.
    fn is_still(&self, main: u32, before: Control) -> bool {
        fence(Ordering::Acquire);
        self.control_word(main).load(Ordering::Relaxed) == before.0
    }

    fn is_empty(&self, bucket: u32) -> bool {
        (0..PLACES).all(|slot| self.place(bucket, slot).is_empty())
    }

    #[inline]
    fn next_bucket(&self, control: Control) -> Option<u32> {
        let number = control.next().checked_sub(1)?;
        Some(self.layout.main_buckets() + number)
    }

    #[inline]
    fn place(&self, bucket: u32, slot: usize) -> Place {
        let at = self.layout.bucket_offset(bucket) + slot * 8;
        Place(self.words.word(at).load(Ordering::Relaxed))
    }

    #[inline]
    fn set_place(&self, bucket: u32, slot: usize, place: Place) {
        let at = self.layout.bucket_offset(bucket) + slot * 8;
        self.words.word(at).store(place.0, Ordering::Relaxed);
    }

    /// The control word of a bucket, for callers that hold the lock or check the main bucket's version afterwards.
    #[inline]
    pub(super) fn control(&self, bucket: u32) -> Control {
        Control(self.control_word(bucket).load(Ordering::Relaxed))
    }

    #[inline]
    fn control_word(&self, bucket: u32) -> &AtomicU64 {
        self.words.word(self.layout.bucket_offset(bucket) + CONTROL)
    }
}
