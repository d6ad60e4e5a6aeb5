//! `dunlin perf limits`: what this machine allows.

use std::time::Duration;

use crate::commands::Failure;
use crate::histogram::Percentiles;
use crate::interrupt;
use crate::limits::survey::{survey, Figure, Survey, Unit};
use crate::output;
use crate::report::{AnyLimits, Report, Setting};

/// Measure what this machine allows without a framework
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Two threads, pinned to the first two cores available to this process, with nothing between them but memory or \
sockets. The limits are measured in turns, in short slices; the table shows the median and the lowest and highest \
slice. The host may move a virtual machine's cores nearer together or farther apart, which changes the shared-memory \
figures by a factor of two to three: compare within one run only.\n\n\
Examples:\n  \
  dunlin perf limits\n  \
  dunlin perf limits --seconds 2 --json | jq .limits.ring_round_trip_p50_ns")]
pub struct Args {
    /// Seconds to measure, for all limits together (at least one round of about half a second)
    #[arg(long, default_value = "5", value_parser = super::parse_seconds, allow_negative_numbers = true)]
    seconds: Duration,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Measures and prints.
pub fn run(args: &Args) -> Result<(), Failure> {
    interrupt::listen()?;
    let bar = output::progress_bar();
    let survey = survey(args.seconds, |done, what| {
        bar.set_position((done * 1000.0) as u64);
        bar.set_message(what.to_owned());
    });
    bar.finish_and_clear();
    let survey = survey.map_err(|error| {
        Failure::new(format!("cannot measure a limit: {error}"))
            .help("shared memory and loopback sockets are required; see `dunlin doctor`")
    })?;
    if args.json {
        output::print_json(&report(&survey))?;
    } else {
        let mut table = output::table(&["limit", "median", "lowest", "highest"]);
        // The far tail is in the JSON object.
        let tail = |figure: &&Figure| {
            figure.name.ends_with("_p999_ns") || figure.name.ends_with("_max_ns")
        };
        for figure in survey.figures.iter().filter(|figure| !tail(figure)) {
            let show = |value| shown(figure, value);
            table.add_row([
                figure.what.clone(),
                show(figure.median),
                show(figure.low),
                show(figure.high),
            ]);
        }
        output::print(table)?;
        output::print(format_args!(
            "{} rounds in {:.1} s",
            survey.rounds,
            survey.elapsed.as_secs_f64()
        ))?;
    }
    interrupt::check()
}

fn shown(figure: &Figure, value: f64) -> String {
    match figure.unit {
        Unit::Nanoseconds => output::nanoseconds(value),
        Unit::PerSecond => output::rate(value),
        Unit::BytesPerSecond => output::bandwidth(value),
    }
}

/// The headline is the bare ring pair with one request outstanding; everything is under `limits`.
fn report(survey: &Survey) -> Report {
    let rate_per_s = survey.median("ring_pipelined_1_per_s").unwrap_or(0.0);
    let known = |percentile| survey.median(&format!("ring_round_trip_{percentile}_ns"));
    let latency = |percentile| known(percentile).unwrap_or(0.0) as u64;
    Report {
        rate_per_s,
        bytes_per_s: rate_per_s * 64.0,
        latency_ns: Percentiles {
            p50: latency("p50"),
            p99: latency("p99"),
            p999: known("p999").map(|ns| ns as u64),
            max: latency("max"),
        },
        errors: 0,
        first_error: None,
        setting: Setting {
            device: "memory".into(),
            preset: "limits".into(),
            threads: 1,
            outstanding: 1,
            size: 64,
            response_size: None,
        },
        seconds: survey.elapsed.as_secs_f64(),
        against: None,
        limits: Some(AnyLimits::All(survey.limits())),
        ratio: None,
        pairs: None,
        histogram_ns: None,
    }
}
