//! The memory of a port under the model checker: loom's atomics, and cells that detect races for the records.
//!
//! In the record ring a unit of 16 bytes is one cell, whatever it contains in this lap. That is stricter than the real
//! memory, where the words of a header are atomics: no access of the protocol may overlap another one in the same unit.

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;

use crate::sync::{AtomicU32, AtomicU64, UnsafeCell};

use super::Geometry;

const UNIT_BYTES: usize = 16;

/// A port without a file.
#[derive(Debug)]
pub(crate) struct PortMap {
    geometry: Geometry,
    tail: AtomicU64,
    head: AtomicU64,
    state: AtomicU32,
    posted: AtomicU64,
    armed: AtomicU32,
    left: AtomicU32,
    lengths: Vec<AtomicU32>,
    units: Vec<UnsafeCell<[u8; UNIT_BYTES]>>,
}

// SAFETY: that two threads never access a unit at once is what the model checks: loom panics before they do.
unsafe impl Sync for PortMap {}

impl Geometry {
    /// There are no files in a model.
    pub(crate) fn file_bytes(self) -> Option<usize> {
        None
    }
}

impl PortMap {
    /// As above.
    pub(crate) fn mapped_bytes(&self) -> usize {
        0
    }

    /// As above.
    pub(crate) fn create(_: Geometry) -> Result<(OwnedFd, Self), Errno> {
        Err(Errno::NOSYS)
    }

    /// As above.
    pub(crate) fn map(_: BorrowedFd<'_>, _: Geometry) -> Result<Self, Errno> {
        Err(Errno::NOSYS)
    }

    /// A port of any size; models must be small, or they never finish.
    #[cfg(test)]
    pub(crate) fn modelled(geometry: Geometry) -> Self {
        let units = geometry.data_bytes as usize / UNIT_BYTES;
        Self {
            geometry,
            tail: AtomicU64::new(0),
            head: AtomicU64::new(0),
            state: AtomicU32::new(0),
            posted: AtomicU64::new(0),
            armed: AtomicU32::new(0),
            left: AtomicU32::new(0),
            lengths: (0..geometry.lengths).map(|_| AtomicU32::new(0)).collect(),
            units: (0..units)
                .map(|_| UnsafeCell::new([0; UNIT_BYTES]))
                .collect(),
        }
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }

    pub(crate) fn tail(&self) -> &AtomicU64 {
        &self.tail
    }

    pub(super) fn head(&self) -> &AtomicU64 {
        &self.head
    }

    pub(crate) fn state(&self) -> &AtomicU32 {
        &self.state
    }

    pub(crate) fn left(&self) -> &AtomicU32 {
        &self.left
    }

    pub(crate) fn posted(&self) -> &AtomicU64 {
        &self.posted
    }

    pub(crate) fn armed(&self) -> &AtomicU32 {
        &self.armed
    }

    pub(crate) fn receive_length(&self, number: u64) -> &AtomicU32 {
        &self.lengths[number as usize % self.lengths.len()]
    }

    pub(super) fn data_bytes(&self) -> u64 {
        self.geometry.data_bytes.into()
    }

    pub(super) fn write_header(&self, at: u64, words: [u64; 2]) {
        let mut bytes = [0; UNIT_BYTES];
        bytes[..8].copy_from_slice(&words[0].to_ne_bytes());
        bytes[8..].copy_from_slice(&words[1].to_ne_bytes());
        // SAFETY: loom panics unless this is the only access.
        self.unit(at).with_mut(|place| unsafe { *place = bytes });
    }

    pub(super) fn read_header(&self, at: u64) -> [u64; 2] {
        // SAFETY: loom panics when another thread writes meanwhile.
        let bytes = self.unit(at).with(|place| unsafe { *place });
        let word = |half: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[half * 8..half * 8 + 8]);
            u64::from_ne_bytes(word)
        };
        [word(0), word(1)]
    }

    pub(super) fn fill(&self, at: u64, length: usize, f: impl FnOnce([(*mut u8, usize); 2])) {
        let mut bytes = vec![0; length.next_multiple_of(UNIT_BYTES)];
        let (here, rest) = bytes[..length].split_at_mut(self.first_piece(at, length));
        f([
            (here.as_mut_ptr(), here.len()),
            (rest.as_mut_ptr(), rest.len()),
        ]);
        for (at, bytes) in (at..)
            .step_by(UNIT_BYTES)
            .zip(bytes.chunks_exact(UNIT_BYTES))
        {
            // SAFETY: loom panics unless this is the only access.
            self.unit(at)
                .with_mut(|place| unsafe { (*place).copy_from_slice(bytes) });
        }
    }

    pub(super) fn drain(&self, at: u64, length: usize, f: impl FnOnce([(*const u8, usize); 2])) {
        let mut bytes = Vec::new();
        for at in (at..at + length as u64).step_by(UNIT_BYTES) {
            // SAFETY: loom panics when another thread writes meanwhile.
            self.unit(at)
                .with(|place| bytes.extend_from_slice(&unsafe { *place }));
        }
        let (here, rest) = bytes[..length].split_at(self.first_piece(at, length));
        f([(here.as_ptr(), here.len()), (rest.as_ptr(), rest.len())]);
    }

    fn unit(&self, at: u64) -> &UnsafeCell<[u8; UNIT_BYTES]> {
        &self.units[at as usize / UNIT_BYTES % self.units.len()]
    }

    /// Number of bytes up to the end of the ring.
    fn first_piece(&self, at: u64, length: usize) -> usize {
        let size = self.units.len() * UNIT_BYTES;
        length.min(size - at as usize % size)
    }
}
