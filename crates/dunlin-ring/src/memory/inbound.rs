//! The consumer's array: the peer writes it; this side reads it, and zeroes it where messages are detected by polling.

use std::sync::atomic::{AtomicU64, AtomicU8, Ordering};

use dunlin_verbs::{prefetch_to_read, Region};

use super::array::Array;
use super::Message;

/// The array that the peer writes.
#[derive(Debug)]
pub(crate) struct Inbound<R: Region> {
    array: Array<R>,
}

impl<R: Region> Inbound<R> {
    /// Uses the `length` bytes from `start` of a region.
    ///
    /// # Panics
    /// When they are out of bounds, or not aligned to 8 bytes.
    pub(crate) fn new(region: R, start: usize, length: usize) -> Self {
        let array = Array::new(region, start, length);
        Self { array }
    }

    /// The word at `offset`, a multiple of 8, loaded with acquire ordering: what the peer wrote before it is visible
    /// afterwards.
    #[inline(always)]
    pub(crate) fn word(&self, offset: usize) -> u64 {
        assert!(offset % 8 == 0, "a word must be aligned to 8 bytes");
        // SAFETY: in bounds and aligned; anyone may change it at any time.
        let word = unsafe { AtomicU64::from_ptr(self.array.at(offset, 8).as_ptr().cast()) };
        u64::from_le(word.load(Ordering::Acquire))
    }

    /// The byte at `offset`, loaded with acquire ordering: what the peer wrote before it is visible afterwards.
    #[inline(always)]
    pub(crate) fn byte(&self, offset: usize) -> u8 {
        // SAFETY: in bounds; anyone may change it at any time.
        let byte = unsafe { AtomicU8::from_ptr(self.array.at(offset, 1).as_ptr()) };
        byte.load(Ordering::Acquire)
    }

    /// The message of `length` bytes at `offset`.
    #[inline(always)]
    pub(crate) fn message(&self, offset: usize, length: usize) -> Message<'_> {
        // SAFETY: in bounds, and the region held here keeps the memory alive for as long as the borrow.
        unsafe { Message::new(self.array.at(offset, length), length) }
    }

    /// Zeroes what was read, so that the next message is not detected there before it has arrived.
    #[inline(always)]
    pub(crate) fn zero(&mut self, offset: usize, length: usize) {
        // SAFETY: in bounds. The peer has not been told yet that it may write here; if it does, bytes have no invalid
        // values.
        unsafe { std::ptr::write_bytes(self.array.at(offset, length).as_ptr(), 0, length) }
    }

    /// Prefetches the line at `offset`, which will be read soon.
    #[inline(always)]
    pub(crate) fn prefetch(&self, offset: usize) {
        prefetch_to_read(self.array.at(offset, 1).as_ptr());
    }
}
