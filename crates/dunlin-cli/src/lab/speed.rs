//! `dunlin lab speed`: measures how fast this machine simulates, and what larger clusters cost.

use dunlin_lab::speed::{calls, gain_of_two_cores, gain_of_two_runs, machines, verbs, Scale};
use serde::Serialize;

use crate::commands::Failure;
use crate::interrupt;
use crate::output::{bytes, print, print_json, progress_bar};

/// Measure how fast this machine simulates, and what larger clusters cost
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Two runs (points of a figure, seeds) at once are nearly twice as fast on two cores; one run divided among two cores \
gains less, and gives the same result. With --machines, each machine has a thread that sends requests to 15 others \
and one that answers, by FaSST's datagrams, on one core and on two. Memory is the peak of the process: ask for a \
single size to see what it takes.\n\n\
Examples:\n  \
  dunlin lab speed\n  \
  dunlin lab speed --machines 24,96,192 --json | jq .clusters")]
pub struct Args {
    /// Also simulate clusters of this many machines, smaller ones first
    #[arg(long, value_delimiter = ',', value_name = "COUNTS", value_parser = clap::value_parser!(u16).range(2..=512))]
    machines: Vec<u16>,
    /// Run a tenth of the virtual time of the two loads, as a quick test
    #[arg(long)]
    quick: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Load {
    name: &'static str,
    events: u64,
    seconds: f64,
    events_per_s: f64,
    digest: u64,
    /// Speedup of two runs at once over one after the other.
    gain_of_two_runs: f64,
    /// Speedup of one run on two cores over the same on one.
    gain_of_two_cores: f64,
}

#[derive(Debug, Serialize)]
struct Found {
    loads: Vec<Load>,
    clusters: Vec<Scale>,
}

/// Measures and prints.
pub fn run(args: &Args) -> Result<(), Failure> {
    let mut counts = args.machines.clone();
    counts.sort_unstable();
    let bar = progress_bar();
    bar.set_length(2 + 2 * counts.len() as u64);
    let mut found = Found {
        loads: Vec::new(),
        clusters: Vec::new(),
    };
    let part = if args.quick { 0.1 } else { 1.0 };
    for (name, run) in [
        ("verbs", verbs as dunlin_lab::speed::Load),
        ("calls", calls),
    ] {
        let (events, time, digest) = run(1, part);
        let seconds = time.as_secs_f64();
        found.loads.push(Load {
            name,
            events,
            seconds,
            events_per_s: events as f64 / seconds,
            digest,
            gain_of_two_runs: gain_of_two_runs(run, part),
            gain_of_two_cores: gain_of_two_cores(run, part),
        });
        bar.inc(1);
        interrupt::check()?;
    }
    for count in counts {
        for cores in [1, 2] {
            found.clusters.push(machines(count.into(), cores));
            bar.inc(1);
            interrupt::check()?;
        }
    }
    bar.finish_and_clear();
    if args.json {
        return print_json(&found);
    }
    for load in &found.loads {
        print(format_args!(
            "{}: {} events in {:.2} s: {:.2} M events/s, two at once {:.2} times as many, one on two cores {:.2}",
            load.name,
            load.events,
            load.seconds,
            load.events_per_s / 1e6,
            load.gain_of_two_runs,
            load.gain_of_two_cores
        ))?;
    }
    for cluster in &found.clusters {
        print(format_args!(
            "{} machines, cores {}: {} events, {} calls in {:.2} s, {} at most, digest {:016x}",
            cluster.machines,
            cluster.cores,
            cluster.events,
            cluster.calls,
            cluster.seconds,
            bytes(cluster.resident_bytes as f64),
            cluster.digest
        ))?;
    }
    Ok(())
}
