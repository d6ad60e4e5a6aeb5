//! The ring as memory: words and lines by position, in bounds by construction. One of the few places of this crate that
//! access raw memory.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use dunlin_verbs::{copy_lines, prefetch_to_read, Memory};

use super::batch::LINE_BYTES;

/// A ring of lines in a window of registered memory. Positions count from the start of the connection and are taken
/// modulo the size, so that no position, and nothing that a peer writes, can lead outside; the window is checked once,
/// when the view is created.
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
    /// When they are not inside, or not aligned to 8 bytes.
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

    /// Reads word 0 to 7 of a line; what was written before it is read after it.
    #[inline]
    pub(super) fn word(&self, position: u64, word: usize) -> u64 {
        let at = (word % (LINE_BYTES / 8)) * 8;
        // SAFETY: inside the line, and aligned to 8 bytes because windows and lines are; it may be changed concurrently
        // at any time.
        let word = unsafe { AtomicU64::from_ptr(self.at(position).add(at).as_ptr().cast()) };
        u64::from_le(word.load(Ordering::Acquire))
    }

    /// Prefetches a line that will be read soon.
    #[inline]
    pub(super) fn prefetch(&self, position: u64) {
        prefetch_to_read(self.at(position).as_ptr());
    }

    /// Copies `lines` lines out, from `position` on and around the end of the ring.
    ///
    /// # Panics
    /// When `target` is shorter, or the ring.
    #[inline]
    pub(super) fn copy(&self, position: u64, lines: usize, target: &mut [u8]) {
        let at = position as usize & self.mask;
        let before_end = lines.min(self.mask + 1 - at);
        let after = lines - before_end;
        assert!(target.len() >= lines * LINE_BYTES && after <= at);
        // SAFETY: `at + before_end` and `after` are lines of the ring, `target` is private memory with room for both
        // parts. The copy may be torn by writes of the peer; bytes have no invalid values.
        unsafe {
            let target = target.as_mut_ptr();
            copy_lines(self.at(position).as_ptr(), target, before_end);
            if after > 0 {
                let target = target.add(before_end * LINE_BYTES);
                copy_lines(self.start.as_ptr(), target, after);
            }
        }
    }
}
