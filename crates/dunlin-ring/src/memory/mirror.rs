//! The producer's array: only this process writes it, and the device reads it.

use std::ptr::NonNull;

use dunlin_verbs::Region;

/// The array that only we write. The caller lends slices only of places that no work request under way names; that is what
/// [`crate::policy::Sender`] keeps account of.
#[derive(Debug)]
pub(crate) struct Mirror<R: Region> {
    start: NonNull<u8>,
    first: usize,
    length: usize,
    region: R,
}

// SAFETY: the pointer is into memory that the region keeps, whichever thread holds the value.
unsafe impl<R: Region> Send for Mirror<R> {}

impl<R: Region> Mirror<R> {
    /// The `length` bytes from `first` of a region that no peer can reach.
    ///
    /// # Panics
    /// When they are not inside, or not on 8 bytes, or a peer may do anything with the region.
    pub(crate) fn new(region: R, first: usize, length: usize) -> Self {
        let memory = region.memory();
        assert!(
            first % 8 == 0 && memory.contains(first, length),
            "an array in its region"
        );
        assert!(
            !region.access().is_remote(),
            "the producer's array is its own"
        );
        // SAFETY: `first` is inside the window.
        let start = unsafe { memory.start().add(first) };
        Self {
            start,
            first,
            length,
            region,
        }
    }

    #[inline(always)]
    fn at(&self, offset: usize, length: usize) -> NonNull<u8> {
        assert!(
            offset <= self.length && length <= self.length - offset,
            "inside the array"
        );
        // SAFETY: inside, as just checked.
        unsafe { self.start.add(offset) }
    }

    /// The bytes, to be filled.
    #[inline(always)]
    pub(crate) fn bytes_mut(&mut self, offset: usize, length: usize) -> &mut [u8] {
        let start = self.at(offset, length);
        // SAFETY: inside. The region is not remote, so no peer reaches it; `&mut self` excludes other users in this
        // process; and the device reads only what work requests under way name, which the caller has excluded.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), length) }
    }

    /// The bytes, to be sent inline.
    #[inline(always)]
    pub(crate) fn bytes(&self, offset: usize, length: usize) -> &[u8] {
        let start = self.at(offset, length);
        // SAFETY: inside, and nobody writes while `self` is borrowed; the device only reads.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), length) }
    }

    /// The region, and where in it `offset` is.
    #[inline(always)]
    pub(crate) fn place(&self, offset: usize) -> (&R, usize) {
        (&self.region, self.first + offset)
    }
}
