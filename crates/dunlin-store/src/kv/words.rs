//! The memory of a store, as the words that its protocol operates on.

use crate::sync::AtomicU64;

/// Memory for a store: a region of a device, or the words of a model.
pub trait Space: Send + Sync {
    /// The operations on it.
    type Words: Words;
    /// The words, the same on every call. Called once per operation.
    fn words(&self) -> &Self::Words;
}

/// The operations on memory that the protocol uses.
pub trait Words: Send + Sync {
    /// Length in bytes.
    fn bytes(&self) -> usize;
    /// The word at `offset`, a multiple of 8.
    fn word(&self, offset: usize) -> &AtomicU64;
    /// Copies out, in no particular order.
    fn read(&self, offset: usize, target: &mut [u8]);
    /// Copies in, in no particular order.
    fn write(&self, offset: usize, source: &[u8]);
    /// Prefetches the line at `offset`, which will be read soon.
    fn prefetch(&self, offset: usize);
}

#[cfg(not(loom))]
impl<R: dunlin_verbs::Region> Space for R {
    type Words = dunlin_verbs::Memory;

    #[inline]
    fn words(&self) -> &dunlin_verbs::Memory {
        self.memory()
    }
}

#[cfg(not(loom))]
impl Words for dunlin_verbs::Memory {
    #[inline]
    fn bytes(&self) -> usize {
        self.len()
    }

    #[inline]
    fn word(&self, offset: usize) -> &AtomicU64 {
        self.atomic_u64(offset)
    }

    #[inline]
    fn read(&self, offset: usize, target: &mut [u8]) {
        dunlin_verbs::Memory::read(self, offset, target);
    }

    #[inline]
    fn write(&self, offset: usize, source: &[u8]) {
        dunlin_verbs::Memory::write(self, offset, source);
    }

    #[inline]
    fn prefetch(&self, offset: usize) {
        dunlin_verbs::prefetch_to_read(self.start().as_ptr().wrapping_add(offset));
    }
}
