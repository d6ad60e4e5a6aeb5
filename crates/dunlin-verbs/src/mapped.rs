//! Memory of a connected peer that the calling process has mapped: an optional capability of a device. A channel asks
//! for it once, after its first WRITE to that memory, and stores its bytes at the peer itself from then on, where it
//! would post a WRITE otherwise. That saves the work request, its checks and its completion; what the peer sees is the
//! same.

use std::fmt::Debug;

/// A range of the peer's memory that is mapped here; see [`crate::QueuePair::map_peer`].
pub trait PeerMemory: Debug + Send + 'static {
    /// Whether stores reach a peer that wants them: its queue pair and ours are connected as when this was made, the
    /// region is registered still, and nothing that was posted before is unfinished. To be asked before each batch of
    /// stores; when the answer is no a WRITE tells why.
    fn is_open(&self) -> bool;

    /// Stores `bytes` at `offset`. They become visible in ascending order of addresses, after all earlier stores and
    /// before whatever the queue pair does next.
    ///
    /// # Panics
    /// When the range is not inside.
    fn store(&self, offset: usize, bytes: &[u8]);

    /// Stores `bytes`, one or more whole cache lines, at `offset` so that the first eight become visible together and
    /// after all others; else as [`PeerMemory::store`], also in that order where the place is not on a cache line.
    ///
    /// # Panics
    /// When the range is not inside, or `bytes` are not whole lines.
    fn publish(&self, offset: usize, bytes: &[u8]);

    /// Says that `length` bytes will soon be stored at `offset`: a hint, as [`crate::QueuePair::expect_write`]. What is
    /// not inside is ignored.
    fn expect(&self, offset: usize, length: usize);
}

/// Memory of a connected peer that the calling process has mapped, for who reads there; see
/// [`crate::QueuePair::map_peer_source`].
pub trait PeerSource: Debug + Send + 'static {
    /// Whether it may be read: as [`PeerMemory::is_open`].
    fn is_open(&self) -> bool;

    /// Copies what stands at `offset`, in no order. Whether the region was still registered afterwards: if it was not,
    /// what was copied may be anything, and a READ tells why. What the peer writes meanwhile may be there in part.
    ///
    /// # Panics
    /// When the range is not inside.
    fn load(&self, offset: usize, into: &mut [u8]) -> bool;
}

/// The memory that devices map whose peers are elsewhere: there is none.
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
