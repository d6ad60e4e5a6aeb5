//! The timer of a datagram lane: when to ask about a call without a response, and when to give up its server (FaSST
//! §4.3).
//!
//! Time is counted in ticks of a quarter of the timeout, which pass only while the lane is polled: a thread that was
//! stopped has not waited for its server. No call reads a clock.

use std::time::{Duration, Instant};

/// Number of ticks without news after which to ask about a call.
pub(super) const OVERDUE: u32 = 4;
/// Number of unanswered questions after which the server counts as gone.
const QUESTIONS: u32 = 16;
/// Number of polls of the lane between two reads of the clock.
const LOOKS_PER_CLOCK: u32 = 4096;

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Nothing,
    /// Ask about the overdue calls, if there are any.
    Question,
    /// The server has not answered many questions in a row.
    Gone,
}

#[derive(Debug)]
pub(super) struct Watch {
    step: Duration,
    looks: u32,
    last: Option<Instant>,
    tick: u32,
    /// Number of questions since the last answer.
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

    /// The current tick.
    #[inline]
    pub(super) fn tick(&self) -> u32 {
        self.tick
    }

    /// The lane was polled; returns whether the clock should be read.
    #[inline]
    pub(super) fn looked(&mut self) -> bool {
        self.looks = self.looks.wrapping_add(1);
        self.looks % LOOKS_PER_CLOCK == 0
    }

    /// Processes the time.
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

    /// Whether a call that was last heard of at tick `since` is overdue.
    pub(super) fn is_overdue(&self, since: u32) -> bool {
        self.tick.wrapping_sub(since) >= OVERDUE
    }

    /// To be called when a question was sent.
    pub(super) fn asked(&mut self) {
        self.unanswered += 1;
    }

    /// To be called when the server was heard of.
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
        // However long the thread was stopped: it has polled once.
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
