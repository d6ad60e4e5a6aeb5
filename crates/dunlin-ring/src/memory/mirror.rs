//! The producer's array: only this process writes it, and the device reads it.

use std::ptr::NonNull;

use dunlin_verbs::Region;

/// The array that only we write. The caller lends slices only of places that no work request under way names; that is
/// what [`crate::policy::Sender`] keeps account of.
#[derive(Debug)]
pub(crate) struct Mirror<R: Region> {
    start: NonNull<u8>,
    first: usize,
    length: usize,
    /// A run of places that are given out one after the other: the next one, where they end, and the bytes of each. One
    /// word of them changes with each place, for it is stored each time.
    run: NonNull<u8>,
    run_end: NonNull<u8>,
    unit: usize,
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
            run: start,
            run_end: start,
            unit: 0,
            region,
        }
    }

    /// Begins a run: `count` places of `unit` bytes each, side by side from `offset`. It takes the place of the one
    /// before.
    ///
    /// # Panics
    /// When they are not inside.
    pub(crate) fn begin_run(&mut self, offset: usize, unit: usize, count: u64) {
        let bytes = unit * count as usize;
        self.run = self.at(offset, bytes);
        self.run_end = self.at(offset + bytes, 0);
        self.unit = unit;
    }

    /// Ends the run: nothing more is given out.
    pub(crate) fn end_run(&mut self) {
        self.run_end = self.run;
    }

    /// Whether the run has a place left.
    #[inline(always)]
    pub(crate) fn is_running(&self) -> bool {
        self.run < self.run_end
    }

    /// The first `length` bytes of the run's next place; none when there is no further place, or it is shorter.
    #[inline(always)]
    pub(crate) fn next_of_run(&mut self, length: usize) -> Option<&mut [u8]> {
        if !self.is_running() || length > self.unit {
            return None;
        }
        // SAFETY: `begin_run` checked that all places before `run_end`, whole ones, are inside; for the rest see
        // `bytes_mut`.
        Some(unsafe { std::slice::from_raw_parts_mut(self.run.as_ptr(), length) })
    }

    /// The run's next place has been filled.
    #[inline(always)]
    pub(crate) fn filled(&mut self) {
        if self.is_running() {
            // SAFETY: behind a place of the run is the next one, or the end of them all, which is inside the array or
            // right behind it.
            self.run = unsafe { self.run.add(self.unit) };
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
