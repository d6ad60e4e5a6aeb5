//! The result of a measuring command: one object, printed as JSON or as a table.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::against::{Bounds, Pairs, Ratio};
use crate::commands::Failure;
use crate::histogram::{Latencies, Percentiles};
use crate::limits::Limits;

/// What one measuring thread, process or slice of time counted.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Tally {
    /// Operations that succeeded.
    pub operations: u64,
    /// Payload bytes they moved.
    pub bytes: u64,
    /// Operations that failed.
    pub errors: u64,
    /// The duration of the measurement.
    pub elapsed: Duration,
    /// The latency of each operation that succeeded.
    pub latencies: Latencies,
    /// Why the first of those that failed did, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_error: Option<String>,
}

impl Tally {
    /// Adds what another thread or process counted during the same time.
    pub fn merge_beside(&mut self, other: &Self) {
        self.add_counts(other);
        self.elapsed = self.elapsed.max(other.elapsed);
    }

    /// Adds what was counted during another stretch of time.
    pub fn merge_after(&mut self, other: &Self) {
        self.add_counts(other);
        self.elapsed += other.elapsed;
    }

    /// Operations a second.
    pub fn rate_per_s(&self) -> f64 {
        per_second(self.operations, self.elapsed)
    }

    /// Payload bytes a second.
    pub fn bytes_per_s(&self) -> f64 {
        per_second(self.bytes, self.elapsed)
    }

    /// Counts an operation that failed; the first one's words are kept.
    #[cold]
    pub fn fail(&mut self, why: impl FnOnce() -> String) {
        self.errors += 1;
        self.first_error.get_or_insert_with(why);
    }

    fn add_counts(&mut self, other: &Self) {
        if self.first_error.is_none() {
            self.first_error.clone_from(&other.first_error);
        }
        self.operations += other.operations;
        self.bytes += other.bytes;
        self.errors += other.errors;
        self.latencies.merge(&other.latencies);
    }
}

fn per_second(count: u64, elapsed: Duration) -> f64 {
    if elapsed.is_zero() {
        0.0
    } else {
        count as f64 / elapsed.as_secs_f64()
    }
}

/// The setting of a measurement: the part of a [`Report`] that is known before it starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// The device that carried it, as `--device` names it.
    pub device: String,
    /// The preset, as `--preset` names it.
    pub preset: String,
    /// Client threads.
    pub threads: usize,
    /// Operations each thread keeps outstanding.
    pub outstanding: usize,
    /// Payload bytes of one operation; of a call, of its request.
    pub size: usize,
    /// Payload bytes of a call's answer, where they are others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_size: Option<usize>,
}

/// The one object a measuring command prints with `--json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// Operations a second.
    pub rate_per_s: f64,
    /// Payload bytes a second.
    pub bytes_per_s: f64,
    /// Latency percentiles in nanoseconds.
    pub latency_ns: Percentiles,
    /// Operations that failed.
    pub errors: u64,
    /// Why the first of them did, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_error: Option<String>,
    /// The setting of the measurement.
    #[serde(flatten)]
    pub setting: Setting,
    /// Seconds of measuring, without what was spent on limits.
    pub seconds: f64,
    /// With `--against` another program: which. Then `limits` is what it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub against: Option<String>,
    /// With `--against limits`: the raw limits measured in turns with it; for `perf limits`: everything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<AnyLimits>,
    /// With `--against limits`: measured over limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<Ratio>,
    /// With `--against limits`: how many pairs the ratios are medians of, and their spread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pairs: Option<Pairs>,
    /// With `--histogram`: latencies in nanoseconds, and the number of operations with each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub histogram_ns: Option<Latencies>,
}

/// The limits a report carries.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
pub enum AnyLimits {
    /// The three that bound one command.
    Bounds(Bounds),
    /// All that `perf limits` measures.
    All(Limits),
}

impl Report {
    /// The report of a tally, without limits.
    pub fn new(setting: Setting, tally: &Tally) -> Self {
        Self {
            rate_per_s: tally.rate_per_s(),
            bytes_per_s: tally.bytes_per_s(),
            latency_ns: tally.latencies.percentiles(),
            errors: tally.errors,
            first_error: tally.first_error.clone(),
            setting,
            seconds: tally.elapsed.as_secs_f64(),
            against: None,
            limits: None,
            ratio: None,
            pairs: None,
            histogram_ns: None,
        }
    }
}

/// The end of a command some of whose operations failed: how many, and why the first did.
///
/// # Errors
/// When one failed.
pub fn check_errors(errors: u64, operations: &str, first: Option<&String>) -> Result<(), Failure> {
    match (errors, first) {
        (0, _) => Ok(()),
        (_, None) => Err(Failure::new(format!("{errors} {operations} failed"))),
        (_, Some(first)) => Err(Failure::new(format!(
            "{errors} {operations} failed, the first with: {first}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(operations: u64, millis: u64) -> Tally {
        Tally {
            operations,
            bytes: operations * 64,
            elapsed: Duration::from_millis(millis),
            ..Tally::default()
        }
    }

    #[test]
    fn threads_beside_each_other_add_rates_and_slices_after_each_other_do_not() {
        let mut beside = tally(100, 500);
        beside.merge_beside(&tally(100, 500));
        assert_eq!(beside.rate_per_s(), 400.0);
        let mut after = tally(100, 500);
        after.merge_after(&tally(100, 500));
        assert_eq!(after.rate_per_s(), 200.0);
        assert_eq!(after.bytes_per_s(), 12_800.0);
    }

    #[test]
    fn nothing_measured_is_zero_and_not_nan() {
        assert_eq!(Tally::default().rate_per_s(), 0.0);
    }

    #[test]
    fn the_object_has_the_promised_keys() {
        let setting = Setting {
            device: "shm".into(),
            preset: "plain".into(),
            threads: 1,
            outstanding: 64,
            size: 64,
            response_size: None,
        };
        let report = serde_json::to_value(Report::new(setting, &tally(10, 10))).unwrap();
        for key in [
            "rate_per_s",
            "bytes_per_s",
            "latency_ns",
            "errors",
            "device",
            "preset",
        ] {
            assert!(report.get(key).is_some(), "{key}");
        }
        for key in ["threads", "outstanding", "size", "seconds"] {
            assert!(report.get(key).is_some(), "{key}");
        }
        for key in ["p50", "p99", "p999", "max"] {
            assert!(report["latency_ns"].get(key).is_some(), "{key}");
        }
        assert!(report.get("ratio").is_none());
    }
}
