//! `dunlin demo`: two processes, a key-value store and YCSB B, on any machine.

use std::time::Duration;

use super::perf::parse_seconds;
use super::{connect, Failure};
use crate::affinity;
use crate::interrupt;
use crate::kv_load::{Load, Ours};
use crate::output;
use crate::report::{Report, Setting, Tally};
use crate::services::child::ServerProcess;
use crate::workload::{Keys, Mix, Workload, Zipf};

/// Two processes, a key-value store and a load: see it work
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A second process serves a key-value store; this one loads it and runs YCSB B: 95 % reads and 5 %\n\
updates of 100-byte values, keys by Zipf's law. Requests and responses are one-sided WRITEs into each\n\
other's memory: no system call, no socket, no copy through the kernel. Nothing is left running.")]
pub struct Args {
    /// How long to run the load
    #[arg(long, default_value = "5", value_parser = parse_seconds, allow_negative_numbers = true)]
    seconds: Duration,
    /// Entries in the store
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    entries: u32,
    /// Calls outstanding
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=512))]
    outstanding: u32,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: connect::Options,
}

/// Bytes of a value, as in YCSB's single-field records.
const VALUE_BYTES: usize = 100;
/// Skew of YCSB's Zipfian keys.
const SKEW: f64 = 0.99;
/// How often the bar moves.
const SLICE: Duration = Duration::from_millis(250);

/// Runs it.
pub fn run(args: &Args) -> Result<(), Failure> {
    let mut arguments = Vec::new();
    if let Some((client, server)) = affinity::client_and_server() {
        arguments.extend(["--pin".to_string(), server.to_string()]);
        affinity::pin(client);
    }
    if let Some(device) = args.connect.device() {
        arguments.extend(["--device".to_string(), device.to_string()]);
    }
    // Twice what the entries take, and some for a start.
    let memory = args.entries as usize * 400 + (32 << 20);
    arguments.extend(["--memory".to_string(), memory.to_string()]);
    arguments.extend(["--keys".to_string(), args.entries.to_string()]);
    let server = ServerProcess::start("kv", &arguments)?;
    let client = args.connect.connect(server.address())?;
    let info = client.info();
    let outstanding = args.outstanding as usize;
    let pipeline = client.pipeline_of(outstanding).map_err(Failure::new)?;
    let ours = Ours::new(pipeline, false);
    let mut load = Load::new(ours, outstanding, VALUE_BYTES, false);

    interrupt::listen()?;
    let bar = output::progress_bar();
    bar.set_message("loading");
    let show = |done: f64| bar.set_position((done.min(1.0) * 1000.0) as u64);
    load.fill(args.entries, show)?;
    bar.set_message("YCSB B");
    let keys = Keys::Zipf(Zipf::new(args.entries, SKEW));
    let mut mix = Mix::new(Workload::YcsbB, &keys, 42);
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
    };
    let report = Report::new(setting, &tally);
    if args.json {
        output::print_json(&report)?;
    } else {
        let latency = report.latency_ns;
        let mut table = output::table(&["YCSB B, two processes", ""]);
        table.add_row(["operations", &tally.operations.to_string()]);
        table.add_row(["rate", &output::rate(report.rate_per_s)]);
        table.add_row(["latency p50", &output::nanoseconds(latency.p50 as f64)]);
        table.add_row(["latency p99", &output::nanoseconds(latency.p99 as f64)]);
        table.add_row(["latency p99.9", &output::nanoseconds(latency.p999 as f64)]);
        table.add_row(["errors", &report.errors.to_string()]);
        table.add_row(["device", &format!("{} ({})", info.device, info.why)]);
        table.add_row(["pages", &info.pages]);
        table.add_row(["calls outstanding", &args.outstanding.to_string()]);
        output::print(table)?;
    }
    if report.errors > 0 || tally.operations == 0 {
        return Err(Failure::new(format!("{} operations failed", report.errors)));
    }
    interrupt::check()
}
