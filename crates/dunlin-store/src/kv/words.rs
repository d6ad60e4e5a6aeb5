//! The memory that a store stands in, as the words that its protocol is made of.

use crate::sync::AtomicU64;

/// Memory of a store: a region of a device, or whatever else holds one.
#[cfg(not(loom))]
pub trait Space: Send + Sync {
    /// The bytes. It is the same memory each time.
    fn memory(&self) -> &dunlin_verbs::Memory;
}

#[cfg(not(loom))]
impl<R: dunlin_verbs::Region> Space for R {
    fn memory(&self) -> &dunlin_verbs::Memory {
        dunlin_verbs::Region::memory(self)
    }
}

/// What the protocol does with memory. Every [`Space`] has it; the model checker has words of its own.
pub trait Words: Send + Sync {
    /// Bytes.
    fn bytes(&self) -> usize;
    /// The word at `offset`, a multiple of 8.
    fn word(&self, offset: usize) -> &AtomicU64;
    /// Copies out, in no particular order.
    fn read(&self, offset: usize, target: &mut [u8]);
    /// Copies in, in no particular order.
    fn write(&self, offset: usize, source: &[u8]);
    /// Asks the processor for the line at `offset`, which will be read soon.
    fn prefetch(&self, offset: usize);
}

#[cfg(not(loom))]
impl<S: Space> Words for S {
    #[inline]
    fn bytes(&self) -> usize {
        self.memory().len()
    }

    #[inline]
    fn word(&self, offset: usize) -> &AtomicU64 {
        self.memory().atomic_u64(offset)
    }

    #[inline]
    fn read(&self, offset: usize, target: &mut [u8]) {
        self.memory().read(offset, target);
    }

    #[inline]
    fn write(&self, offset: usize, source: &[u8]) {
        self.memory().write(offset, source);
    }

    #[inline]
    fn prefetch(&self, offset: usize) {
        let start = self.memory().start().as_ptr();
        dunlin_verbs::prefetch_to_read(start.wrapping_add(offset));
    }
}
