//! `dunlin demo`: two processes, a key-value store and YCSB B, on any machine.

use std::time::Duration;

use dunlin::{CallError, Pipeline};

use super::perf::parse_seconds;
use super::{connect, Failure};
use crate::affinity;
use crate::clock::now_ns;
use crate::interrupt;
use crate::output;
use crate::report::{Report, Setting, Tally};
use crate::services::child::ServerProcess;
use crate::services::kv::{put_request, GET, PUT};
use crate::workload::{Choice, Mix, Zipf};

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
/// Share of reads in YCSB B.
const READ_SHARE: f64 = 0.95;
/// Skew of YCSB's Zipfian keys.
const SKEW: f64 = 0.99;
/// One call in so many is timed.
const SAMPLE: u64 = 8;

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
    let server = ServerProcess::start("kv", &arguments)?;
    let client = args.connect.connect(server.address())?;
    let info = client.info().clone();
    let mut pipeline = client.pipeline().map_err(Failure::new)?;

    let bar = output::progress_bar();
    bar.set_message("loading");
    let mut load = Load {
        tally: Tally::default(),
        loading: true,
    };
    for entry in 0..args.entries {
        let request = put_request(&key(entry), &[b'v'; VALUE_BYTES]);
        load.send(&mut pipeline, PUT, &request, args.outstanding as usize)?;
        if entry % 1024 == 0 {
            bar.set_position(u64::from(entry) * 1000 / u64::from(args.entries));
        }
    }
    load.finish(&mut pipeline)?;
    let load_errors = load.tally.errors;

    bar.set_message("YCSB B");
    let mut run = Load {
        tally: Tally::default(),
        loading: false,
    };
    let mut mix = Mix::new(READ_SHARE, Zipf::new(args.entries, SKEW), 42);
    let update_value = [b'u'; VALUE_BYTES];
    let start = now_ns();
    let limit = args.seconds.as_nanos() as u64;
    let mut elapsed = 0;
    interrupt::listen()?;
    while elapsed < limit && !interrupt::came() {
        for _ in 0..4096 {
            match mix.next() {
                Choice::Read(entry) => {
                    run.send(&mut pipeline, GET, &key(entry), args.outstanding as usize)?;
                }
                Choice::Update(entry) => {
                    let request = put_request(&key(entry), &update_value);
                    run.send(&mut pipeline, PUT, &request, args.outstanding as usize)?;
                }
            }
        }
        elapsed = now_ns() - start;
        bar.set_position(elapsed.min(limit) * 1000 / limit);
    }
    run.finish(&mut pipeline)?;
    run.tally.elapsed = Duration::from_nanos(now_ns() - start);
    run.tally.errors += load_errors;
    bar.finish_and_clear();
    drop(pipeline);
    client.close();
    server.stop()?;

    let setting = Setting {
        device: info.device.clone(),
        preset: info.preset.to_string(),
        threads: 1,
        outstanding: args.outstanding as usize,
        size: VALUE_BYTES,
    };
    let report = Report::new(setting, &run.tally);
    if args.json {
        output::print_json(&report)?;
    } else {
        let latency = report.latency_ns;
        let mut table = output::table(&["YCSB B, two processes", ""]);
        table.add_row(["operations", &run.tally.operations.to_string()]);
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
    if report.errors > 0 || run.tally.operations == 0 {
        return Err(Failure::new(format!("{} operations failed", report.errors)));
    }
    interrupt::check()
}

/// YCSB's keys: `user` and a number, of one length.
fn key(entry: u32) -> [u8; 14] {
    let mut key = *b"user0000000000";
    let mut rest = entry;
    for digit in key.iter_mut().rev() {
        if rest == 0 {
            break;
        }
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

struct Load {
    tally: Tally,
    /// While loading, keys are new.
    loading: bool,
}

impl Load {
    #[inline]
    fn send(
        &mut self,
        pipeline: &mut Pipeline,
        handler: u16,
        request: &[u8],
        outstanding: usize,
    ) -> Result<(), Failure> {
        // Of the tag only its time matters; a PUT is told from a GET by the length of its answer.
        let sampled = self.tally.operations % SAMPLE == 0;
        let tag = if sampled { now_ns() } else { u64::MAX };
        while pipeline.outstanding() >= outstanding
            || !pipeline
                .submit(handler, request, tag)
                .map_err(Failure::new)?
        {
            pipeline
                .wait(|tag, answer| self.take(tag, answer))
                .map_err(Failure::new)?;
        }
        Ok(())
    }

    fn finish(&mut self, pipeline: &mut Pipeline) -> Result<(), Failure> {
        while pipeline.outstanding() > 0 {
            pipeline
                .wait(|tag, answer| self.take(tag, answer))
                .map_err(Failure::new)?;
        }
        Ok(())
    }

    #[inline]
    fn take(&mut self, tag: u64, answer: Result<&[u8], CallError>) {
        if tag != u64::MAX {
            self.tally.latencies.record(now_ns() - tag);
        }
        match answer {
            // A value that was found, a value that was replaced, or a new one.
            Ok([1, value @ ..]) if value.is_empty() || value.len() == VALUE_BYTES => {}
            Ok([0]) if self.loading => {}
            _ => {
                self.tally.errors += 1;
                return;
            }
        }
        self.tally.operations += 1;
        self.tally.bytes += VALUE_BYTES as u64;
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn keys_are_distinct_and_of_one_length() {
        assert_eq!(&super::key(0), b"user0000000000");
        assert_eq!(&super::key(42), b"user0000000042");
        assert_eq!(&super::key(4_294_967_295), b"user4294967295");
    }
}
