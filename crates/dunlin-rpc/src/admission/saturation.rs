//! Whether clients are to send in fewer messages, because a server's device has no time for more. Pure.
//!
//! A NIC at its limit queues messages, and a message that waits there could have waited at its sender for others to go
//! with it. The server sees all senders, so it says when that is so; clients whose threads keep many calls out then
//! send them in fewer messages ([`crate::sharing::thread_port`]), in two steps, of which each halves what comes at
//! most.
//!
//! What a device takes is said of small messages, and not exactly: so a step is an attempt. When no more requests come
//! with it than before, it is taken back, and the next attempt comes later each time.

use std::time::Duration;

use super::Standing;

/// An attempt is worth its while from this part of what the device takes: all of it is never reached, because credits
/// and grants are messages too, and messages that carry more are longer.
const FULL: f64 = 2.0 / 3.0;
/// Steps that clients can be asked for.
const STEPS: [Standing; 3] = [
    Standing::empty(),
    Standing::SATURATED,
    Standing::SATURATED.union(Standing::STILL_SATURATED),
];
/// A step has paid when so many times the requests came with it.
const GAIN: f64 = 1.02;
/// Intervals after an attempt that failed until the next, at first and at most: each failure doubles them.
const RESTS: (u32, u32) = (8, 1024);

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Saturation {
    /// Messages that the device takes a second, in and out. None: it is never at its limit.
    takes: Option<u64>,
    step: usize,
    /// The step is an attempt: as many requests came a second before it.
    before: Option<f64>,
    /// Intervals until the next attempt, and after the next that fails.
    rest: u32,
    next_rest: u32,
}

impl Default for Saturation {
    fn default() -> Self {
        Self::new(None)
    }
}

impl Saturation {
    pub(super) fn new(takes: Option<u64>) -> Self {
        Self {
            takes,
            step: 0,
            before: None,
            rest: 0,
            next_rest: RESTS.0,
        }
    }

    /// Whether the device says what it takes.
    pub(super) fn is_known(&self) -> bool {
        self.takes.is_some()
    }

    /// So many messages with so many requests came in an interval; says whether clients are to be told something else.
    pub(super) fn see(&mut self, messages: u64, requests: u64, interval: Duration) -> bool {
        let Some(takes) = self.takes else {
            return false;
        };
        let step = self.step;
        let seconds = interval.as_secs_f64();
        // Each has one that answers it.
        let part = 2.0 * messages as f64 / (takes as f64 * seconds);
        let rate = requests as f64 / seconds;
        self.rest = self.rest.saturating_sub(1);
        match self.before.take() {
            Some(before) if rate < GAIN * before => {
                self.step -= 1;
                self.rest = self.next_rest;
                self.next_rest = (2 * self.next_rest).min(RESTS.1);
            }
            Some(_) => self.next_rest = RESTS.0,
            // A step less would be twice as many, and they would have room.
            None if 2.0 * part < FULL => self.step = self.step.saturating_sub(1),
            None if part > FULL && self.rest == 0 && step + 1 < STEPS.len() => {
                self.before = Some(rate);
                self.step += 1;
            }
            None => {}
        }
        self.step != step
    }

    /// What a lane is told that is active, or not.
    pub(super) fn standing(&self, active: bool) -> Standing {
        let mut standing = STEPS[self.step];
        standing.set(Standing::ACTIVE, active);
        standing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Messages and requests of a second, and what clients are told after it.
    fn told(saturation: &mut Saturation, messages: u64, requests: u64) -> Option<usize> {
        let before = saturation.standing(true);
        let news = saturation.see(messages, requests, SECOND);
        assert_eq!(news, saturation.standing(true) != before);
        saturation.standing(true).together()
    }

    #[test]
    fn step_by_step_and_back() {
        let mut saturation = Saturation::new(Some(1200));
        let mut told = |messages, requests| told(&mut saturation, messages, requests);
        assert_eq!(told(400, 400), None);
        assert_eq!(told(401, 401), Some(4));
        // Half as many with more requests: it stays.
        assert_eq!(told(201, 410), Some(4));
        assert_eq!(told(401, 802), Some(2));
        assert_eq!(told(600, 2400), Some(2));
        assert_eq!(told(600, 2400), Some(2));
        assert_eq!(told(199, 800), Some(4));
        assert_eq!(told(199, 400), None);
        assert_eq!(told(0, 0), None);
        assert_eq!(saturation.standing(false), Standing::empty());
    }

    #[test]
    fn what_does_not_pay_is_taken_back_and_tried_seldom() {
        let mut saturation = Saturation::new(Some(1200));
        let mut tries = Vec::new();
        for second in 0..100 {
            let step = told(&mut saturation, 500, 500);
            match step {
                Some(4) => tries.push(second),
                None => {}
                other => panic!("{other:?} in second {second}"),
            }
        }
        assert_eq!(tries, [0, 9, 26, 59]);
        // When it pays for once the patience is as at first.
        let mut saturation = Saturation::new(Some(1200));
        assert_eq!(told(&mut saturation, 500, 500), Some(4));
        assert_eq!(told(&mut saturation, 500, 500), None);
        for _ in 0..7 {
            assert_eq!(told(&mut saturation, 500, 500), None);
        }
        assert_eq!(told(&mut saturation, 500, 500), Some(4));
        assert_eq!(told(&mut saturation, 300, 600), Some(4));
        assert_eq!(told(&mut saturation, 150, 300), None);
        assert_eq!(saturation.next_rest, RESTS.0);
    }

    #[test]
    fn a_device_of_which_nothing_is_known_is_never_full() {
        let mut saturation = Saturation::new(None);
        assert!(!saturation.see(u64::MAX, u64::MAX, SECOND));
        assert_eq!(saturation.standing(true), Standing::ACTIVE);
        // An interval of no length says nothing that could be wrong.
        let mut saturation = Saturation::new(Some(1000));
        assert!(!saturation.see(0, 0, Duration::ZERO));
        assert_eq!(saturation.standing(true), Standing::ACTIVE);
    }
}
