//! `dunlin perf rpc --against PRESET,...`: presets in turns, by the same threads and against the same server.
//!
//! The placement of threads by the system and the host changes the rate of all presets several times, from one second
//! to the next and from one run to the next. So every preset is measured in every round, the ratios of each round are
//! taken, and the result is their median with its 95 % confidence interval.

use std::iter;
use std::time::{Duration, Instant};

use dunlin::Preset;
use serde::Serialize;

use crate::commands::perf::load::{measure, Loader};
use crate::commands::Failure;
use crate::interrupt;
use crate::limits::survey::median;
use crate::output;
use crate::report::{check_errors, Report, Tally};

/// How long a preset is measured in each round.
const SLICE: Duration = Duration::from_millis(50);
/// Minimum number of rounds: with fewer, the median has no 95 % interval.
const ROUNDS: usize = 6;

/// Another preset, and the measured one relative to it.
#[derive(Debug, Serialize)]
pub(super) struct Other {
    preset: String,
    /// The median of its slices.
    rate_per_s: f64,
    /// Its median latency in nanoseconds.
    latency_p50_ns: u64,
    errors: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_error: Option<String>,
    /// The measured preset's rate over this one's in the same round: the median of the rounds.
    ratio: f64,
    /// The bounds of the median's 95 % confidence interval, which fewer than [`ROUNDS`] do not have.
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio_low: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio_high: Option<f64>,
}

/// What a comparison adds to a report.
#[derive(Debug, Serialize)]
pub(super) struct Comparison {
    rounds: usize,
    /// The median of the measured preset's slices.
    median_rate_per_s: f64,
    against: Vec<Other>,
}

/// Measures all clients of `threads` in each round; returns the slices of each client, one for each round. A round that
/// Ctrl-C cut short is left out.
pub(super) fn interleave(
    threads: &[Loader],
    clients: usize,
    duration: Duration,
    mut progress: impl FnMut(f64),
) -> Result<Vec<Vec<Tally>>, Failure> {
    // Connections are made outside of what is measured.
    for client in 0..clients {
        measure(threads, client, Duration::from_millis(1))?;
    }
    let start = Instant::now();
    let mut slices: Vec<Vec<Tally>> = vec![Vec::new(); clients];
    let rounds = |slices: &[Vec<Tally>]| slices[0].len();
    while (rounds(&slices) < ROUNDS || start.elapsed() < duration) && !interrupt::came() {
        // The preset that begins one round ends the next, so that steady changes favour none.
        let round = rounds(&slices);
        let mut found = Vec::new();
        for turn in 0..clients {
            let client = if round % 2 == 0 {
                turn
            } else {
                clients - 1 - turn
            };
            found.push((client, measure(threads, client, SLICE)?));
        }
        if interrupt::came() {
            break;
        }
        for (client, slice) in found {
            slices[client].push(slice);
        }
        progress((start.elapsed().as_secs_f64() / duration.as_secs_f64()).min(1.0));
    }
    match rounds(&slices) {
        0 => Err(Failure::interrupted()),
        _ => Ok(slices),
    }
}

/// The result of the slices of the measured preset and of the others.
pub(super) fn conclude(others: &[Preset], slices: &[Vec<Tally>]) -> (Tally, Comparison) {
    let sum = |slices: &[Tally]| {
        let mut sum = Tally::default();
        slices.iter().for_each(|slice| sum.merge_after(slice));
        sum
    };
    let measured = &slices[0];
    let against = others.iter().zip(&slices[1..]).map(|(preset, own)| {
        let both = measured.iter().zip(own);
        let ratios = both.map(|(a, b)| a.rate_per_s() / b.rate_per_s().max(1.0));
        let mut ratios: Vec<f64> = ratios.collect();
        ratios.sort_by(f64::total_cmp);
        let interval = median_interval(&ratios);
        let tally = sum(own);
        Other {
            preset: preset.to_string(),
            rate_per_s: median_rate(own),
            latency_p50_ns: tally.latencies.percentiles().p50,
            errors: tally.errors,
            first_error: tally.first_error,
            ratio: median(&ratios),
            ratio_low: interval.map(|[low, _]| low),
            ratio_high: interval.map(|[_, high]| high),
        }
    });
    let comparison = Comparison {
        rounds: measured.len(),
        median_rate_per_s: median_rate(measured),
        against: against.collect(),
    };
    (sum(measured), comparison)
}

