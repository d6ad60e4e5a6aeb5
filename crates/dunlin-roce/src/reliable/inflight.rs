//! READs and atomics on the wire: the peer keeps something for each of them, so their number is bounded.

use std::collections::VecDeque;

/// Requests that the peer answers with data and has not answered yet, by their sequence numbers.
#[derive(Clone, Debug)]
pub(super) struct Inflight {
    /// First and end.
    ranges: VecDeque<(u64, u64)>,
    limit: usize,
}

impl Inflight {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            ranges: VecDeque::with_capacity(limit),
            limit,
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.ranges.len() >= self.limit
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// One was sent.
    pub(super) fn sent(&mut self, first: u64, end: u64) {
        self.ranges.push_back((first, end));
    }

    /// Everything before `acknowledged` was answered.
    pub(super) fn answered(&mut self, acknowledged: u64) {
        while self
            .ranges
            .front()
            .is_some_and(|range| range.1 <= acknowledged)
        {
            self.ranges.pop_front();
        }
    }

    /// Whether one ends before `end`.
    pub(super) fn has_end(&self, end: u64) -> bool {
        self.ranges.iter().any(|range| range.1 == end)
    }

    /// Everything is sent again from `acknowledged` on.
    pub(super) fn sent_again(&mut self) {
        self.ranges.clear();
    }
}
