//! Answers that found no room in the client's ring, in their order, and the memory that they hold.

use std::collections::VecDeque;

use super::Outcome;

/// See the module.
pub(super) struct Backlog {
    answers: VecDeque<(u64, Outcome)>,
    /// Length of the longest response that goes through the ring.
    eager_bytes: usize,
    /// Number of longer ones, and their bytes.
    long: usize,
    long_bytes: usize,
}

impl Backlog {
    pub(super) fn new(eager_bytes: usize) -> Self {
        Self {
            answers: VecDeque::new(),
            eager_bytes,
            long: 0,
            long_bytes: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }

    /// Number of waiting long responses, and their bytes.
    pub(super) fn long(&self) -> (usize, usize) {
        (self.long, self.long_bytes)
    }

    pub(super) fn push_back(&mut self, call: u64, outcome: Outcome) {
        let bytes = outcome.long_bytes(self.eager_bytes);
        self.long += usize::from(bytes > 0);
        self.long_bytes += bytes;
        self.answers.push_back((call, outcome));
    }

    /// Puts the answer that was taken back to the front.
    pub(super) fn push_front(&mut self, call: u64, outcome: Outcome) {
        let bytes = outcome.long_bytes(self.eager_bytes);
        self.long += usize::from(bytes > 0);
        self.long_bytes += bytes;
        self.answers.push_front((call, outcome));
    }

    pub(super) fn pop_front(&mut self) -> Option<(u64, Outcome)> {
        let (call, outcome) = self.answers.pop_front()?;
        let bytes = outcome.long_bytes(self.eager_bytes);
        self.long -= usize::from(bytes > 0);
        self.long_bytes -= bytes;
        Some((call, outcome))
    }
}
