//! The memory of a port as a mapped file.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use crate::mapping::{create_sealed, map_foreign, Mapping, PAGE_BYTES};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

use super::Geometry;

const TAIL: usize = 0;
const HEAD: usize = 64;
const STATE: usize = 128;
const POSTED: usize = 192;
const ARMED: usize = 256;
const LEFT: usize = 320;
const LENGTHS: usize = PAGE_BYTES;

/// Ports of a peer of these sizes are populated immediately; smaller ones are faulted in page by page, and a peer may
/// make a larger one only to cost us memory.
const POPULATED: std::ops::RangeInclusive<usize> = 128 << 10..=1 << 20;

impl Geometry {
    /// Size of the file, if the geometry is valid.
    pub(crate) fn file_bytes(self) -> Option<usize> {
        let lawful = self.lengths.is_power_of_two()
            && self.lengths <= 1 << 20
            && self.data_bytes.is_power_of_two()
            && (4096..=1 << 30).contains(&self.data_bytes);
        lawful.then(|| self.data_offset() + self.data_bytes as usize)
    }

    fn data_offset(self) -> usize {
        LENGTHS + (self.lengths as usize * 4).next_multiple_of(PAGE_BYTES)
    }
}

/// A mapped port.
#[derive(Debug)]
pub(crate) struct PortMap {
    mapping: Mapping,
    geometry: Geometry,
    data_offset: usize,
}

impl PortMap {
    /// Creates a port, and the descriptor that its sender gets.
    pub(crate) fn create(geometry: Geometry) -> Result<(OwnedFd, Self), Errno> {
        let bytes = geometry.file_bytes().ok_or(Errno::INVAL)?;
        let (file, mapping) = create_sealed("dunlin-shm-port", bytes, false)?;
        // The control words stay: a sender may read them later.
        let mapping = mapping.give_back_from(LENGTHS);
        Ok((file, Self::over(mapping, geometry)))
    }

    /// Maps a port of a peer.
    pub(crate) fn map(file: BorrowedFd<'_>, geometry: Geometry) -> Result<Self, Errno> {
        let bytes = geometry.file_bytes().ok_or(Errno::INVAL)?;
        let mapping = map_foreign(file.as_fd(), bytes, true)?;
        // Its owner has not populated it. There are no more such ports than our queue pairs have peers.
        if POPULATED.contains(&bytes) {
            mapping.populate(true);
        }
        Ok(Self::over(mapping, geometry))
    }

    fn over(mapping: Mapping, geometry: Geometry) -> Self {
        Self {
            data_offset: geometry.data_offset(),
            mapping,
            geometry,
        }
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }

    pub(crate) fn mapped_bytes(&self) -> usize {
        self.mapping.length()
    }

    #[inline(always)]
    pub(crate) fn tail(&self) -> &AtomicU64 {
        self.mapping.u64(TAIL)
    }

    #[inline(always)]
    pub(super) fn head(&self) -> &AtomicU64 {
        self.mapping.u64(HEAD)
    }

    /// The published state of the receiving queue pair.
    #[inline(always)]
    pub(crate) fn state(&self) -> &AtomicU32 {
        self.mapping.u32(STATE)
    }

    /// Number of RECEIVEs posted so far.
    #[inline(always)]
    pub(crate) fn posted(&self) -> &AtomicU64 {
        self.mapping.u64(POSTED)
    }

    /// Whether the receiver sleeps.
    #[inline(always)]
    pub(crate) fn armed(&self) -> &AtomicU32 {
        self.mapping.u32(ARMED)
    }

    /// Whether the sender has announced that it will send nothing more.
    pub(crate) fn left(&self) -> &AtomicU32 {
        self.mapping.u32(LEFT)
    }

    /// The length of the RECEIVE with this running number.
    #[inline(always)]
    pub(crate) fn receive_length(&self, number: u64) -> &AtomicU32 {
        let index = number as usize & (self.geometry.lengths as usize - 1);
        self.mapping.u32(LENGTHS + index * 4)
    }

    #[inline(always)]
    pub(super) fn data_bytes(&self) -> u64 {
        self.geometry.data_bytes.into()
    }

    /// Writes the two words of a header at running position `at` of the record ring.
    #[inline(always)]
    pub(super) fn write_header(&self, at: u64, words: [u64; 2]) {
        self.word(at).store(words[0], Ordering::Relaxed);
        self.word(at + 8).store(words[1], Ordering::Relaxed);
    }

    /// The two words of a header, each read once: decisions are based on these copies.
    #[inline(always)]
    pub(super) fn read_header(&self, at: u64) -> [u64; 2] {
        [
            self.word(at).load(Ordering::Relaxed),
            self.word(at + 8).load(Ordering::Relaxed),
        ]
    }

    /// Lets `f` write `length` bytes of the ring at running position `at`.
    #[inline(always)]
    pub(super) fn fill(&self, at: u64, length: usize, f: impl FnOnce([(*mut u8, usize); 2])) {
        f(self.pieces(at, length));
    }

    /// Lets `f` read `length` bytes of the ring at running position `at`.
    #[inline(always)]
    pub(super) fn drain(&self, at: u64, length: usize, f: impl FnOnce([(*const u8, usize); 2])) {
        f(self
            .pieces(at, length)
            .map(|(start, length)| (start.cast_const(), length)));
    }

    /// The word at running position `at` of the record ring.
    #[inline(always)]
    fn word(&self, at: u64) -> &AtomicU64 {
        let offset = at as usize & (self.geometry.data_bytes as usize - 8);
        self.mapping.u64(self.data_offset + offset)
    }

    /// The pieces of `length` bytes of the ring at running position `at`: up to its end, and from its beginning.
    #[inline(always)]
    fn pieces(&self, at: u64, length: usize) -> [(*mut u8, usize); 2] {
        let size = self.geometry.data_bytes as usize;
        debug_assert!(length <= size);
        let offset = at as usize & (size - 1);
        let first = length.min(size - offset);
        // SAFETY: the ring is `size` bytes from `data_offset` inside the mapping, and `offset < size`.
        let (start, here) = unsafe {
            let start = self.mapping.start().as_ptr().add(self.data_offset);
            (start, start.add(offset))
        };
        [(here, first), (start, length - first)]
    }
}

#[cfg(any(feature = "fuzzing", test))]
impl PortMap {
    /// Number of 8-byte words in the whole port.
    pub(crate) fn words_for_tests(&self) -> usize {
        (self.data_offset + self.geometry.data_bytes as usize) / 8
    }

    /// One of them.
    pub(crate) fn word_for_tests(&self, index: usize) -> &AtomicU64 {
        self.mapping.u64(index * 8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_has_ended_pins_its_control_words_alone() {
        let geometry = Geometry {
            lengths: 64,
            data_bytes: 1 << 16,
            shared_receive: false,
        };
        let (file, own) = PortMap::create(geometry).unwrap();
        let peers = PortMap::map(file.as_fd(), geometry).unwrap();
        let pages = || rustix::fs::fstat(&file).unwrap().st_blocks as usize * 512 / PAGE_BYTES;
        for page in 0..18 {
            let word = peers.word_for_tests(page * PAGE_BYTES / 8);
            word.store(1, Ordering::SeqCst);
        }
        assert_eq!(pages(), 18);
        own.state().store(6, Ordering::SeqCst);
        drop(own);
        assert_eq!(pages(), 1);
        assert_eq!(peers.state().load(Ordering::SeqCst), 6);
    }
}
