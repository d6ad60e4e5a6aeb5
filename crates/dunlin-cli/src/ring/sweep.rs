//! Measures all sizes from 64 B to 1 MiB for all designs: the paper's Fig. 5, as CSV and SVG.

use std::path::Path;
use std::time::Duration;

use dunlin_ring::RingConfig;
use dunlin_verbs::Device;

use super::compare::compare;
use super::plot::{plot, Series, Unit};
use super::report::RingReport;
use super::{Choice, Plan, Test};
use crate::commands::Failure;
use crate::interrupt;
use crate::output;

/// The sizes.
pub const SIZES: [usize; 15] = {
    let mut sizes = [64; 15];
    let mut at = 1;
    while at < sizes.len() {
        sizes[at] = sizes[at - 1] * 2;
        at += 1;
    }
    sizes
};

/// The result of a design at one size, as a point of the plot: bytes per second, or the median round trip.
fn height(report: &RingReport) -> f64 {
    match report.test {
        Test::OneWay => report.median_rate_per_s * report.report.setting.size as f64,
        Test::PingPong => report.report.latency_ns.p50 as f64,
    }
}

/// Measures every size for `seconds` and writes `ring.csv` and `ring.svg` into a folder.
///
/// # Errors
/// When a ring fails or a file cannot be written.
pub fn sweep<D: Device>(
    device: &D,
    plans: &[Plan],
    slots: Option<usize>,
    each: Duration,
    out: &Path,
    mut progress: impl FnMut(f64),
) -> Result<(), Failure> {
    output::folder(out)?;
    let mut csv = String::from(
        "design,test,pairs,without,size,rate_per_s,bytes_per_s,latency_p50_ns,latency_p99_ns,latency_p999_ns,over_first\n",
    );
    let mut series: Vec<Series> = plans
        .iter()
        .map(|plan| Series {
            name: plan.choice.to_string(),
            points: Vec::new(),
        })
        .collect();
    for (done, size) in SIZES.into_iter().enumerate() {
        if interrupt::came() {
            break;
        }
        let plans: Vec<Plan> = plans
            .iter()
            .map(|plan| Plan {
                size,
                slots: slots.unwrap_or(RingConfig::usual_slots(size)),
                ..plan.clone()
            })
            .collect();
        let duration = each * plans.len() as u32;
        let found = match compare(device, &plans, duration, false, |_| {}) {
            // The sizes before this one are kept.
            Err(_) if interrupt::came() => break,
            found => found?,
        };
        for (report, series) in found.designs.iter().zip(&mut series) {
            let bytes_per_s = report.median_rate_per_s * size as f64;
            let without: Vec<String> = report
                .without
                .iter()
                .filter_map(|one| serde_json::to_value(one).ok()?.as_str().map(str::to_owned))
                .collect();
            csv.push_str(&format!(
                "{},{},{},{},{size},{:.0},{bytes_per_s:.0},{},{},{},{}\n",
                report.design,
                report.test,
                report.report.setting.threads,
                without.join(" "),
                report.median_rate_per_s,
                report.report.latency_ns.p50,
                report.report.latency_ns.p99,
                report
                    .report
                    .latency_ns
                    .p999
                    .map_or_else(String::new, |ns| ns.to_string()),
                report.over_first.map_or("1".into(), |r| format!("{r:.3}")),
            ));
            // Raw WRITEs go where the eye compares: last and thin is up to the plot.
            series.points.push((size as f64, height(report)));
        }
        progress((done + 1) as f64 / SIZES.len() as f64);
    }
    output::file(&out.join("ring.csv"), csv)?;
    let (title, unit) = match plans.first().map(|plan| plan.test) {
        Some(Test::PingPong) => ("round trip, median", Unit::Nanoseconds),
        _ => ("bytes a second, one way", Unit::BytesPerSecond),
    };
    output::file(&out.join("ring.svg"), plot(title, unit, &series))
}

/// The designs to sweep by default.
pub const ALL: [Choice; 6] = [
    Choice::Rb2,
    Choice::Farm,
    Choice::Socksdirect,
    Choice::L5,
    Choice::Mvapich,
    Choice::Raw,
];
