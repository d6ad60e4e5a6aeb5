//! The array of one end of a ring, as a part of a region.

use std::ptr::NonNull;

use dunlin_verbs::Region;

/// Part of a region, which it keeps alive.
#[derive(Debug)]
pub(super) struct Array<R: Region> {
    start: NonNull<u8>,
    length: usize,
    region: R,
}

// SAFETY: the pointer is into memory that the region keeps alive, whichever thread holds the value.
unsafe impl<R: Region> Send for Array<R> {}

impl<R: Region> Array<R> {
    /// The `length` bytes from `first` of a region.
    ///
    /// # Panics
    /// When they are out of bounds, or not aligned to 8 bytes.
    pub(super) fn new(region: R, first: usize, length: usize) -> Self {
        let memory = region.memory();
        assert!(
            first % 8 == 0 && memory.contains(first, length),
            "an array in its region"
        );
        // SAFETY: `first` is in bounds of the window.
        let start = unsafe { memory.start().add(first) };
        Self {
            start,
            length,
            region,
        }
    }

    pub(super) fn region(&self) -> &R {
        &self.region
    }

    /// A pointer to `length` bytes at `offset`, valid for as long as the array.
    ///
    /// # Panics
    /// When they are out of bounds.
    #[inline(always)]
    pub(super) fn at(&self, offset: usize, length: usize) -> NonNull<u8> {
        assert!(
            offset <= self.length && length <= self.length - offset,
            "inside the array"
        );
        // SAFETY: in bounds, as just checked.
        unsafe { self.start.add(offset) }
    }
}
