//! `dunlin perf ring`: measures RB² and its competitors.

use std::path::PathBuf;
use std::time::Duration;

use dunlin_ring::RingConfig;
use dunlin_verbs::Device;

use super::Against;
use crate::commands::{connect, Failure};
use crate::input::parse_bytes;
use crate::interrupt;
use crate::output;
use crate::ring::compare::compare;
use crate::ring::consume::STAMP_BYTES;
use crate::ring::report::{Comparison, RingReport};
use crate::ring::sweep::{sweep, ALL};
use crate::ring::{Choice, Lengths, Plan, Test, Without};
use crate::verbs::devices::{on_device_with, OnDevice, Pages};

/// Measure a ring between two processes: RB² and its competitors
#[derive(Debug, clap::Args)]
#[command(after_help = "\
One producer and one consumer, each on its own core; --pairs has several. Several designs are measured in turns \
within the same seconds, and the rates of the others are given relative to the first. Latency is from writing a \
message to reading it, for one message in 1024, under the load of the measurement; with --test ping-pong it is the \
round trip of one message at a time, without batching.\n\n\
Examples:\n  \
  dunlin perf ring                                      RB², 64-byte messages\n  \
  dunlin perf ring --design rb2,farm,socksdirect,l5     the paper's comparison\n  \
  dunlin perf ring --design rb2,raw --size 1048576      zero copy, compared with raw WRITEs\n  \
  dunlin perf ring --test ping-pong --design rb2,farm,raw     round trips\n  \
  dunlin perf ring --pairs 4 --design rb2,farm          four producers, four consumers\n  \
  dunlin perf ring --verify --size 8192                 every byte compared\n  \
  dunlin perf ring --without batching --json | jq .rate_per_s\n  \
  dunlin perf ring --sweep --out figures                64 B to 1 MiB as CSV and SVG")]
pub struct Args {
    /// Ring designs to measure; the others are compared with the first
    #[arg(long, value_enum, value_delimiter = ',')]
    design: Vec<Choice>,
    /// Bytes of a message, at least 16, such as 4K or 1MiB
    #[arg(long, default_value_t = 64, value_parser = parse_bytes(STAMP_BYTES as u32..=1 << 26))]
    size: u32,
    /// Slots of each ring, a power of two; designs without slots have as many bytes [default: 128, or fewer if these
    /// would exceed 32 MiB]
    #[arg(long)]
    slots: Option<usize>,
    /// Communication pattern
    #[arg(long, value_enum, default_value = "one-way")]
    test: Test,
    /// Producers, each with its own ring and consumer
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pairs: u16,
    /// Optimisations of RB² to switch off
    #[arg(long, value_enum, value_delimiter = ',')]
    without: Vec<Without>,
    /// How the length of messages is encoded
    #[arg(long, value_enum, default_value = "fixed")]
    lengths: Lengths,
    /// Seconds to measure each design
    #[arg(long, default_value = "2", value_parser = super::parse_seconds, allow_negative_numbers = true)]
    seconds: Duration,
    /// Device of both sides (see `dunlin devices`)
    #[arg(long, default_value = "shm", value_parser = connect::parse_own_device)]
    device: String,
    /// Measure all sizes from 64 B to 1 MiB, a tenth of --seconds for each
    #[arg(long, requires = "out", conflicts_with = "against")]
    sweep: bool,
    /// Folder for the figures of the sweep
    #[arg(long, value_name = "DIR", requires = "sweep")]
    out: Option<PathBuf>,
    /// Compare one pair, one way, with the machine's raw limits, in turns, and print the ratios
    #[arg(long, value_enum, conflicts_with_all = ["test", "pairs"])]
    against: Option<Against>,
    /// Fill messages with a pattern derived from their numbers and compare every byte at the reader; slower. Not for
    /// raw WRITEs, which have no reader
    #[arg(long, conflicts_with = "against")]
    verify: bool,
    /// Print one JSON object
    #[arg(long, conflicts_with = "sweep")]
    json: bool,
}

