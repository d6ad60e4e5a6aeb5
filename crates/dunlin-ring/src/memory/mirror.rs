//! The producer's array: only this process writes it, and the device reads it.

use std::ptr::NonNull;

use dunlin_verbs::Region;

use super::array::Array;

/// The array that only this process writes. The caller must lend only slices that no work request in flight names;
/// [`crate::policy::Sender`] keeps track of that.
#[derive(Debug)]
pub(crate) struct Mirror<R: Region> {
    array: Array<R>,
    /// Where it begins in its region.
    first: usize,
    /// A run of places that are handed out one after the other: the next one, the end of the run, and the bytes of each
    /// place. Only one of these words changes with each place, because it has to be stored each time.
    run: NonNull<u8>,
    run_end: NonNull<u8>,
    unit: usize,
}

// SAFETY: the pointers are into the array's memory, which it keeps alive, whichever thread holds the value.
unsafe impl<R: Region> Send for Mirror<R> {}

impl<R: Region> Mirror<R> {
    /// Uses the `length` bytes from `first` of a region that no peer can access.
    ///
    /// # Panics
    /// When they are out of bounds or not aligned to 8 bytes, or a peer has any access to the region.
    pub(crate) fn new(region: R, first: usize, length: usize) -> Self {
        assert!(
            !region.access().is_remote(),
            "the producer's array must not be accessible to peers"
        );
        let array = Array::new(region, first, length);
        let start = array.at(0, 0);
        Self {
            array,
            first,
            run: start,
            run_end: start,
            unit: 0,
        }
    }

    /// Begins a run: `count` adjacent places of `unit` bytes each from `offset`. It replaces the previous one.
    ///
    /// # Panics
    /// When they are out of bounds.
    pub(crate) fn begin_run(&mut self, offset: usize, unit: usize, count: u64) {
        let bytes = unit * count as usize;
        self.run = self.array.at(offset, bytes);
        self.run_end = self.array.at(offset + bytes, 0);
        self.unit = unit;
    }

    /// Ends the run: no more places are handed out.
    pub(crate) fn end_run(&mut self) {
        self.run_end = self.run;
    }

    /// Whether the run has a place left.
    #[inline(always)]
    pub(crate) fn is_running(&self) -> bool {
        self.run < self.run_end
    }

    /// The first `length` bytes of the run's next place; `None` if there is no further place, or if it is shorter.
    #[inline(always)]
    pub(crate) fn next_of_run(&mut self, length: usize) -> Option<&mut [u8]> {
        if !self.is_running() || length > self.unit {
            return None;
        }
        // SAFETY: `begin_run` checked that all places before `run_end`, whole ones, are in bounds; for the rest see
        // `bytes_mut`.
        Some(unsafe { std::slice::from_raw_parts_mut(self.run.as_ptr(), length) })
    }

    /// Advances the run: its next place has been filled.
    #[inline(always)]
    pub(crate) fn filled(&mut self) {
        if self.is_running() {
            // SAFETY: behind a place of the run is the next one, or the end of the run, which is inside the array or
            // directly behind it.
            self.run = unsafe { self.run.add(self.unit) };
        }
    }

    /// The bytes, for filling.
    #[inline(always)]
    pub(crate) fn bytes_mut(&mut self, offset: usize, length: usize) -> &mut [u8] {
        let start = self.array.at(offset, length);
        // SAFETY: in bounds. The region is not remote, so no peer can access it; `&mut self` excludes other users in
        // this process; and the device reads only what work requests in flight name, which the caller has excluded.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), length) }
    }

    /// The bytes, for inline sending.
    #[inline(always)]
    pub(crate) fn bytes(&self, offset: usize, length: usize) -> &[u8] {
        let start = self.array.at(offset, length);
        // SAFETY: in bounds, and nobody writes while `self` is borrowed; the device only reads.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), length) }
    }

    /// The region and the offset in it that corresponds to `offset`.
    #[inline(always)]
    pub(crate) fn place(&self, offset: usize) -> (&R, usize) {
        (self.array.region(), self.first + offset)
    }
}
