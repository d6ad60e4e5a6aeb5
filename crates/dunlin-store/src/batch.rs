//! GETs of several keys at once whose memory accesses overlap (MICA and FaSST prefetch batches in the same way).

use std::sync::atomic::Ordering;

use dunlin_verbs::{prefetch_to_read, Region};

use crate::layout::{KEYS_PER_BUCKET, VALUE_OFFSET};
use crate::{StoreError, Table};

impl<R: Region> Table<R> {
    /// Like [`Table::get`] for each of `keys`, each into the next [`crate::Layout::value_bytes`] of `values`; `ended`
    /// is called with the result for each, in order. All buckets are prefetched first and then all items, so it takes
    /// little longer than the slowest GET.
    ///
    /// # Panics
    /// When `values` has not exactly that many bytes.
    pub fn get_many(
        &self,
        keys: &[u64],
        values: &mut [u8],
        mut ended: impl FnMut(usize, Result<u64, StoreError>),
    ) {
        let value_bytes = self.layout().value_bytes();
        assert_eq!(values.len(), keys.len() * value_bytes);
        keys.iter().for_each(|key| self.prefetch_bucket(*key));
        keys.iter().for_each(|key| self.prefetch_item(*key));
        for (index, (key, value)) in keys
            .iter()
            .zip(values.chunks_exact_mut(value_bytes))
            .enumerate()
        {
            ended(index, self.get(*key, value));
        }
    }

    /// Prefetches the main bucket of a key that will be looked up soon.
    #[inline]
    pub fn prefetch_bucket(&self, key: u64) {
        self.prefetch(
            self.layout().bucket_offset(self.layout().main_bucket(key)),
            1,
        );
    }

    /// Prefetches the item of a key whose main bucket is in the cache; has no effect if the key is in an overflow
    /// bucket.
    #[inline]
    pub fn prefetch_item(&self, key: u64) {
        let (layout, memory) = (self.layout(), self.region().memory());
        let bucket = layout.main_bucket(key);
        let line = layout.bucket_offset(bucket);
        let mut same = 0;
        for slot in 0..KEYS_PER_BUCKET {
            let known = memory.atomic_u64(line + slot * 8).load(Ordering::Relaxed);
            same |= u32::from(known == key) << slot;
        }
        let slot = same.trailing_zeros() as usize;
        if slot < KEYS_PER_BUCKET {
            let bytes = VALUE_OFFSET + layout.value_bytes();
            self.prefetch(layout.item_offset(bucket, slot), bytes);
        }
    }

    #[inline]
    fn prefetch(&self, offset: usize, bytes: usize) {
        let start = self.region().memory().start().as_ptr().wrapping_add(offset);
        let lines = (start as usize % 64 + bytes).div_ceil(64);
        for line in 0..lines {
            prefetch_to_read(start.wrapping_add(line * 64));
        }
    }
}
