//! Which bytes of a transfer have been sent, and which have arrived.

use std::ops::Range;

/// The pieces of a transfer, in order.
pub(super) struct Pieces {
    pub(super) length: usize,
    piece: usize,
    pub(super) count: usize,
    pub(super) sent: usize,
    /// All pieces before this one have arrived.
    first_missing: usize,
    /// Which of those after it have arrived.
    arrived: Vec<bool>,
}

impl Pieces {
    pub(super) fn new(length: usize, piece: usize) -> Self {
        let count = length.div_ceil(piece);
        Self {
            length,
            piece,
            count,
            sent: 0,
            first_missing: 0,
            arrived: vec![false; count],
        }
    }

    /// The next piece to be sent.
    pub(super) fn next(&self) -> Option<Range<usize>> {
        (self.sent < self.count).then(|| self.range(self.sent))
    }

    /// The next piece and those after it, of at most this many bytes in total or the next one alone, and the number of
    /// the last.
    pub(super) fn next_within(&self, bytes: usize) -> Option<(Range<usize>, usize)> {
        let next = self.next()?;
        let last = self.sent + (bytes / self.piece).max(1) - 1;
        let last = last.min(self.count - 1);
        Some((next.start..self.range(last).end, last))
    }

    pub(super) fn range(&self, number: usize) -> Range<usize> {
        let start = number * self.piece;
        start..self.length.min(start + self.piece)
    }

    pub(super) fn arrive(&mut self, number: usize) {
        self.arrived[number] = true;
        while self.arrived.get(self.first_missing) == Some(&true) {
            self.first_missing += 1;
        }
    }

    /// Number of contiguous bytes from the first on that have arrived.
    pub(super) fn arrived(&self) -> u64 {
        (self.first_missing * self.piece).min(self.length) as u64
    }
}
