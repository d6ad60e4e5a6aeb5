//! Selective retransmission in software, over UC (Flor §5), with a timeout rule, which the paper does not specify.
//!
//! `timeout = max(least, smoothed + 4 * variation + ack_delay) * 2^timeouts`: RFC 6298 plus what the receiver's timer
//! may add. The smoothed value is the whole wait for an acknowledgement, including the time for which the receiver
//! delayed it. Until a round trip has been measured, the timeout is `first`.

use super::Reliability;

/// The timeout is doubled at most this many times: with a retransmission every half second, the connection resumes soon
/// after a stopped peer does.
const MAX_DOUBLINGS: u32 = 7;

/// The parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelectiveParameters {
    /// Timeout until a round trip has been measured.
    pub first_ns: u64,
    /// Minimum timeout: a peer's thread may be off its core for this long.
    pub least_ns: u64,
    /// How long a receiver may delay an acknowledgement: its timer.
    pub ack_delay_ns: u64,
    /// See [`Reliability::max_timeouts`].
    pub max_timeouts: u32,
    /// See [`Reliability::last_timeouts`].
    pub last_timeouts: u32,
    /// See [`Reliability::reordering`].
    pub reordering: u64,
}

impl SelectiveParameters {
    /// 4 ms until a round trip has been measured and at least 4 ms after, from a sweep over `roce` (`docs/flor.md`):
    /// with 1 ms a software device retransmits needlessly, with 10 ms short messages wait longer after a loss. 120 µs
    /// is the paper's timer for acknowledgements. The first work request that overtakes another shows that it is lost:
    /// the paper takes any gap for a loss, and UC drops most of what is overtaken. Seven consecutive timeouts, after
    /// which the eighth gives up a queue pair, take 127 times the first one; fifteen, with at most seven doublings,
    /// 1,151 times: 4.6 s.
    pub const DEFAULT: Self = Self {
        first_ns: 4_000_000,
        least_ns: 4_000_000,
        ack_delay_ns: 120_000,
        max_timeouts: 7,
        last_timeouts: 15,
        reordering: 1,
    };
}

/// See the module.
#[derive(Debug)]
pub struct Selective {
    parameters: SelectiveParameters,
    /// Smoothed round trip and its variation.
    estimate: Option<(u64, u64)>,
}

impl Selective {
    /// Creates an instance without measurements.
    pub fn new(parameters: SelectiveParameters) -> Self {
        Self {
            parameters,
            estimate: None,
        }
    }
}

impl Reliability for Selective {
    fn completion_acknowledges(&self) -> bool {
        false
    }

    fn measured(&mut self, waited_ns: u64) {
        self.estimate = Some(match self.estimate {
            None => (waited_ns, waited_ns / 2),
            Some((smoothed, variation)) => {
                let difference = smoothed.abs_diff(waited_ns);
                (
                    smoothed - smoothed / 8 + waited_ns / 8,
                    variation - variation / 4 + difference / 4,
                )
            }
        });
    }

    fn timeout_ns(&self, timeouts: u32) -> Option<u64> {
        let SelectiveParameters {
            first_ns,
            least_ns,
            ack_delay_ns,
            ..
        } = self.parameters;
        let once_ns = self.estimate.map_or(first_ns, |(smoothed, variation)| {
            let late_ns = variation.saturating_mul(4).saturating_add(ack_delay_ns);
            smoothed.saturating_add(late_ns).max(least_ns)
        });
        Some(once_ns.saturating_mul(1 << timeouts.min(MAX_DOUBLINGS)))
    }

    fn max_timeouts(&self) -> u32 {
        self.parameters.max_timeouts
    }

    fn last_timeouts(&self) -> u32 {
        self.parameters.last_timeouts
    }

    fn reordering(&self) -> u64 {
        self.parameters.reordering
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reliability::Hardware;

    #[test]
    fn the_timeout_follows_the_round_trip_and_doubles() {
        let mut selective = Selective::new(SelectiveParameters::DEFAULT);
        assert_eq!(selective.timeout_ns(0), Some(4_000_000));
        assert_eq!(selective.timeout_ns(2), Some(16_000_000));
        for _ in 0..100 {
            selective.measured(50_000);
        }
        assert_eq!(selective.timeout_ns(0), Some(4_000_000));
        assert_eq!(selective.timeout_ns(3), Some(32_000_000));
        for _ in 0..200 {
            selective.measured(30_000_000);
        }
        let timeout = selective.timeout_ns(0).unwrap();
        assert!((30_120_000..30_140_000).contains(&timeout), "{timeout}");
        selective.measured(90_000_000);
        assert!(selective.timeout_ns(0).unwrap() > 90_000_000);
        selective.measured(u64::MAX);
        assert!(selective.timeout_ns(u32::MAX).is_some());
    }

    #[test]
    fn on_rc_the_nic_looks_after_everything() {
        let mut hardware = Hardware;
        hardware.measured(1);
        assert!(hardware.completion_acknowledges());
        assert_eq!(hardware.timeout_ns(0), None);
        assert!(!Selective::new(SelectiveParameters::DEFAULT).completion_acknowledges());
    }
}
