//! Memory of a connected peer that is mapped into the calling process: an optional capability of a device. A channel
//! asks for it once, after its first WRITE to that memory, and from then on stores its bytes there itself instead of
//! posting WRITEs. That saves the work request, its checks and its completion; what the peer observes is the same.

use std::fmt::Debug;

/// A mapped range of the peer's memory; see [`crate::QueuePair::map_peer`].
pub trait PeerMemory: Debug + Send + 'static {
    /// Whether stores still reach the peer: both queue pairs are connected as they were when the mapping was made, the
    /// region is still registered, and no earlier request is unfinished. Must be checked before each batch of stores.
    /// If it is false, a WRITE reports the reason.
    fn is_open(&self) -> bool;

    /// Stores `bytes` at `offset`. They become visible in ascending order of addresses, after all earlier stores and
    /// before any later request of the queue pair.
    ///
    /// # Panics
    /// When the range is out of bounds.
    fn store(&self, offset: usize, bytes: &[u8]);

    /// Stores `bytes`, one or more whole cache lines, at `offset` so that the first eight bytes become visible together
    /// and after all others. Otherwise as [`PeerMemory::store`], whose order also applies if the target is not aligned
    /// to a cache line.
    ///
    /// # Panics
    /// When the range is out of bounds, or `bytes` are not whole lines.
    fn publish(&self, offset: usize, bytes: &[u8]);

    /// Hints that `length` bytes will soon be stored at `offset`, as [`crate::QueuePair::expect_write`] does. A range
    /// that is out of bounds is ignored.
    fn expect(&self, offset: usize, length: usize);
}

/// Memory of a connected peer that is mapped into the calling process for reading; see
/// [`crate::QueuePair::map_peer_source`].
pub trait PeerSource: Debug + Send + 'static {
    /// Whether it may be read; see [`PeerMemory::is_open`].
    fn is_open(&self) -> bool;

    /// Copies the bytes at `offset`, in no particular order. Returns whether the region was still registered
    /// afterwards: if not, the copy may contain anything, and a READ reports the reason. Concurrent writes by the peer
    /// may appear in part.
    ///
    /// # Panics
    /// When the range is out of bounds.
    fn load(&self, offset: usize, into: &mut [u8]) -> bool;
}

/// The type for devices that never map a peer's memory; it has no values.
#[derive(Clone, Copy, Debug)]
pub enum NotMapped {}

impl PeerMemory for NotMapped {
    fn is_open(&self) -> bool {
        match *self {}
    }

    fn store(&self, _offset: usize, _bytes: &[u8]) {
        match *self {}
    }

    fn publish(&self, _offset: usize, _bytes: &[u8]) {
        match *self {}
    }

    fn expect(&self, _offset: usize, _length: usize) {
        match *self {}
    }
}
