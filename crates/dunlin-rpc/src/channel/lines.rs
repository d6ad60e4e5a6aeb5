//! The ring as memory: lines by position, in bounds by construction. One of the two places of this crate that touch raw memory.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use dunlin_verbs::Memory;

use super::line::{BODY_BYTES, LINE_BYTES};

/// A ring of lines in a window of registered memory. Positions count from the start of the connection and are taken modulo the size,
/// so that no position, and nothing that a peer writes, can lead outside; the window is checked once, when the view is made.
#[derive(Clone, Copy)]
pub(super) struct Lines<'a> {
    start: NonNull<u8>,
    mask: usize,
    memory: PhantomData<&'a Memory>,
}

#[allow(unsafe_code)]
impl<'a> Lines<'a> {
    /// The `2^shift` lines at byte `start` of `memory`.
    ///
    /// # Panics
    /// When they are not inside, or not on 8 bytes.
    #[inline]
    pub(super) fn new(memory: &'a Memory, start: usize, shift: u32) -> Self {
        let lines = 1usize << shift;
        assert!(
            start % 8 == 0 && memory.contains(start, lines * LINE_BYTES),
            "a ring in its region"
        );
        // SAFETY: `start` is inside the window.
        let start = unsafe { memory.start().add(start) };
        Self {
            start,
            mask: lines - 1,
            memory: PhantomData,
        }
    }

    #[inline]
    fn at(&self, position: u64) -> NonNull<u8> {
        // SAFETY: the masked position is one of the lines that were checked to be inside.
        unsafe { self.start.add((position as usize & self.mask) * LINE_BYTES) }
    }

    /// The tag of a line; what the line holds is read after it.
    #[inline]
    pub(super) fn tag(&self, position: u64) -> u64 {
        // SAFETY: a tag is the last 8 bytes of a line, on 8 bytes because windows and lines are; anyone may change it at any time.
        let tag = unsafe { AtomicU64::from_ptr(self.at(position).add(BODY_BYTES).as_ptr().cast()) };
        u64::from_le(tag.load(Ordering::Acquire))
    }

    /// Copies the body of a line out.
    #[inline]
    pub(super) fn body(&self, position: u64, target: &mut [u8; BODY_BYTES]) {
        // SAFETY: a body is inside its line, `target` is private memory. The peer may tear the copy; bytes have no invalid values.
        unsafe {
            std::ptr::copy_nonoverlapping(
                self.at(position).as_ptr(),
                target.as_mut_ptr(),
                BODY_BYTES,
            )
        }
    }

    /// Asks the processor for a line that will be read soon.
    #[inline]
    pub(super) fn prefetch(&self, position: u64) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: inside the ring; a prefetch changes nothing.
        unsafe {
            use std::arch::x86_64::{_mm_prefetch, _MM_HINT_T0};
            _mm_prefetch::<_MM_HINT_T0>(self.at(position).as_ptr().cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = position;
    }
}
