//! `dunlin ping`: checks whether a server answers, over which device, and how fast.

use std::time::{Duration, Instant};

use dunlin::{Address, CallError, Client, HandlerId, FIGURES};
use serde::Serialize;

use super::perf::parse_seconds;
use super::{connect, Failure};
use crate::histogram::{Latencies, Percentiles};
use crate::{interrupt, output};

/// Check whether a server answers, and how fast
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Makes calls that every server answers, whatever its handlers are, one after the other. Between calls the server may \
fall asleep; its wake-up is then part of the latency. `dunlin perf rpc` measures the round trip of a server that is \
awake. Exit code 1 if a call failed.\n\n\
Examples:\n  \
  dunlin ping 127.0.0.1:7400\n  \
  dunlin ping db1:7400 --count 1 --connect-timeout 2 --deadline 2    for scripts\n  \
  dunlin ping db1:7400 --count 1000 --interval 0.001 --json | jq .latency_ns")]
pub struct Args {
    /// Address of the server
    address: Address,
    /// Number of calls
    #[arg(long, short = 'c', default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: u64,
    /// Seconds between two calls
    #[arg(
        long,
        short = 'i',
        default_value = "1",
        value_parser = parse_seconds,
        value_name = "SECONDS",
        allow_negative_numbers = true
    )]
    interval: Duration,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: connect::Options,
}

/// A built-in handler of servers that returns the time where servers synchronize their clocks. Elsewhere it does not
/// exist, which is an answer, too.
const TIME: HandlerId = FIGURES - 2;

/// The JSON object.
#[derive(Debug, Serialize)]
struct Found {
    address: String,
    device: String,
    preset: String,
    /// The time until the client was connected.
    connect_ns: u64,
    calls: u64,
    failed: u64,
    latency_ns: Percentiles,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<(), Failure> {
    let began = Instant::now();
    let client = args.connect.connect(&args.address)?;
    let connect_ns = began.elapsed().as_nanos() as u64;
    interrupt::listen()?;
    let info = client.info();
    if !args.json {
        output::print(format_args!(
            "connected to {} in {}: {} ({}), preset {}",
            args.address,
            output::nanoseconds(connect_ns as f64),
            info.device,
            info.why,
            info.preset
        ))?;
    }
    let mut latencies = Latencies::new();
    let (mut calls, mut failed) = (0, 0);
    while calls < args.count && !interrupt::came() {
        if calls > 0 && !pause(args.interval) {
            break;
        }
        calls += 1;
        let line = match call(&client) {
            Ok(took_ns) => {
                latencies.record(took_ns);
                format!("{calls}: {}", output::nanoseconds(took_ns as f64))
            }
            Err(error) => {
                failed += 1;
                format!("{calls}: {error}")
            }
        };
        if !args.json {
            output::print(line)?;
        }
    }
    let found = Found {
        address: args.address.to_string(),
        device: info.device,
        preset: info.preset.to_string(),
        connect_ns,
        calls,
        failed,
        latency_ns: latencies.percentiles(),
    };
    print(&found, args.json)?;
    if failed > 0 {
        return Err(Failure::new(format!("{failed} of {calls} calls failed")));
    }
    interrupt::check()
}

/// Makes one call and returns its duration.
fn call(client: &Client) -> Result<u64, CallError> {
    let began = Instant::now();
    match client.call(TIME, &[]) {
        Ok(_) | Err(CallError::UnknownHandler(_)) => Ok(began.elapsed().as_nanos() as u64),
        Err(error) => Err(error),
    }
}

/// Waits for this time; returns `false` on Ctrl-C.
fn pause(time: Duration) -> bool {
    const LOOK: Duration = Duration::from_millis(50);
    let end = Instant::now() + time;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || interrupt::came() {
            return !interrupt::came();
        }
        std::thread::sleep(left.min(LOOK));
    }
}

fn print(found: &Found, json: bool) -> Result<(), Failure> {
    if json {
        return output::print_json(found);
    }
    let Percentiles { p50, p99, max, .. } = found.latency_ns;
    let shown = |ns: u64| output::nanoseconds(ns as f64);
    output::print(format_args!(
        "{} calls, {} failed; p50 {}, p99 {}, max {}",
        found.calls,
        found.failed,
        shown(p50),
        shown(p99),
        shown(max)
    ))
}
