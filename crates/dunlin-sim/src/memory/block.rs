//! Bytes of a region: the only module of this crate that handles raw memory.
#![allow(unsafe_code)]

use std::ptr::NonNull;

use dunlin_verbs::Memory;

/// Regions start on a page.
pub(crate) const BLOCK_ALIGNMENT: usize = 4096;

/// The bytes of a region, owned or registered raw. Shared by region objects and the world, so it outlives both.
#[derive(Debug)]
pub(crate) struct Block {
    memory: Memory,
    /// The allocation to free.
    owned: Option<(NonNull<u64>, usize)>,
}

// SAFETY: the pointer only names the allocation to be freed; the bytes are reached through `Memory` alone.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    /// Allocates zeroed bytes, aligned to a page. Pages that are never touched take no memory.
    pub(crate) fn allocate(length: usize) -> Self {
        let words = (length + BLOCK_ALIGNMENT).div_ceil(8);
        let allocation = Box::into_raw(vec![0u64; words].into_boxed_slice());
        let start = NonNull::new(allocation.cast::<u64>()).expect("a box is not null");
        let skip = start.as_ptr().cast::<u8>().align_offset(BLOCK_ALIGNMENT);
        // SAFETY: `skip` is below a page, and the allocation is a page longer than `length`.
        let aligned = unsafe { start.cast::<u8>().add(skip) };
        // SAFETY: aligned to a page, valid for `length` bytes until the drop of this value, and no reference to the
        // bytes exists: the box was turned into a pointer.
        let memory = unsafe { Memory::new(aligned, length) };
        Self {
            memory,
            owned: Some((start, words)),
        }
    }

    /// Wraps memory of the caller.
    ///
    /// # Safety
    /// The contract of [`dunlin_verbs::Device::register_raw`].
    pub(crate) unsafe fn raw(start: NonNull<u8>, length: usize) -> Self {
        // SAFETY: the caller's promise covers it.
        let memory = unsafe { Memory::new(start, length) };
        Self {
            memory,
            owned: None,
        }
    }

    #[inline]
    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Some((start, words)) = self.owned {
            let slice = std::ptr::slice_from_raw_parts_mut(start.as_ptr(), words);
            // SAFETY: from `Box::into_raw` of a slice of this length, freed once.
            drop(unsafe { Box::from_raw(slice) });
        }
    }
}
