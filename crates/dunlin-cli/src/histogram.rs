//! Latencies, recorded in a histogram of fixed size that can be merged across threads and processes.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// The longest latency recorded exactly: a minute, in nanoseconds. Longer ones count as this.
pub const LONGEST_NS: u64 = 60_000_000_000;

/// Fewer latencies than this have no 99.9th percentile: it would be the slowest.
const TAIL_FROM: u64 = 1_000;

/// Latencies in nanoseconds, to about one part in a thousand.
///
/// Recording allocates nothing. Serialized, it is the list of recorded values and their counts, so
/// that another process can send its own over and have them merged here.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(from = "Vec<(u64, u64)>", into = "Vec<(u64, u64)>")]
pub struct Latencies {
    histogram: Histogram<u64>,
}

/// The percentiles every measuring command reports, in nanoseconds; all zero when nothing was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Percentiles {
    /// The median.
    pub p50: u64,
    /// 99 % were no slower.
    pub p99: u64,
    /// 99.9 % were no slower; `None` of fewer than 1,000.
    pub p999: Option<u64>,
    /// The slowest.
    pub max: u64,
}

impl Latencies {
    /// An empty histogram.
    pub fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, LONGEST_NS, 3)
            .expect("bounds of 1 ns to a minute with three digits are valid for hdrhistogram");
        Self { histogram }
    }

    /// Records one latency.
    #[inline]
    pub fn record(&mut self, latency_ns: u64) {
        self.histogram.saturating_record(latency_ns);
    }

    /// Records `count` calls of the same latency.
    pub fn record_many(&mut self, latency_ns: u64, count: u64) {
        self.histogram.saturating_record_n(latency_ns, count);
    }

    /// Adds what another thread or process recorded.
    pub fn merge(&mut self, other: &Self) {
        self.histogram += &other.histogram;
    }

    /// The number of latencies recorded.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The counts between consecutive powers of two, without empty ones at the ends.
    pub fn by_power_of_two(&self) -> Vec<(u64, u64)> {
        let mut counts: Vec<(u64, u64)> = Vec::new();
        for value in self.histogram.iter_recorded() {
            let from = 1u64 << value.value_iterated_to().max(1).ilog2();
            while counts.last().is_some_and(|(last, _)| *last < from / 2) {
                let next = counts.last().map_or(from, |(last, _)| last * 2);
                counts.push((next, 0));
            }
            match counts.last_mut() {
                Some((last, count)) if *last == from => *count += value.count_at_value(),
                _ => counts.push((from, value.count_at_value())),
            }
        }
        counts
    }

    /// The percentiles to report.
    pub fn percentiles(&self) -> Percentiles {
        if self.histogram.is_empty() {
            return Percentiles::default();
        }
        Percentiles {
            p50: self.histogram.value_at_quantile(0.5),
            p99: self.histogram.value_at_quantile(0.99),
            p999: (self.count() >= TAIL_FROM).then(|| self.histogram.value_at_quantile(0.999)),
            max: self.histogram.max(),
        }
    }
}

impl Default for Latencies {
    fn default() -> Self {
        Self::new()
    }
}

impl From<Vec<(u64, u64)>> for Latencies {
    fn from(counts: Vec<(u64, u64)>) -> Self {
        let mut latencies = Self::new();
        for (latency_ns, count) in counts {
            latencies.record_many(latency_ns, count);
        }
        latencies
    }
}

impl From<Latencies> for Vec<(u64, u64)> {
    fn from(latencies: Latencies) -> Self {
        latencies
            .histogram
            .iter_recorded()
            .map(|value| (value.value_iterated_to(), value.count_at_value()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_nothing_are_zero() {
        assert_eq!(Latencies::new().percentiles(), Percentiles::default());
    }

    #[test]
    fn few_latencies_have_no_far_tail() {
        let mut latencies = Latencies::new();
        latencies.record_many(5, 998);
        latencies.record(1_700);
        assert_eq!(latencies.percentiles().p999, None);
        assert_eq!(latencies.percentiles().max, 1_700);
        latencies.record(5);
        assert_eq!(latencies.percentiles().p999, Some(5));
    }

    #[test]
    fn a_histogram_survives_the_way_between_processes_and_merges() {
        let mut here = Latencies::new();
        for latency_ns in 1..=1000 {
            here.record(latency_ns);
        }
        let sent = serde_json::to_string(&here).unwrap();
        let received: Latencies = serde_json::from_str(&sent).unwrap();
        assert_eq!(received.percentiles(), here.percentiles());
        here.merge(&received);
        assert_eq!(here.count(), 2000);
        assert_eq!(here.percentiles().max, 1000);
    }

    #[test]
    fn powers_of_two_hold_all_and_have_no_gap() {
        let mut latencies = Latencies::new();
        for latency_ns in [5, 6, 7, 8, 40, 1000] {
            latencies.record(latency_ns);
        }
        let counts = latencies.by_power_of_two();
        let expected = [
            (4, 3),
            (8, 1),
            (16, 0),
            (32, 1),
            (64, 0),
            (128, 0),
            (256, 0),
            (512, 1),
        ];
        assert_eq!(counts, expected);
        assert_eq!(Latencies::new().by_power_of_two(), []);
    }

    #[test]
    fn what_is_beyond_the_bounds_counts_as_the_longest() {
        let mut latencies = Latencies::new();
        latencies.record(u64::MAX);
        latencies.record(0);
        assert_eq!(latencies.count(), 2);
        assert!(latencies.percentiles().max >= LONGEST_NS);
    }
}
