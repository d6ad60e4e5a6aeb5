//! The report of `dunlin perf ring`: that of every measuring command, with figures specific to rings.

use serde::{Deserialize, Serialize};

use super::{Choice, Lengths, Plan, Test, Without};
use crate::against::Against;
use crate::report::{Report, Setting, Tally};

/// One design's report.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RingReport {
    /// The fields of every report. One way, latency is from writing a message to reading it, under this load; with
    /// ping-pong it is the round trip. There are as many threads as pairs.
    #[serde(flatten)]
    pub report: Report,
    /// The communication pattern.
    pub test: Test,
    /// The ring.
    pub design: Choice,
    /// Optimisations that were switched off.
    pub without: Vec<Without>,
    /// How the length of messages was encoded.
    pub lengths: Lengths,
    /// Slots of the ring.
    pub slots: usize,
    /// Whether readers compared every byte of the messages; a message that differs counts as an error.
    pub verified: bool,
    /// The median of the slices, which is robust against outliers.
    pub median_rate_per_s: f64,
    /// With `--against limits`: the rate of the raw limit's ring whose reader does not access the messages, so that
    /// their lines never cross. No ratio is made with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unread_limit_per_s: Option<f64>,
    /// This design's rate over the first one's, the median of the rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over_first: Option<f64>,
    /// Remarks on the figures.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub notes: Vec<String>,
}

/// The report of one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Comparison {
    /// One for each design, in the requested order.
    pub designs: Vec<RingReport>,
}

/// The measurements of one design.
#[derive(Debug)]
pub struct Measured {
    /// All slices.
    pub slices: Vec<Tally>,
    /// The comparison with the limits, if requested.
    pub against: Option<Against>,
    /// See [`RingReport::unread_limit_per_s`].
    pub unread_limit_per_s: Option<f64>,
}

impl RingReport {
    /// Puts a report together.
    pub fn new(plan: &Plan, measured: Measured, over_first: Option<f64>) -> Self {
        let setting = Setting {
            device: plan.device.clone(),
            preset: format!("ring {}", plan.choice),
            threads: plan.pairs,
            outstanding: match plan.test {
                Test::OneWay => plan.slots,
                Test::PingPong => 1,
            },
            size: plan.size,
            response_size: None,
        };
        let mut rates: Vec<f64> = measured.slices.iter().map(Tally::rate_per_s).collect();
        rates.sort_by(f64::total_cmp);
        let report = match measured.against {
            Some(against) => against.report(setting),
            None => {
                let mut tally = Tally::default();
                for slice in &measured.slices {
                    tally.merge_after(slice);
                }
                Report::new(setting, &tally)
            }
        };
        Self {
            report,
            test: plan.test,
            design: plan.choice,
            without: plan.without.clone(),
            lengths: plan.lengths,
            slots: plan.slots,
            verified: plan.verify,
            median_rate_per_s: crate::limits::survey::median(&rates),
            unread_limit_per_s: measured.unread_limit_per_s,
            over_first,
            notes: notes(plan),
        }
    }
}

/// Remarks on what an ablation cannot show on this machine.
fn notes(plan: &Plan) -> Vec<String> {
    let mut notes = Vec::new();
    if plan.without.contains(&Without::HugePages) && !huge_pages_here() {
        notes.push(
            "no huge pages for shared memory on this machine: with and without are the same".into(),
        );
    }
    if plan.without.contains(&Without::Numa) && crate::affinity::nodes() < 2 {
        notes.push("one NUMA node on this machine: with and without are the same".into());
    }
    notes
}

fn huge_pages_here() -> bool {
    dunlin::available().iter().any(|device| {
        let attributes = device.attributes.as_ref();
        attributes.is_ok_and(|attributes| attributes.page_kind != dunlin_verbs::PageKind::Base)
    })
}
