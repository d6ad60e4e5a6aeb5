//! `dunlin perf verbs`: measures work requests between two processes, on the verbs layer without RPC.

use std::time::Duration;

use dunlin_verbs::Device;

use super::Against;
use crate::affinity;
use crate::against;
use crate::commands::{connect, Failure};
use crate::input::parse_bytes;
use crate::interrupt;
use crate::output;
use crate::peer::Peer;
use crate::report::{Report, Setting, Tally};
use crate::verbs::devices::{on_device, OnDevice};
use crate::verbs::endpoint::Endpoint;
use crate::verbs::serve::{Opening, Passive};
use crate::verbs::{measure, Plan, Service, Test};

/// Measure work requests between two processes, as perftest does
#[derive(Debug, clap::Args)]
#[command(after_help = "\
With one operation outstanding, `write` and `send` are answered by the other process, and latency is the whole round \
trip (perftest prints half of it); `read` and `atomic` are measured from post to completion. With more outstanding \
the rate is measured: lists of up to 16 requests with one doorbell and one completion, latency from the doorbell to \
that completion (`send`: to the receiver's acknowledgement).\n\n\
Examples:\n  \
  dunlin perf verbs                                            round trip of 64-byte WRITEs\n  \
  dunlin perf verbs --test read --size 4096 --outstanding 16\n  \
  dunlin perf verbs --test send --transport ud --json | jq .latency_ns")]
pub struct Args {
    /// Operation to measure
    #[arg(long, value_enum, default_value = "write")]
    test: Test,
    /// Transport service
    #[arg(long, value_enum, default_value = "rc")]
    transport: Service,
    /// Bytes of an operation, such as 4K or 1MiB; atomics always have 8
    #[arg(long, default_value_t = 64, value_parser = parse_bytes(1..=u32::MAX))]
    size: u32,
    /// Operations outstanding
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    outstanding: u32,
    /// Seconds to measure
    #[arg(long, default_value = "3", value_parser = super::parse_seconds, allow_negative_numbers = true)]
    seconds: Duration,
    /// Device of both sides (see `dunlin devices`)
    #[arg(long, default_value = "shm", value_parser = connect::parse_device)]
    device: String,
    /// Compare with the machine's raw limits, in turns, and print the ratios
    #[arg(long, value_enum)]
    against: Option<Against>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Measures and prints.
pub fn run(args: &Args) -> Result<(), Failure> {
    interrupt::listen()?;
    let report = on_device(&args.device, Measuring { args })?;
    output::print_report(&report, args.json)?;
    if report.errors > 0 {
        let words = format!("{} operations were lost or wrong", report.errors);
        return Err(Failure::new(words));
    }
    interrupt::check()
}

struct Measuring<'a> {
    args: &'a Args,
}

impl OnDevice for Measuring<'_> {
    type Output = Report;

    fn run<D: Device>(self, device: D) -> Result<Report, Failure> {
        let args = self.args;
        let plan = Plan::new(
            args.test,
            args.transport,
            args.size as usize,
            args.outstanding as usize,
        );
        plan.check(device.attributes())?;
        let cores = affinity::client_and_server();
        let setting = Setting {
            device: args.device.clone(),
            preset: "verbs".into(),
            threads: 1,
            outstanding: plan.outstanding,
            size: plan.size,
            response_size: None,
        };
        if let Some((first, _)) = cores {
            affinity::pin(first);
        }
        let mut peer = Peer::start()?;
        let theirs = peer.open(Opening {
            device: args.device.clone(),
            plan,
            core: cores.map(|(_, second)| second),
        })?;
        let mut endpoint = Endpoint::new(device, plan)?;
        peer.connect(endpoint.offer())?;
        endpoint.connect(&theirs)?;
        let bar = output::progress_bar();
        bar.set_message("perf verbs");
        let progress = |done: f64| bar.set_position((done * 1000.0) as u64);
        let mut slice = |length: Duration| measure_slice(&mut endpoint, &mut peer, length);
        let report = match args.against {
            Some(Against::Limits) => {
                against::interleave::<Failure>(&setting, args.seconds, &mut slice, progress)?
                    .ok_or_else(Failure::interrupted)?
                    .report(setting)
            }
            None => {
                let mut tally = Tally::default();
                while tally.elapsed < args.seconds && !interrupt::came() {
                    let left = args.seconds - tally.elapsed;
                    tally.merge_after(&slice(left.min(Duration::from_millis(250)))?);
                    progress(tally.elapsed.as_secs_f64() / args.seconds.as_secs_f64());
                }
                Report::new(setting, &tally)
            }
        };
        bar.finish_and_clear();
        drop(endpoint);
        peer.stop()?;
        Ok(report)
    }
}

/// Measures one slice; the other process polls only during it.
fn measure_slice<D: Device>(
    endpoint: &mut Endpoint<D>,
    peer: &mut Peer<Passive>,
    length: Duration,
) -> Result<Tally, Failure> {
    peer.begin()?;
    let tally = measure(endpoint, length)?;
    peer.end()?;
    Ok(tally)
}
