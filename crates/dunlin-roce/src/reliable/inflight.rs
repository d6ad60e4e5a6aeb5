//! READs and atomics in flight: the peer keeps state for each of them, so their number is bounded.

use std::collections::VecDeque;

/// Requests that the peer answers with data and has not answered yet, by sequence number.
#[derive(Clone, Debug)]
pub(super) struct Inflight {
    /// First sequence number and end.
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

    /// Records that a request was sent.
    pub(super) fn sent(&mut self, first: u64, end: u64) {
        self.ranges.push_back((first, end));
    }

    /// Records that everything before `acknowledged` was answered.
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

    /// Records that everything is sent again from `acknowledged` on.
    pub(super) fn sent_again(&mut self) {
        self.ranges.clear();
    }
}
