//! A delay-based window, after Swift (Kumar et al., SIGCOMM '20), Flor's default (§4, §7.1).
//!
//! Below a target delay the window grows by a constant per round trip; above it, it shrinks in proportion to the
//! excess, once per round trip. The target is higher for small windows (*flow scaling*): with many flows into one port
//! each has a small window, and the queue that they form together is longer. The paper fixes the base round trip, 50
//! µs, and the minimum window, one chunk, but does not give Swift's constants. Not implemented from Swift: scaling by
//! hops, the delay of the hosts as a second window, and pacing below one packet, which Flor does not mention.

use super::{CongestionControl, Loss, Signals};

/// The parameters. Windows are counted in units.
#[derive(Clone, Copy, Debug)]
pub struct SwiftParameters {
    /// Length of a unit in bytes: the minimum window, and the unit of its growth.
    pub unit_bytes: u32,
    /// The target delay for large windows.
    pub base_target_ns: u64,
    /// Maximum amount by which flow scaling raises it.
    pub scaling_range_ns: u64,
    /// Windows of this many units or fewer get the full range.
    pub scaling_min_units: f64,
    /// Windows of this many units or more get none of it.
    pub scaling_max_units: f64,
    /// Units by which the window grows per round trip.
    pub additive_units: f64,
    /// Swift's beta: the share of the excess by which the window shrinks.
    pub multiplier: f64,
    /// Swift's max_mdf: the maximum decrease at a time.
    pub max_decrease: f64,
    /// The maximum window, in units.
    pub max_units: f64,
    /// Number of consecutive timeouts after which the window is reset to the minimum.
    pub reset_timeouts: u32,
    /// Number of lost work requests per unit that arrives above which a loss halves the window; zero for the paper's
    /// rule, by which every loss does. With units of about a packet it is the share of packets that a network may lose
    /// without being congested.
    pub tolerated_loss: f64,
}

impl SwiftParameters {
    /// Flor's base round trip and units of 4 KB; the constants of htsim's model of Swift, which its authors call
    /// guesses: beta 0.8, at most half at a time, one unit per round trip, five times the base as the range of the
    /// scaling.
    pub const DEFAULT: Self = Self {
        unit_bytes: 4 << 10,
        base_target_ns: 50_000,
        scaling_range_ns: 250_000,
        scaling_min_units: 1.0,
        scaling_max_units: 100.0,
        additive_units: 1.0,
        multiplier: 0.8,
        max_decrease: 0.5,
        max_units: 1024.0,
        reset_timeouts: 5,
        tolerated_loss: 0.0,
    };
}

/// See the module.
#[derive(Debug)]
pub struct Swift {
    parameters: SwiftParameters,
    /// 1 to `max_units`.
    window_units: f64,
    /// The last round trip, which is the minimum time between decreases.
    rtt_ns: u64,
    decreased_ns: Option<u64>,
    losses: Losses,
}

/// The share of recent data that was lost.
#[derive(Clone, Copy, Debug, Default)]
struct Losses {
    /// Units that arrived.
    arrived: f64,
    /// Work requests that were lost.
    lost: f64,
}

impl Losses {
    /// Number of units after which older ones count half.
    const MEMORY: f64 = 1024.0;

    fn arrived(&mut self, units: f64) {
        self.arrived += units;
        if self.arrived > Self::MEMORY {
            self.arrived /= 2.0;
            self.lost /= 2.0;
        }
    }

    /// Whether the network loses more than that share, by three standard deviations of what such a share would show.
    fn exceeds(&self, share: f64) -> bool {
        let expected = share * (self.arrived + self.lost);
        self.lost > expected + 3.0 * expected.sqrt()
    }
}

impl Swift {
    /// Creates an instance with the maximum window: a queue forms only once others send, and then the delay shows it.
    pub fn new(parameters: SwiftParameters) -> Self {
        Self {
            window_units: parameters.max_units.max(1.0),
            rtt_ns: parameters.base_target_ns,
            decreased_ns: None,
            losses: Losses::default(),
            parameters,
        }
    }

    /// The target delay for the current window.
    fn target_ns(&self) -> f64 {
        let SwiftParameters {
            scaling_range_ns,
            scaling_min_units,
            scaling_max_units,
            ..
        } = self.parameters;
        let range = scaling_range_ns as f64;
        let widest = scaling_max_units.sqrt().recip();
        let span = scaling_min_units.sqrt().recip() - widest;
        let share = (self.window_units.sqrt().recip() - widest) / span;
        let share = if share.is_nan() { 0.0 } else { share };
        self.parameters.base_target_ns as f64 + range * share.clamp(0.0, 1.0)
    }

    /// Shrinks the window to `factor` of its size, unless it has already shrunk in this round trip.
    fn decrease(&mut self, now_ns: u64, factor: f64) {
        let earlier = |then: u64| now_ns.saturating_sub(then) >= self.rtt_ns;
        if self.decreased_ns.is_none_or(earlier) {
            let least = 1.0 - self.parameters.max_decrease;
            self.decreased_ns = Some(now_ns);
            self.set(self.window_units * factor.max(least));
        }
    }

    fn set(&mut self, units: f64) {
        self.window_units = units.clamp(1.0, self.parameters.max_units.max(1.0));
    }
}

impl CongestionControl for Swift {
    fn sent(&mut self, _: u64, _: u64) {}

