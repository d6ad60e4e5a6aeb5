//! Timely's rate of a session, from round trips measured by the client (TIMELY, SIGCOMM'15, algorithm 1, with the
//! weight of *ECN or Delay*, CoNEXT'16; eRPC §5.2). It has no clock: times are nanoseconds given by the caller.

/// Weight of the newest difference in the average of differences.
const EWMA: f64 = 0.46;
/// Maximum fraction by which a decrease lowers the rate.
const BETA: f64 = 0.26;
/// Round trips below this do not indicate a queue.
const LOW_NS: f64 = 50_000.0;
/// Round trips above this do, whatever their trend.
const HIGH_NS: f64 = 1_000_000.0;
/// The unit for differences: a round trip without queues.
const LEAST_RTT_NS: f64 = 2_000.0;
/// Bytes per second added by one increase.
const STEP: f64 = 5e6;
/// The lowest rate, 15 Mb/s, so that a session keeps probing the network.
const LOWEST: f64 = 15e6 / 8.0;
/// The highest rate: devices do not report the speed of their links, and 100 Gb/s is the speed of those in the papers.
/// On a slower link the first decreases start from a rate that is too high.
const LINK: f64 = 12.5e9;

/// The rate of a session.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Timely {
    /// Bytes per second.
    rate: f64,
    /// Average difference between a round trip and the one before, in nanoseconds.
    trend: f64,
    last_rtt: f64,
    updated_ns: u64,
}

impl Timely {
    /// Uncongested: at the highest rate.
    pub(crate) fn new(now_ns: u64) -> Self {
        Self {
            rate: LINK,
            trend: 0.0,
            last_rtt: LEAST_RTT_NS,
            updated_ns: now_ns,
        }
    }

    /// Bytes per second.
    pub(crate) fn rate(&self) -> f64 {
        self.rate
    }

    /// Whether no packet needs to be held back: then the rate limiter is bypassed (eRPC §5.2.2).
    #[inline]
    pub(crate) fn is_uncongested(&self) -> bool {
        self.rate >= LINK
    }

    /// A packet was answered after `rtt_ns`. On an uncongested session a short round trip changes nothing, and nothing
    /// is computed for it (eRPC §5.2.2's Timely bypass).
    #[inline]
    pub(crate) fn answered(&mut self, rtt_ns: u64, now_ns: u64) {
        if self.is_uncongested() && (rtt_ns as f64) < LOW_NS {
            return;
        }
        self.update(rtt_ns as f64, now_ns);
    }

    #[cold]
    fn update(&mut self, rtt: f64, now_ns: u64) {
        let difference = rtt - self.last_rtt;
        self.last_rtt = rtt;
        self.trend = (1.0 - EWMA) * self.trend + EWMA * difference;
        // Changes are scaled to one round trip, however many packets are answered in one.
        let since = now_ns.saturating_sub(self.updated_ns) as f64;
        let part = (since / rtt.max(LEAST_RTT_NS)).min(1.0);
        self.updated_ns = now_ns;
        let rate = next_rate(self.rate, rtt, self.trend / LEAST_RTT_NS, part);
        // By at most half at once.
        self.rate = rate.max(self.rate / 2.0).clamp(LOWEST, LINK);
    }
}

/// The rate after a round trip of `rtt` nanoseconds with this trend (differences relative to the least round trip);
/// `part` is the fraction of a full change.
fn next_rate(rate: f64, rtt: f64, trend: f64, part: f64) -> f64 {
    if rtt < LOW_NS {
        return rate + part * STEP;
    }
    if rtt > HIGH_NS {
        return rate * (1.0 - part * BETA * (1.0 - HIGH_NS / rtt));
    }
    // Between both, the trend alone would not make sessions converge to one rate: the distance of the round trip from
    // the low threshold does.
    let weight = (2.0 * trend + 0.5).clamp(0.0, 1.0);
    let excess = (rtt - LOW_NS) / LOW_NS;
    rate * (1.0 - (part * BETA * weight * excess).min(1.0)) + part * STEP * (1.0 - weight)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn short_round_trips_on_a_free_network_change_nothing() {
        let mut timely = Timely::new(0);
        let before = timely;
        for now in 1..1000 {
            timely.answered(49_000, now * 10_000);
        }
        assert_eq!(timely, before);
    }

    #[test]
    fn a_growing_queue_slows_a_session_and_an_empty_one_lets_it_recover() {
        let mut timely = Timely::new(0);
        let mut now = 0;
        for step in 0..200 {
            now += 300_000;
            timely.answered(60_000 + step * 5_000, now);
        }
        let slow = timely.rate();
        assert!(!timely.is_uncongested() && slow < LINK / 100.0, "{slow}");
        for _ in 0..10_000 {
            now += 10_000;
            timely.answered(10_000, now);
        }
        assert!(timely.is_uncongested());
    }

    #[test]
    fn beyond_the_high_mark_it_falls_whatever_the_trend() {
        assert!(next_rate(1e9, 2e6, -10.0, 1.0) < 0.9e9);
        assert!(next_rate(1e9, 2e6, 10.0, 1.0) < 0.9e9);
    }

    proptest! {
        #[test]
        fn the_rate_stays_within_its_bounds_and_halves_at_most(
            samples in prop::collection::vec((0u64..20_000_000, 0u64..5_000_000), 1..300)
        ) {
            let mut timely = Timely::new(0);
            let mut now = 0;
            for (rtt, pause) in samples {
                now += pause;
                let before = timely.rate();
                timely.answered(rtt, now);
                let rate = timely.rate();
                prop_assert!((LOWEST..=LINK).contains(&rate));
                prop_assert!(rate >= before / 2.0 - 1e-3);
                prop_assert!(rate <= before + STEP);
            }
        }

        /// Two sessions that see the same queue converge to the same rate from any initial rates.
        #[test]
        fn sessions_that_share_a_link_come_together(first in 1e8f64..1e10, second in 1e8f64..1e10) {
            let link = 5e9;
            let mut rates = [first, second];
            let (mut queue, mut last, mut trend) = (0.0f64, LEAST_RTT_NS, 0.0);
            for _ in 0..40_000 {
                let step_ns = 10_000.0;
                queue = (queue + (rates[0] + rates[1] - link) * step_ns / 1e9).max(0.0);
                let rtt = LEAST_RTT_NS + queue / link * 1e9;
                trend = (1.0 - EWMA) * trend + EWMA * (rtt - last);
                last = rtt;
                for rate in &mut rates {
                    *rate = next_rate(*rate, rtt, trend / LEAST_RTT_NS, (step_ns / rtt).min(1.0)).clamp(LOWEST, LINK);
                }
            }
            let (low, high) = (rates[0].min(rates[1]), rates[0].max(rates[1]));
            prop_assert!(high / low < 1.5, "{low} {high}");
        }
    }
}