/// Measures and prints.
pub fn run(args: &Args) -> Result<(), Failure> {
    let named = match (&args.design[..], args.sweep) {
        ([], true) => &ALL[..],
        ([], false) => &ALL[..1],
        (named, _) => named,
    };
    if args.verify && named.contains(&Choice::Raw) {
        let words = "--verify cannot be used with raw WRITEs, which have no reader";
        return Err(Failure::usage(words).help("omit --verify, or omit raw from the designs"));
    }
    let plans: Vec<Plan> = named
        .iter()
        .map(|&choice| Plan {
            device: args.device.clone(),
            choice,
            without: args.without.clone(),
            size: args.size as usize,
            slots: args
                .slots
                .unwrap_or(RingConfig::usual_slots(args.size as usize)),
            lengths: args.lengths,
            test: args.test,
            pairs: args.pairs.into(),
            verify: args.verify,
        })
        .collect();
    let pages = Pages::of(&plans[0]);
    interrupt::listen()?;
    on_device_with(&args.device, pages, Measuring { args, plans })
}

struct Measuring<'a> {
    args: &'a Args,
    plans: Vec<Plan>,
}

impl OnDevice for Measuring<'_> {
    type Output = ();

    fn run<D: Device>(self, device: D) -> Result<(), Failure> {
        let Self { args, plans } = self;
        let bar = output::progress_bar();
        bar.set_message("perf ring");
        let progress = |done: f64| bar.set_position((done * 1000.0) as u64);
        if let (true, Some(out)) = (args.sweep, &args.out) {
            sweep(
                &device,
                &plans,
                args.slots,
                args.seconds / 10,
                out,
                progress,
            )?;
            bar.finish_and_clear();
            let (csv, svg) = (out.join("ring.csv"), out.join("ring.svg"));
            output::print(format_args!("{}\n{}", csv.display(), svg.display()))?;
            return interrupt::check();
        }
        let duration = args.seconds * plans.len() as u32;
        let against = args.against.is_some();
        let found = compare(&device, &plans, duration, against, progress)?;
        bar.finish_and_clear();
        print(&found, args.json)?;
        let errors: u64 = found.designs.iter().map(|one| one.report.errors).sum();
        if errors > 0 {
            return Err(Failure::new(format!(
                "{errors} messages were lost or wrong"
            )));
        }
        interrupt::check()
    }
}

/// Prints one report for a single design, a list for several.
fn print(found: &Comparison, json: bool) -> Result<(), Failure> {
    match (&found.designs[..], json) {
        ([one], true) => output::print_json(one)?,
        (_, true) => output::print_json(found)?,
        ([one], false) => {
            output::print_report(&one.report, false)?;
            if one.verified {
                output::print("every byte was compared by the reader")?;
            }
            for note in &one.notes {
                output::print(note)?;
            }
        }
        (many, false) => output::print(table(many))?,
    }
    Ok(())
}

fn table(designs: &[RingReport]) -> comfy_table::Table {
    let against = designs.iter().any(|one| one.report.ratio.is_some());
    let mut header = vec![
        "design",
        "rate",
        "bandwidth",
        "over first",
        "latency p50",
        "p99",
        "p99.9",
    ];
    if against {
        header.push("of the limit");
    }
    let mut table = output::table(&header);
    for one in designs {
        let size = one.report.setting.size as f64;
        let mut row = vec![
            one.design.to_string(),
            output::rate(one.median_rate_per_s),
            output::bandwidth(one.median_rate_per_s * size),
            one.over_first.map_or("1".into(), |r| format!("{r:.3}")),
            output::nanoseconds(one.report.latency_ns.p50 as f64),
            output::nanoseconds(one.report.latency_ns.p99 as f64),
            output::tail(one.report.latency_ns.p999),
        ];
        if let Some(ratio) = one.report.ratio {
            row.push(format!("{:.2}", ratio.rate));
        }
        table.add_row(row);
    }
    table
}
