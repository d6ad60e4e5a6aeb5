//! Calls that take longer than a slice: their handlers are remembered, and then run on workers (ScaleRPC §3.5).
//!
//! In the paper such a call fails the first time. Here it does not fail; the other calls wait for it. After a pass that
//! was longer than a slice, the next ones take requests one by one and time each. A handler that takes longer three
//! times in a row is remembered: a single preemption does not make a short handler count as long.

use std::time::Duration;

use crate::HandlerId;

/// Number of passes that are watched after a long one.
const WATCHED_PASSES: u32 = 256;
/// Number of consecutive long calls after which a handler counts as long.
const STRIKES: u32 = 3;

/// A poller's knowledge about long calls.
#[derive(Debug)]
pub(super) struct LongCalls {
    limit: Duration,
    watched: u32,
    suspect: Option<HandlerId>,
    strikes: u32,
}

impl LongCalls {
    /// Calls that take more than `limit` are long.
    pub(super) fn new(limit: Duration) -> Self {
        Self {
            limit,
            watched: 0,
            suspect: None,
            strikes: 0,
        }
    }

    /// Records the duration of a pass.
    #[inline]
    pub(super) fn passed(&mut self, took: Duration) {
        if took > self.limit {
            self.watched = WATCHED_PASSES;
        }
    }

    /// Whether requests are to be taken one by one.
    #[inline]
    pub(super) fn is_watching(&self) -> bool {
        self.watched > 0
    }

    /// Called at the end of a watched pass.
    pub(super) fn watched(&mut self) {
        self.watched = self.watched.saturating_sub(1);
    }

    /// Records the duration of a handler. Returns `true` if the handler counts as long.
    pub(super) fn ran(&mut self, handler: HandlerId, took: Duration) -> bool {
        if took <= self.limit {
            if self.suspect == Some(handler) {
                self.suspect = None;
            }
            return false;
        }
        if self.suspect != Some(handler) {
            self.suspect = Some(handler);
            self.strikes = 0;
        }
        self.strikes += 1;
        if self.strikes < STRIKES {
            return false;
        }
        self.suspect = None;
        true
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_micros(101);
    const SHORT: Duration = Duration::from_micros(100);

    #[test]
    fn three_long_calls_in_a_row_are_remembered() {
        let mut calls = LongCalls::new(SHORT);
        assert!(!calls.ran(7, LONG));
        assert!(!calls.ran(7, LONG));
        assert!(!calls.ran(8, SHORT), "another's");
        assert!(calls.ran(7, LONG));
        assert!(!calls.ran(7, LONG), "it begins anew");
    }

    #[test]
    fn a_short_one_between_them_clears_a_handler() {
        let mut calls = LongCalls::new(SHORT);
        for _ in 0..10 {
            assert!(!calls.ran(7, LONG));
            assert!(!calls.ran(7, LONG));
            assert!(!calls.ran(7, SHORT));
        }
        assert!(!calls.ran(7, LONG));
        assert!(!calls.ran(8, LONG));
        assert!(!calls.ran(7, LONG));
    }

    #[test]
    fn passes_are_watched_after_a_long_one() {
        let mut calls = LongCalls::new(SHORT);
        calls.passed(SHORT);
        assert!(!calls.is_watching());
        calls.passed(LONG);
        for _ in 0..WATCHED_PASSES {
            assert!(calls.is_watching());
            calls.watched();
        }
        assert!(!calls.is_watching());
    }
}
