//! Flor's Algorithm 1: the shorter the round trip, the larger the chunks.
//!
//! It keeps two averages of the round trip, a quick and a slow one. If the quick one is at most `beta_min` times the
//! slow one, chunks have their maximum size; at `beta_max` times and above they are one unit; in between the size falls
//! linearly. The paper prints numerator and denominator of that line as the same expression; its text requires the
//! denominator `(beta_max - beta_min) * rtt_l`, which is used here.

use super::Chunking;

/// The effect of a loss on the size (Flor §4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnLoss {
    /// RC, where the NIC retransmits everything after the loss: one unit immediately. The paper does not say how the
    /// size recovers: here the bound doubles with each later update.
    OneUnit,
    /// UC: no direct effect. The congestion window halves, and the size follows it down to one unit.
    FollowWindow,
}

/// The parameters of Algorithm 1.
#[derive(Clone, Copy, Debug)]
pub struct ChunkingParameters {
    /// Flor's UNIT_SIZE.
    pub unit_bytes: u32,
    /// Flor's size_max.
    pub max_bytes: u32,
    /// Flor's alpha_s: the weight of a new round trip in the quick average.
    pub quick_weight: f64,
    /// Flor's alpha_l: its weight in the slow one.
    pub slow_weight: f64,
    /// Flor's beta_min.
    pub good_ratio: f64,
    /// Flor's beta_max.
    pub bad_ratio: f64,
    /// The bandwidth-delay product, which bounds chunks until a round trip has been measured.
    pub first_bytes: u64,
    /// The effect of a loss.
    pub on_loss: OnLoss,
}

/// Parameters that are not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParameterError {
    /// A size is out of range.
    #[error(
        "invalid chunking: units of {unit} bytes and chunks of at most {max}; a chunk must be at least one unit, a \
         unit at least one byte"
    )]
    Sizes {
        /// Length of a unit in bytes.
        unit: u32,
        /// Maximum length of a chunk in bytes.
        max: u32,
    },
    /// A weight is out of range.
    #[error("the weights of the averages must be above 0 and at most 1")]
    Weights,
    /// The range of expected round trips is empty.
    #[error("beta_min must be at least 0, and beta_max greater than beta_min")]
    Ratios,
}

impl ChunkingParameters {
    /// Units of 4 KB and chunks up to 64 KB, as in the paper's storage production; weights of 1/8 and 1/64 and ratios
    /// of 1 and 2, which the paper does not specify: TCP's weight for the quick average, a memory eight times as long
    /// for the slow one, and one unit where the queue has doubled the round trip.
    pub const PRODUCTION: Self = Self {
        unit_bytes: 4 << 10,
        max_bytes: 64 << 10,
        quick_weight: 1.0 / 8.0,
        slow_weight: 1.0 / 64.0,
        good_ratio: 1.0,
        bad_ratio: 2.0,
        first_bytes: 64 << 10,
        on_loss: OnLoss::FollowWindow,
    };

    /// The same with units of 1 KB, against incast of thousands (§7.6).
    pub const INCAST: Self = Self {
        unit_bytes: 1 << 10,
        ..Self::PRODUCTION
    };
}

/// Algorithm 1.
#[derive(Debug)]
pub struct RttBased {
    parameters: ChunkingParameters,
    /// rtt_s and rtt_l.
    averages: Option<(f64, f64)>,
    /// size_t, a multiple of the unit.
    size_bytes: u32,
    /// When it was last computed, which happens once per round trip.
    updated_ns: u64,
    /// Bound on the size after a loss on RC.
    bound_bytes: u32,
}