fn median_rate(slices: &[Tally]) -> f64 {
    let mut rates: Vec<f64> = slices.iter().map(Tally::rate_per_s).collect();
    rates.sort_by(f64::total_cmp);
    median(&rates)
}

/// The 95 % confidence interval of the median of sorted values: the order statistics that lie 0.98 times the root of
/// their number away from the middle (the binomial distribution's, whatever the values').
fn median_interval(sorted: &[f64]) -> Option<[f64; 2]> {
    if sorted.len() < ROUNDS {
        return None;
    }
    let count = sorted.len() as f64;
    let half = 0.98 * count.sqrt();
    let low = (count / 2.0 - half).floor().max(0.0) as usize;
    let high = (count / 2.0 + half).ceil() as usize;
    Some([sorted[low], sorted[high.min(sorted.len() - 1)]])
}

/// Prints both.
///
/// # Errors
/// When calls failed.
pub(super) fn print(report: Report, comparison: Comparison, json: bool) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct Object {
        #[serde(flatten)]
        report: Report,
        #[serde(flatten)]
        comparison: Comparison,
    }
    let errors = report.errors
        + comparison
            .against
            .iter()
            .map(|other| other.errors)
            .sum::<u64>();
    let firsts = comparison.against.iter().map(|other| &other.first_error);
    let mut firsts = iter::once(&report.first_error).chain(firsts).flatten();
    let failed = check_errors(errors, "calls", firsts.next());
    if json {
        output::print_json(&Object { report, comparison })?;
        return failed;
    }
    let mut table = output::table(&["", "rate", "latency p50", "ratio", "95 % interval"]);
    let setting = &report.setting;
    table.add_row(vec![
        setting.preset.clone(),
        output::rate(comparison.median_rate_per_s),
        output::nanoseconds(report.latency_ns.p50 as f64),
    ]);
    for other in &comparison.against {
        table.add_row(vec![
            other.preset.clone(),
            output::rate(other.rate_per_s),
            output::nanoseconds(other.latency_p50_ns as f64),
            format!("{:.2}", other.ratio),
            match (other.ratio_low, other.ratio_high) {
                (Some(low), Some(high)) => format!("{low:.2} to {high:.2}"),
                _ => format!("none below {ROUNDS} rounds"),
            },
        ]);
    }
    output::print(table)?;
    output::print(format!(
        "{} rounds of 50 ms for each preset, {} x {} calls out, {} B, device {}; ratio: {} over the other, in the same \
         round, median",
        comparison.rounds,
        setting.threads,
        setting.outstanding,
        setting.size,
        setting.device,
        setting.preset
    ))?;
    failed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(operations: u64) -> Tally {
        Tally {
            operations,
            elapsed: SLICE,
            ..Tally::default()
        }
    }

    #[test]
    fn ratios_are_of_the_same_round_whatever_the_rounds_do() {
        // The machine is four times slower in every second round, for all.
        let pace = |round: u64| if round % 2 == 0 { 1 } else { 4 };
        let of = |calls: u64| (0..40).map(|round| slice(calls / pace(round))).collect();
        let slices: Vec<Vec<Tally>> = vec![of(190_000), of(200_000)];
        let (tally, comparison) = conclude(&[Preset::Plain], &slices);
        assert_eq!(tally.operations, 20 * 190_000 + 20 * 47_500);
        let other = &comparison.against[0];
        let bounds = [other.ratio_low, other.ratio_high].map(|bound| bound.expect("40 rounds"));
        for ratio in [bounds[0], other.ratio, bounds[1]] {
            assert!((ratio - 0.95).abs() < 1e-9, "{other:?}");
        }
    }

    #[test]
    fn an_interval_holds_the_median() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(median_interval(&values), Some([41.0, 61.0]));
    }

    #[test]
    fn too_few_rounds_have_no_interval() {
        let of = |rounds| vec![slice(100); rounds];
        let (_, comparison) = conclude(&[Preset::Plain], &[of(ROUNDS - 1), of(ROUNDS - 1)]);
        let found = serde_json::to_value(comparison).expect("an object");
        assert_eq!(found["against"][0]["ratio"], 1.0, "{found}");
        assert!(found["against"][0].get("ratio_low").is_none(), "{found}");
        let (_, comparison) = conclude(&[Preset::Plain], &[of(ROUNDS), of(ROUNDS)]);
        assert_eq!(comparison.against[0].ratio_low, Some(1.0));
    }
}