    fn acknowledged(&mut self, now_ns: u64, signals: Signals) {
        let units = signals.bytes as f64 / f64::from(self.parameters.unit_bytes.max(1));
        self.losses.arrived(units);
        let Some(rtt_ns) = signals.rtt_ns else {
            return;
        };
        self.rtt_ns = rtt_ns;
        let delay = rtt_ns as f64;
        let target = self.target_ns();
        if delay < target {
            let grown = self.parameters.additive_units * units / self.window_units;
            self.set(self.window_units + grown);
        } else if delay > 0.0 {
            let excess = (delay - target) / delay;
            self.decrease(now_ns, 1.0 - self.parameters.multiplier * excess);
        }
    }

    fn lost(&mut self, now_ns: u64, loss: Loss) {
        if let Loss::Overtaken(requests) = loss {
            self.losses.lost += f64::from(requests);
            if !self.losses.exceeds(self.parameters.tolerated_loss) {
                return;
            }
        }
        match loss {
            Loss::Timeout(times) if times >= self.parameters.reset_timeouts => self.set(1.0),
            _ => self.decrease(now_ns, 0.0),
        }
    }

    fn window_bytes(&self) -> u64 {
        (self.window_units * f64::from(self.parameters.unit_bytes)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn acknowledged(bytes: u64, rtt_ns: u64) -> Signals {
        Signals {
            bytes,
            rtt_ns: Some(rtt_ns),
            marked: false,
        }
    }

    #[test]
    fn below_the_target_it_grows_by_a_unit_each_round_trip() {
        let mut swift = Swift::new(SwiftParameters::DEFAULT);
        swift.set(10.0);
        for round in 0..10_u64 {
            let window = swift.window_bytes();
            swift.acknowledged(round * 50_000, acknowledged(window, 20_000));
        }
        assert!(
            (19.9..=20.0).contains(&swift.window_units),
            "{}",
            swift.window_units
        );
    }

    #[test]
    fn above_the_target_it_shrinks_by_the_excess_once_each_round_trip() {
        let mut swift = Swift::new(SwiftParameters::DEFAULT);
        swift.set(200.0);
        // The target is 50 µs here: an excess of a fifth of the delay, times 0.8.
        swift.acknowledged(1_000_000, acknowledged(4096, 62_500));
        assert!((swift.window_units - 168.0).abs() < 1e-6);
        swift.acknowledged(1_010_000, acknowledged(4096, 62_500));
        assert!((swift.window_units - 168.0).abs() < 1e-6);
        swift.acknowledged(1_062_500, acknowledged(4096, 62_500));
        assert!((swift.window_units - 141.12).abs() < 1e-6);
        // Never by more than half.
        swift.acknowledged(2_000_000, acknowledged(4096, 900_000));
        assert!((swift.window_units - 70.56).abs() < 1e-6);
    }

    #[test]
    fn small_windows_have_a_higher_target() {
        let mut swift = Swift::new(SwiftParameters::DEFAULT);
        for (units, target_us) in [
            (1.0, 300.0),
            (100.0, 50.0),
            (1000.0, 50.0),
            (4.0, 50.0 + 250.0 * 0.4 / 0.9),
        ] {
            swift.set(units);
            assert!((swift.target_ns() - target_us * 1e3).abs() < 1.0, "{units}");
        }
        // Incast: a window of one unit does not shrink further, and grows again at a delay at which a large one would
        // shrink.
        swift.set(1.0);
        swift.acknowledged(0, acknowledged(4096, 10_000_000));
        assert_eq!(swift.window_bytes(), 4096);
        swift.acknowledged(1, acknowledged(4096, 290_000));
        assert_eq!(swift.window_bytes(), 8192);
    }

    #[test]
    fn a_loss_halves_once_each_round_trip_and_long_silence_leaves_one_unit() {
        let mut swift = Swift::new(SwiftParameters::DEFAULT);
        swift.set(64.0);
        swift.lost(1_000_000, Loss::Overtaken(1));
        swift.lost(1_000_001, Loss::Overtaken(3));
        assert_eq!(swift.window_bytes(), 32 * 4096);
        swift.lost(1_100_000, Loss::Timeout(1));
        assert_eq!(swift.window_bytes(), 16 * 4096);
        swift.lost(1_100_000, Loss::Timeout(5));
        assert_eq!(swift.window_bytes(), 4096);
    }

    #[test]
    fn a_network_that_loses_a_little_by_nature_keeps_its_window() {
        let mut swift = Swift::new(SwiftParameters {
            tolerated_loss: 0.02,
            ..SwiftParameters::DEFAULT
        });
        swift.set(1024.0);
        let mut lose = |every: u64| {
            for unit in 1..=10_000_u64 {
                swift.acknowledged(unit * 1_000, acknowledged(4096, 20_000));
                if unit % every == 0 {
                    swift.lost(unit * 1_000, Loss::Overtaken(1));
                }
            }
            swift.window_bytes() / 4096
        };
        assert_eq!(lose(100), 1024, "one in a hundred");
        assert!(lose(25) < 100, "one in twenty-five");
    }

    proptest! {
        #[test]
        fn the_window_stays_within_bounds(steps in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>(), 0_u32..8), 0..200)) {
            let mut swift = Swift::new(SwiftParameters::DEFAULT);
            for (now, bytes, rtt, loss) in steps {
                swift.acknowledged(now, acknowledged(bytes, rtt));
                if loss > 0 {
                    swift.lost(now, Loss::Timeout(loss));
                }
                prop_assert!((4096..=1024 * 4096).contains(&swift.window_bytes()));
            }
        }
    }
}
