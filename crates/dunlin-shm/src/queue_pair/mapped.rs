//! Regions of the connected peer into which code above stores without work requests.

use std::ptr::NonNull;
use std::sync::atomic::{fence, Ordering};
use std::sync::Arc;

use dunlin_verbs::process::Generation;
use dunlin_verbs::{
    copy_in_order, copy_lines_first_word_last, prefetch_to_write, PeerMemory, PeerSource,
    QueuePairState,
};

use crate::mapping::Mapping;
use crate::port::{is_receiving, PortMap};
use crate::region_table::PeerTable;

use super::shared::Shared;

/// Length of a cache line in bytes.
const LINE_BYTES: usize = 64;
/// Number of lines that a core fetches at a time.
const MOST_LINES: usize = 32;

/// The part of `length` bytes that a core fetches at a time.
#[inline(always)]
pub(super) fn fetched_at_once(length: usize) -> usize {
    length.min(MOST_LINES * LINE_BYTES)
}

/// Prefetches the lines of a location that will be written soon.
#[inline(always)]
pub(super) fn fetch_to_write(start: *const u8, length: usize) {
    for line in (0..length).step_by(LINE_BYTES) {
        prefetch_to_write(start.wrapping_add(line));
    }
}

/// The mapping of a range of the peer's memory, and the means to check whether it may still be accessed.
#[derive(Debug)]
pub(super) struct Range {
    pub(super) port: Arc<PortMap>,
    pub(super) table: PeerTable,
    pub(super) key: u32,
    /// Start of `length` bytes inside the mapping.
    pub(super) start: NonNull<u8>,
    pub(super) length: usize,
    /// Keeps the range mapped.
    pub(super) _mapping: Arc<Mapping>,
}

// SAFETY: `start` is inside the mapping, which may move between threads and which the value keeps alive.
unsafe impl Send for Range {}

/// Memory of the connected peer that this process has mapped. See [`dunlin_verbs::QueuePair::map_peer`].
#[derive(Debug)]
pub struct MappedRegion {
    range: Range,
    pair: Arc<Shared>,
    /// Incarnation of the queue pair's connection, and the process that created this.
    incarnation: u32,
    made_in: Generation,
}

impl MappedRegion {
    pub(super) fn new(pair: Arc<Shared>, range: Range) -> Self {
        Self {
            range,
            incarnation: pair.incarnation(),
            made_in: pair.core.made_in,
            pair,
        }
    }
}

impl Range {
    /// The address of `length` bytes at `offset`.
    ///
    /// # Panics
    /// When they are out of bounds.
    #[inline(always)]
    fn at(&self, offset: usize, length: usize) -> *mut u8 {
        let end = offset.checked_add(length);
        assert!(
            end.is_some_and(|end| end <= self.length),
            "the range must be inside the peer's region"
        );
        self.start.as_ptr().wrapping_add(offset)
    }
}

/// The same for a range that this queue pair may only read.
#[derive(Debug)]
pub(super) struct MappedSource(pub(super) MappedRegion);

impl PeerSource for MappedSource {
    fn is_open(&self) -> bool {
        self.0.is_open()
    }

    fn load(&self, offset: usize, into: &mut [u8]) -> bool {
        let Range { table, key, .. } = &self.0.range;
        let source = self.0.range.at(offset, into.len()).cast_const();
        // SAFETY: the range is inside the mapping, which the value keeps alive; `into` is memory of the caller, none of
        // which is mapped: safe code has no slices of regions that peers may write.
        unsafe { std::ptr::copy(source, into.as_mut_ptr(), into.len()) };
        fence(Ordering::Acquire);
        // If the registration has ended meanwhile, the pages may have been returned to the system.
        table.holds(*key)
    }
}

impl PeerMemory for MappedRegion {
    #[inline(always)]
    fn is_open(&self) -> bool {
        self.pair.state() == QueuePairState::ReadyToSend
            && self.pair.incarnation() == self.incarnation
            && !self.pair.send.is_shared()
            && is_receiving(&self.range.port)
            && self.range.table.holds(self.range.key)
            && self.made_in.is_current()
    }

    #[inline(always)]
    fn store(&self, offset: usize, bytes: &[u8]) {
        let target = self.range.at(offset, bytes.len());
        // SAFETY: the range is inside the mapping, which the value keeps alive; `bytes` is memory of the caller, none
        // of which is mapped: safe code has no slices of regions.
        unsafe { copy_in_order(bytes.as_ptr(), target, bytes.len()) };
        fence(Ordering::Release);
    }

    #[inline(always)]
    fn publish(&self, offset: usize, bytes: &[u8]) {
        let target = self.range.at(offset, bytes.len());
        let lines = bytes.len() / LINE_BYTES;
        assert!(lines > 0 && bytes.len() % LINE_BYTES == 0, "whole lines");
        if target as usize % LINE_BYTES != 0 {
            // The peer has chosen the address, so it has to accept this order.
            return self.store(offset, bytes);
        }
        // SAFETY: as above; the target is aligned to a line, and there is at least one.
        unsafe {
            copy_lines_first_word_last(bytes.as_ptr(), target, lines);
        }
    }

    #[inline]
    fn expect(&self, offset: usize, length: usize) {
        let length = fetched_at_once(length);
        let end = offset.checked_add(length);
        if end.is_some_and(|end| end <= self.range.length) {
            fetch_to_write(self.range.start.as_ptr().wrapping_add(offset), length);
        }
    }
}