impl RttBased {
    /// Creates an instance without measurements.
    ///
    /// # Errors
    /// When the parameters contradict each other.
    pub fn new(parameters: ChunkingParameters) -> Result<Self, ParameterError> {
        let ChunkingParameters {
            unit_bytes: unit,
            max_bytes: max,
            ..
        } = parameters;
        if unit == 0 || max < unit {
            return Err(ParameterError::Sizes { unit, max });
        }
        let weight = |weight: f64| weight > 0.0 && weight <= 1.0;
        if !weight(parameters.quick_weight) || !weight(parameters.slow_weight) {
            return Err(ParameterError::Weights);
        }
        let ordered = parameters.good_ratio >= 0.0 && parameters.bad_ratio > parameters.good_ratio;
        if !ordered || !parameters.bad_ratio.is_finite() {
            return Err(ParameterError::Ratios);
        }
        let mut chunking = Self {
            parameters,
            averages: None,
            size_bytes: 0,
            updated_ns: 0,
            bound_bytes: max,
        };
        chunking.size_bytes = chunking.aligned(parameters.first_bytes.min(max.into()));
        Ok(chunking)
    }

    /// The largest multiple of the unit that is at most `bytes`, but at least one unit.
    fn aligned(&self, bytes: u64) -> u32 {
        let unit = u64::from(self.parameters.unit_bytes);
        let most = u64::from(self.parameters.max_bytes);
        ((bytes.min(most) / unit).max(1) * unit) as u32
    }
}

impl Chunking for RttBased {
    fn unit_bytes(&self) -> u32 {
        self.parameters.unit_bytes
    }

    fn chunk_bytes(&self, available_window_bytes: u64) -> u32 {
        let bounded = self.size_bytes.min(self.bound_bytes);
        self.aligned(available_window_bytes.min(bounded.into()))
    }

    fn measured(&mut self, now_ns: u64, rtt_ns: u64) {
        let parameters = &self.parameters;
        let rtt = rtt_ns as f64;
        let (quick, slow) = self.averages.map_or((rtt, rtt), |(quick, slow)| {
            (
                quick + parameters.quick_weight * (rtt - quick),
                slow + parameters.slow_weight * (rtt - slow),
            )
        });
        let first = self.averages.replace((quick, slow)).is_none();
        if !first && now_ns.saturating_sub(self.updated_ns) < quick as u64 {
            return;
        }
        self.updated_ns = now_ns;
        let span = (parameters.bad_ratio - parameters.good_ratio) * slow;
        let good = if span > 0.0 {
            ((parameters.bad_ratio * slow - quick) / span).clamp(0.0, 1.0)
        } else {
            // Round trips of zero length.
            1.0
        };
        self.size_bytes = self.aligned((f64::from(parameters.max_bytes) * good) as u64);
        self.bound_bytes = self.bound_bytes.saturating_mul(2).min(parameters.max_bytes);
    }

