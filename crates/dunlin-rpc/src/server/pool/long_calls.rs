//! Calls that take longer than a slice: they are remembered by their handler and run apart, on workers (ScaleRPC §3.5).
//!
//! In the paper such a call fails the first time. Here none fails; the others wait for it. After a pass that was longer
//! than a slice the next ones take requests one by one and look at the clock around each. A handler that takes longer
//! three times in a row is remembered: a core that was away for once does not make a short one long.

use std::time::Duration;

use crate::HandlerId;

/// Passes that are watched after a long one.
const WATCHED_PASSES: u32 = 256;
/// Long calls in a row that make a handler one of long calls.
const STRIKES: u32 = 3;

/// What a poller knows of long calls.
#[derive(Debug)]
pub(super) struct LongCalls {
    limit: Duration,
    watched: u32,
    suspect: Option<HandlerId>,
    strikes: u32,
}

impl LongCalls {
    /// A call is long that takes more than `limit`.
    pub(super) fn new(limit: Duration) -> Self {
        Self {
            limit,
            watched: 0,
            suspect: None,
            strikes: 0,
        }
    }

    /// A pass took so long.
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

    /// A pass that was watched is over.
    pub(super) fn watched(&mut self) {
        self.watched = self.watched.saturating_sub(1);
    }

    /// A handler took so long. `true`: it is one of long calls.
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
