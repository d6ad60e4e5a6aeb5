//! A key-value store in a second process, under YCSB B or under scans of its index.

use std::time::Duration;

use super::{start, Args};
use crate::commands::Failure;
use crate::interrupt;
use crate::kv_load::{Load, Ours};
use crate::output;
use crate::report::{check_errors, Report, Setting, Tally};
use crate::workload::{Keys, Mix, Workload, Zipf, MAX_SCAN};

/// Bytes of a value, as in YCSB's single-field records.
const VALUE_BYTES: usize = 100;
/// Skew of YCSB's Zipfian keys.
const SKEW: f64 = 0.99;
/// Interval of the progress bar.
const SLICE: Duration = Duration::from_millis(250);

/// Runs it; `scans` for YCSB E instead of B.
pub(super) fn run(args: &Args, scans: bool) -> Result<(), Failure> {
    let (workload, name) = match scans {
        true => (Workload::YcsbE, "YCSB E"),
        false => (Workload::YcsbB, "YCSB B"),
    };
    let mut arguments = Vec::new();
    // Twice what the entries take, and some for a start; with scans others are inserted.
    let keys = match scans {
        true => args.entries as usize * 2 + 200_000,
        false => args.entries as usize,
    };
    let memory = keys * 400 + (32 << 20);
    arguments.extend(["--memory".to_string(), memory.to_string()]);
    arguments.extend(["--keys".to_string(), keys.to_string()]);
    let server = start(args, "kv", arguments)?;
    let client = args.connect.connect(server.address())?;
    let info = client.info();
    let outstanding = args.outstanding as usize;
    let pipeline = client.pipeline_of(outstanding).map_err(Failure::new)?;
    let ours = Ours::new(pipeline, scans);
    let mut load = Load::new(ours, outstanding, VALUE_BYTES, scans);

    let bar = output::progress_bar();
    bar.set_message("loading");
    let show = |done: f64| bar.set_position((done.min(1.0) * 1000.0) as u64);
    load.fill(args.entries, show)?;
    bar.set_message(name);
    let keys = Keys::Zipf(Zipf::new(args.entries, SKEW));
    let mut mix = Mix::new((workload, MAX_SCAN), &keys, 42);
    let mut tally = Tally::default();
    while tally.elapsed < args.seconds && !interrupt::came() {
        let left = args.seconds - tally.elapsed;
        tally.merge_after(&load.run(&mut mix, left.min(SLICE))?);
        show(tally.elapsed.as_secs_f64() / args.seconds.as_secs_f64());
    }
    bar.finish_and_clear();
    drop(load);
    client.close();
    server.stop()?;

    let setting = Setting {
        device: info.device.clone(),
        preset: info.preset.to_string(),
        threads: 1,
        outstanding: args.outstanding as usize,
        size: VALUE_BYTES,
        response_size: None,
    };
    let report = Report::new(setting, &tally);
    if args.json {
        output::print_json(&report)?;
    } else {
        let latency = report.latency_ns;
        let mut table = output::table(&[&format!("{name}, two processes"), ""]);
        table.add_row(["operations", &tally.operations.to_string()]);
        table.add_row(["rate", &output::rate(report.rate_per_s)]);
        table.add_row(["latency p50", &output::nanoseconds(latency.p50 as f64)]);
        table.add_row(["latency p99", &output::nanoseconds(latency.p99 as f64)]);
        table.add_row(["latency p99.9", &output::tail(latency.p999)]);
        table.add_row(["errors", &report.errors.to_string()]);
        table.add_row(["device", &format!("{} ({})", info.device, info.why)]);
        table.add_row(["pages", &info.pages]);
        table.add_row(["calls outstanding", &args.outstanding.to_string()]);
        output::print(table)?;
    }
    check_errors(report.errors, "operations", report.first_error.as_ref())?;
    interrupt::check()?;
    match tally.operations {
        0 => Err(Failure::new("no operation was answered")),
        _ => Ok(()),
    }
}