    fn lost(&mut self) {
        if self.parameters.on_loss == OnLoss::OneUnit {
            self.bound_bytes = self.parameters.unit_bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WIDE: u64 = u64::MAX;

    fn chunking(on_loss: OnLoss) -> RttBased {
        RttBased::new(ChunkingParameters {
            on_loss,
            quick_weight: 1.0,
            slow_weight: 1e-9,
            ..ChunkingParameters::PRODUCTION
        })
        .unwrap()
    }

    #[test]
    fn the_first_chunk_is_the_lesser_of_window_and_bandwidth_delay_product() {
        let parameters = ChunkingParameters {
            first_bytes: 30_000,
            ..ChunkingParameters::PRODUCTION
        };
        let chunking = RttBased::new(parameters).unwrap();
        assert_eq!(chunking.chunk_bytes(WIDE), 7 * 4096);
        assert_eq!(chunking.chunk_bytes(10_000), 2 * 4096);
    }

    #[test]
    fn size_falls_in_a_straight_line_over_the_span_of_expected_round_trips() {
        let mut chunking = chunking(OnLoss::FollowWindow);
        let mut now = 0;
        // The slow average stays at or slightly above 100 µs: the range is 1 to 2 times that.
        for (rtt_us, size_kb) in [
            (100, 64),
            (125, 48),
            (150, 32),
            (175, 16),
            (200, 4),
            (900, 4),
            (50, 64),
        ] {
            now += 10_000_000;
            chunking.measured(now, rtt_us * 1_000);
            assert_eq!(chunking.chunk_bytes(WIDE), size_kb << 10, "{rtt_us} µs");
        }
    }

    #[test]
    fn size_changes_once_in_a_round_trip() {
        let mut chunking = chunking(OnLoss::FollowWindow);
        chunking.measured(1_000_000, 100_000);
        chunking.measured(1_100_000, 150_000);
        assert_eq!(chunking.chunk_bytes(WIDE), 64 << 10);
        chunking.measured(1_150_000, 150_000);
        assert_eq!(chunking.chunk_bytes(WIDE), 32 << 10);
    }

    #[test]
    fn a_window_below_one_unit_does_not_stop_everything() {
        let chunking = chunking(OnLoss::FollowWindow);
        for window in [0, 1, 4095, 4096, 8191] {
            assert_eq!(chunking.chunk_bytes(window), 4096);
        }
    }

    #[test]
    fn a_loss_on_rc_leaves_one_unit_and_on_uc_the_window() {
        let mut rc = chunking(OnLoss::OneUnit);
        let mut uc = chunking(OnLoss::FollowWindow);
        for chunking in [&mut rc, &mut uc] {
            chunking.measured(0, 100_000);
            chunking.lost();
        }
        assert_eq!(rc.chunk_bytes(WIDE), 4096);
        assert_eq!(uc.chunk_bytes(WIDE), 64 << 10);
        // Halving the window halves the chunk, until it is one unit.
        let sizes = (0..6).map(|losses| uc.chunk_bytes((64 << 10) >> losses));
        assert_eq!(
            sizes.collect::<Vec<_>>(),
            [65536, 32768, 16384, 8192, 4096, 4096]
        );
        for (updates, size_kb) in [(1, 8), (2, 16), (3, 32), (4, 64), (5, 64)] {
            rc.measured(updates * 1_000_000, 100_000);
            assert_eq!(rc.chunk_bytes(WIDE), size_kb << 10);
        }
    }

    #[test]
    fn parameters_that_contradict_each_other_are_refused() {
        let with = |change: fn(&mut ChunkingParameters)| {
            let mut parameters = ChunkingParameters::PRODUCTION;
            change(&mut parameters);
            RttBased::new(parameters).map(drop)
        };
        assert!(matches!(
            with(|p| p.unit_bytes = 0),
            Err(ParameterError::Sizes { .. })
        ));
        assert!(matches!(
            with(|p| p.max_bytes = 4095),
            Err(ParameterError::Sizes { .. })
        ));
        assert_eq!(with(|p| p.quick_weight = 0.0), Err(ParameterError::Weights));
        assert_eq!(
            with(|p| p.slow_weight = f64::NAN),
            Err(ParameterError::Weights)
        );
        assert_eq!(with(|p| p.bad_ratio = 1.0), Err(ParameterError::Ratios));
        assert_eq!(
            with(|p| p.bad_ratio = f64::INFINITY),
            Err(ParameterError::Ratios)
        );
    }

    proptest! {
        #[test]
        fn chunks_are_whole_units_within_bounds(
            steps in prop::collection::vec((any::<u32>(), 0_u64..1_000_000_000, any::<u64>(), any::<bool>()), 0..100),
        ) {
            let mut chunking = RttBased::new(ChunkingParameters { on_loss: OnLoss::OneUnit, ..ChunkingParameters::INCAST }).unwrap();
            let mut now = 0;
            for (pause, rtt, window, lost) in steps {
                now += u64::from(pause);
                chunking.measured(now, rtt);
                if lost {
                    chunking.lost();
                }
                let size = chunking.chunk_bytes(window);
                prop_assert!(size % 1024 == 0 && (1024..=65536).contains(&size));
                prop_assert!(u64::from(size) <= window.max(1024));
            }
        }
    }
}
