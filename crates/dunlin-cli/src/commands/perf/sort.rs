//! `dunlin perf sort`: measures how fast several processes sort a file, compared with one thread.

use std::path::PathBuf;

use dunlin_shuffle::{sort_alone, Generator, RECORD_BYTES};
use serde::Serialize;

use crate::commands::sort::{self, How};
use crate::commands::Failure;
use crate::{interrupt, output};

/// Measure how fast several processes sort a file, compared with one thread
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each turn sorts the same file with worker processes, including their start and all checks, and then with one thread \
that reads the file into memory, sorts an index of its keys with `sort_unstable` and writes the records in order. The \
ratio is the median of the turns' ratios.\n\n\
Examples:\n  \
  dunlin perf sort                                               100 MB, four workers\n  \
  dunlin perf sort --records 10000000 --memory 2GiB --folder /dev/shm\n  \
  dunlin perf sort --device roce --workers 2")]
pub struct Args {
    /// Number of records, of 100 bytes each
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..))]
    records: u32,
    /// Turns, after one that does not count
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    turns: u32,
    /// Folder for input and output [default: the system's folder for temporary files]
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    #[command(flatten)]
    how: How,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Medians of the turns, with their range.
#[derive(Clone, Copy, Debug, Serialize)]
struct Spread {
    median: f64,
    range: [f64; 2],
}

impl Spread {
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let last = values.len() - 1;
        Self {
            median: values[last / 2],
            range: [values[0], values[last]],
        }
    }
}

/// Seconds of one turn.
#[derive(Clone, Copy, Debug)]
struct Turn {
    workers: f64,
    starting: f64,
    shuffling: f64,
    merging: f64,
    alone: f64,
}

#[derive(Debug, Serialize)]
struct SortReport {
    records: u32,
    workers: u16,
    memory: u64,
    device: String,
    preset: String,
    bytes_per_s: Spread,
    starting_s: Spread,
    shuffling_s: Spread,
    merging_s: Spread,
    alone_bytes_per_s: Spread,
    /// Speedup over one thread.
    ratio: Spread,
    turns: usize,
    spilled_runs: u64,
}

/// Measures and prints.
pub fn run(args: &Args) -> Result<(), Failure> {
    interrupt::listen()?;
    let parent = args.folder.clone().unwrap_or_else(std::env::temp_dir);
    let folder = parent.join(format!("dunlin-perf-sort-{}", std::process::id()));
    std::fs::create_dir(&folder)
        .map_err(|error| Failure::new(format!("{}: {error}", folder.display())))?;
    let measured = measure(args, &folder);
    let removed = std::fs::remove_dir_all(&folder);
    let report = measured?;
    removed?;
    print(args, &report)?;
    interrupt::check()
}

fn measure(args: &Args, folder: &std::path::Path) -> Result<SortReport, Failure> {
    let input = folder.join("input");
    let (output, alone) = (folder.join("output"), folder.join("alone"));
    sort::make(&input, args.records.into(), Generator::new(1))?;
    let options = args.how.options()?;
    let mut turns = Vec::new();
    let mut spilled_runs = 0;
    for number in 0..=args.turns {
        if interrupt::came() && !turns.is_empty() {
            break;
        }
        let sorted = match sort::sort_with_bar((&input, &output), &options) {
            Err(_) if interrupt::came() && !turns.is_empty() => break,
            sorted => sorted?,
        };
        let took = sort_alone(&input, &alone).map_err(Failure::new)?;
        spilled_runs = sorted.spilled_runs;
        if number > 0 {
            turns.push(Turn {
                workers: sorted.took().as_secs_f64(),
                starting: sorted.starting.as_secs_f64(),
                shuffling: sorted.shuffling.as_secs_f64(),
                merging: sorted.merging.as_secs_f64(),
                alone: took.as_secs_f64(),
            });
        }
        // Each turn creates its files anew, because overwriting existing pages has a different cost.
        std::fs::remove_file(&output)?;
        std::fs::remove_file(&alone)?;
    }
    let bytes = f64::from(args.records) * RECORD_BYTES as f64;
    let spread = |figure: &dyn Fn(&Turn) -> f64| Spread::of(turns.iter().map(figure));
    Ok(SortReport {
        records: args.records,
        workers: args.how.workers,
        memory: args.how.memory,
        device: args.how.device.clone(),
        preset: args.how.preset.to_string(),
        bytes_per_s: spread(&|turn| bytes / turn.workers),
        starting_s: spread(&|turn| turn.starting),
        shuffling_s: spread(&|turn| turn.shuffling),
        merging_s: spread(&|turn| turn.merging),
        alone_bytes_per_s: spread(&|turn| bytes / turn.alone),
        ratio: spread(&|turn| turn.alone / turn.workers),
        turns: turns.len(),
        spilled_runs,
    })
}

fn print(args: &Args, report: &SortReport) -> Result<(), Failure> {
    if args.json {
        return output::print_json(report);
    }
    let mut table = output::table(&["", "median", "least", "most"]);
    let mut row = |name: &str, spread: Spread, words: &dyn Fn(f64) -> String| {
        let [least, most] = spread.range;
        table.add_row([
            name.to_owned(),
            words(spread.median),
            words(least),
            words(most),
        ]);
    };
    let seconds = |seconds: f64| output::nanoseconds(seconds * 1e9);
    row(
        &format!("{} workers over {}", report.workers, report.device),
        report.bytes_per_s,
        &output::bandwidth,
    );
    row("  starting", report.starting_s, &seconds);
    row("  reading and sending", report.shuffling_s, &seconds);
    row("  merging and writing", report.merging_s, &seconds);
    row("one thread", report.alone_bytes_per_s, &output::bandwidth);
    row("ratio", report.ratio, &|ratio| format!("{ratio:.2}"));
    output::print(table)
}
