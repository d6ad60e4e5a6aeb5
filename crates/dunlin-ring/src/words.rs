//! The words that cross beside the messages, and where they lie.

/// Offsets of the words that the peer writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Words {
    /// At the consumer: the producer's tail (RB²'s local_tail is the copy of it).
    pub(crate) tail: usize,
    /// At the consumer: where the ring ends, plus one; zero while it goes on.
    pub(crate) end: usize,
    /// At the consumer: its own head, for a producer that pulls it. Here the peer only reads.
    pub(crate) published_head: usize,
    /// At the producer: the consumer's head (local_head is the copy of it).
    pub(crate) head: usize,
    /// At the producer: where a pulled head lands. No peer writes here.
    pub(crate) pulled_head: usize,
    /// At either side: the number of the peer's latest sleep; a new number asks for a wake-up.
    pub(crate) sleep: usize,
    /// First byte of the array, at both sides.
    pub(crate) array: usize,
}

/// Everything on a line of its own; the array on a page of its own.
pub(crate) const APART: Words = Words {
    tail: 0,
    end: 64,
    published_head: 128,
    head: 0,
    pulled_head: 64,
    sleep: 192,
    array: 4096,
};
/// Everything side by side, and an array that begins in the middle of a line (M7).
pub(crate) const PACKED: Words = Words {
    tail: 0,
    end: 8,
    published_head: 16,
    head: 0,
    pulled_head: 16,
    sleep: 24,
    array: 40,
};
