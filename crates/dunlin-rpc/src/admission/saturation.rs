//! Whether a server's device has time for more messages: what it takes a second against what came, with hysteresis. Pure.
//!
//! A NIC at its limit queues messages, and a message that waits there could have waited at its sender for others to go with it. The server sees
//! all senders, so it says when that is so; clients whose threads keep many calls out then send them in fewer messages
//! ([`crate::sharing::thread_port`]), in two steps, of which each halves what comes at most.

use std::time::Duration;

use super::Standing;

/// At its limit from this part of what the device takes: all of it is never reached, because credits and grants are messages too.
const FULL: f64 = 2.0 / 3.0;
/// Steps that clients can be asked for.
const STEPS: [Standing; 3] = [
    Standing::empty(),
    Standing::SATURATED,
    Standing::SATURATED.union(Standing::STILL_SATURATED),
];

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Saturation {
    /// Messages that the device takes a second, in and out. None: it is never at its limit.
    takes: Option<u64>,
    step: usize,
}

impl Saturation {
    pub(super) fn new(takes: Option<u64>) -> Self {
        Self { takes, step: 0 }
    }

    /// Whether the device says what it takes.
    pub(super) fn is_known(&self) -> bool {
        self.takes.is_some()
    }

    /// So many messages came in an interval; says whether clients are to be told something else.
    pub(super) fn see(&mut self, messages: u64, interval: Duration) -> bool {
        let Some(takes) = self.takes else {
            return false;
        };
        let before = self.step;
        // Each has one that answers it.
        let part = 2.0 * messages as f64 / (takes as f64 * interval.as_secs_f64());
        if part > FULL {
            self.step = (self.step + 1).min(STEPS.len() - 1);
        } else if 2.0 * part < FULL {
            // A step less would be twice as many, and they would have room.
            self.step = self.step.saturating_sub(1);
        }
        self.step != before
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

    #[test]
    fn step_by_step_and_back() {
        let mut saturation = Saturation::new(Some(1200));
        let mut together = |messages| {
            let before = saturation.standing(true);
            let told = saturation.see(messages, SECOND);
            assert_eq!(told, saturation.standing(true) != before);
            saturation.standing(true).together()
        };
        assert_eq!(together(400), None);
        assert_eq!(together(401), Some(4));
        // Half as many, because each step halves them: it stays.
        assert_eq!(together(201), Some(4));
        assert_eq!(together(401), Some(2));
        assert_eq!(together(600), Some(2));
        assert_eq!(together(199), Some(4));
        assert_eq!(together(199), None);
        assert_eq!(together(0), None);
        assert_eq!(saturation.standing(false), Standing::empty());
    }

    #[test]
    fn a_device_of_which_nothing_is_known_is_never_full() {
        let mut saturation = Saturation::new(None);
        assert!(!saturation.see(u64::MAX, SECOND));
        assert_eq!(saturation.standing(true), Standing::ACTIVE);
        // An interval of no length says nothing that could be wrong.
        let mut saturation = Saturation::new(Some(1000));
        assert!(!saturation.see(0, Duration::ZERO));
        assert_eq!(saturation.standing(true), Standing::ACTIVE);
    }
}
