//! The timer of a datagram lane: when a call without an answer is asked about, and when its server is given up (FaSST
//! §4.3).
//!
//! Time is counted in ticks, a quarter of the timeout each, that pass only while the lane is looked at: a thread that
//! stood still has not waited for its server. No call reads a clock.

use std::time::{Duration, Instant};

/// Ticks without news after which a call is asked about.
pub(super) const OVERDUE: u32 = 4;
/// Questions without an answer after which the server is gone.
const QUESTIONS: u32 = 16;
/// Looks at the lane between two looks at the clock.
const LOOKS_PER_CLOCK: u32 = 4096;

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Nothing,
    /// A question about the calls that are overdue, if there are any.
    Question,
    /// The server has answered none of many questions.
    Gone,
}

#[derive(Debug)]
pub(super) struct Watch {
    step: Duration,
    looks: u32,
    last: Option<Instant>,
    tick: u32,
    /// Questions since the last answer.
    unanswered: u32,
}

impl Watch {
    /// For calls that are overdue after `timeout`.
    pub(super) fn new(timeout: Duration) -> Self {
        Self {
            step: timeout / OVERDUE,
            looks: 0,
            last: None,
            tick: 0,
            unanswered: 0,
        }
    }

    /// The tick now.
    #[inline]
    pub(super) fn tick(&self) -> u32 {
        self.tick
    }

    /// The lane was looked at; whether the clock is due.
    #[inline]
    pub(super) fn looked(&mut self) -> bool {
        self.looks = self.looks.wrapping_add(1);
        self.looks % LOOKS_PER_CLOCK == 0
    }

    /// Looks at the clock.
    pub(super) fn pass(&mut self, now: Instant) -> Due {
        let last = *self.last.get_or_insert(now);
        if now.duration_since(last) < self.step {
            return Due::Nothing;
        }
        self.last = Some(now);
        self.tick = self.tick.wrapping_add(1);
        if self.unanswered >= QUESTIONS {
            return Due::Gone;
        }
        Due::Question
    }

    /// Whether a call that was last heard of then is overdue.
    pub(super) fn is_overdue(&self, since: u32) -> bool {
        self.tick.wrapping_sub(since) >= OVERDUE
    }

    /// A question was sent.
    pub(super) fn asked(&mut self) {
        self.unanswered += 1;
    }

    /// The server lives.
    #[inline]
    pub(super) fn heard(&mut self) {
        self.unanswered = 0;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_overdue_after_four_looks_a_quarter_apart() {
        let mut watch = Watch::new(Duration::from_secs(1));
        let begin = Instant::now();
        let since = watch.tick();
        assert_eq!(watch.pass(begin), Due::Nothing);
        // However long the thread stood still: it looked once.
        let mut now = begin + Duration::from_secs(60);
        assert_eq!(watch.pass(now), Due::Question);
        assert!(!watch.is_overdue(since));
        for _ in 0..3 {
            now += Duration::from_millis(249);
            assert_eq!(watch.pass(now), Due::Nothing);
            now += Duration::from_millis(1);
            assert_eq!(watch.pass(now), Due::Question);
        }
        assert!(watch.is_overdue(since));
    }

    #[test]
    fn a_server_that_answers_no_question_is_gone_and_one_that_does_is_not() {
        let mut watch = Watch::new(Duration::from_secs(1));
        let mut now = Instant::now();
        watch.pass(now);
        for question in 0..100 {
            now += Duration::from_secs(1);
            assert_eq!(watch.pass(now), Due::Question);
            watch.asked();
            if question % 10 == 9 {
                watch.heard();
            }
        }
        for _ in 0..QUESTIONS {
            now += Duration::from_secs(1);
            assert_eq!(watch.pass(now), Due::Question);
            watch.asked();
        }
        now += Duration::from_secs(1);
        assert_eq!(watch.pass(now), Due::Gone);
    }
}
