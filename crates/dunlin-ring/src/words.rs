//! The control words that are exchanged besides the messages, and their layout.

/// Offsets of the words that the peer writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Words {
    /// At the consumer: the producer's tail (RB²'s local_tail is the copy of it).
    pub(crate) tail: usize,
    /// At the consumer: the position at which the ring ends, plus one; zero while the ring is open.
    pub(crate) end: usize,
    /// At the consumer: its own head, for a producer that pulls it. The peer only reads it.
    pub(crate) published_head: usize,
    /// At the producer: the consumer's head (local_head is the copy of it).
    pub(crate) head: usize,
    /// At the producer: the target of a pulled head. No peer writes here.
    pub(crate) pulled_head: usize,
    /// On either side: the number of the peer's latest sleep; a new number requests a wake-up.
    pub(crate) sleep: usize,
    /// First byte of the array, on both sides.
    pub(crate) array: usize,
}

impl Words {
    /// The same, with the words of a producer this many bytes further.
    pub(crate) fn producer_at(self, at: usize) -> Self {
        Self {
            head: self.head + at,
            pulled_head: self.pulled_head + at,
            sleep: self.sleep + at,
            ..self
        }
    }
}

/// Each word on its own line; the array on its own page.
pub(crate) const APART: Words = Words {
    tail: 0,
    end: 64,
    published_head: 128,
    head: 0,
    pulled_head: 64,
    sleep: 192,
    array: 4096,
};
/// All words packed, and an array that begins in the middle of a line (M7).
pub(crate) const PACKED: Words = Words {
    tail: 0,
    end: 8,
    published_head: 16,
    head: 0,
    pulled_head: 16,
    sleep: 24,
    array: 40,
};
