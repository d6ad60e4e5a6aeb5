//! `dunlin sort`: sorts files of records with several processes.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::Subcommand;
use dunlin::Preset;
use dunlin_shuffle::{
    check_file, FileError, Generator, Phase, SortError, SortOptions, Sorted, Summary, RECORD_BYTES,
    WORKERS_MAX,
};
use indicatif::ProgressBar;
use serde::Serialize;

use super::connect::parse_device;
use super::perf::parse_seconds;
use super::Failure;
use crate::input::parse_long_bytes;
use crate::{interrupt, output};

/// Sort files of records with several processes
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Records are those of the sort benchmark: 100 bytes, of which the first ten are the key. Each worker process reads a \
part of the input, puts the records into the memory of the workers that they belong to, sorts what it receives and \
writes it.\n\n\
Examples:\n  \
  dunlin sort make in --records 10000000        1 GB, the same for the same --seed\n  \
  dunlin sort run in out --workers 4 --memory 2GiB\n  \
  dunlin sort run in out --memory 64MiB         what does not fit is spilled to temporary files\n  \
  dunlin sort check out                         order, number, checksum and duplicate keys\n\n\
`dunlin perf sort` measures it against one thread that does the same.")]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

/// What to do.
#[allow(missing_docs)]
#[derive(Debug, Subcommand)]
pub enum Action {
    /// Generate a file of records from a seed, in gensort's layout
    Make {
        /// File to write; an existing one is replaced
        file: PathBuf,
        /// Number of records
        #[arg(long, value_name = "NUMBER")]
        records: u64,
        /// Seed; the same seed generates the same records
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Maximum number of different keys [default: any]
        #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
        keys: Option<u64>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Sort a file into another one, or into itself
    Run {
        /// File to sort
        input: PathBuf,
        /// File to write, which is replaced only when the sort is complete
        output: PathBuf,
        #[command(flatten)]
        how: How,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Check a file as valsort does; exit code 1 if it is not in order
    Check {
        /// File to check
        file: PathBuf,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// What `run` starts
    #[command(hide = true)]
    Worker,
}

/// Options of a sort.
#[derive(Debug, clap::Args)]
pub struct How {
    /// Worker processes
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=WORKERS_MAX as i64))]
    pub workers: u16,
    /// Memory for records, of all workers together; rings and programs use more
    #[arg(long, default_value = "1GiB", value_name = "BYTES", value_parser = parse_long_bytes(1..=1 << 44))]
    pub memory: u64,
    /// Folder for what does not fit into memory [default: folder of the output]
    #[arg(long, value_name = "FOLDER")]
    pub spill: Option<PathBuf>,
    /// Device over which workers reach each other (see `dunlin devices`)
    #[arg(long, default_value = "shm", value_parser = parse_device)]
    pub device: String,
    /// Preset used between workers, which must be one over RC
    #[arg(long, default_value = "auto", value_parser = parse_preset)]
    pub preset: Preset,
    /// Seconds that a worker may be silent before the sort is given up
    #[arg(long, default_value = "120", value_parser = parse_seconds, value_name = "SECONDS")]
    pub patience: Duration,
}

/// Parses a preset that workers can use between each other.
fn parse_preset(name: &str) -> Result<Preset, String> {
    match name.parse().map_err(|unknown| format!("{unknown}"))? {
        preset @ (Preset::Fasst | Preset::Erpc | Preset::Herd) => Err(format!(
            "{preset} uses datagrams, but a sort needs one-sided READs and WRITEs, over RC"
        )),
        preset => Ok(preset),
    }
}

impl How {
    /// The options; workers are processes of this program.
    pub fn options(&self) -> Result<SortOptions, Failure> {
        let program = std::env::current_exe()?;
        let mut options = SortOptions::new(move || {
            let mut worker = Command::new(&program);
            worker.args(["sort", "worker"]);
            worker
        });
        options.workers = self.workers.into();
        options.memory = self.memory;
        options.spill = self.spill.clone();
        options.device = self.device.clone();
        options.preset = self.preset;
        options.patience = self.patience;
        Ok(options)
    }
}

/// The summary of a file of records.
#[derive(Debug, Serialize)]
struct Records {
    records: u64,
    bytes: u64,
    /// The sum of the CRC-32 of each, modulo 2^64, in hexadecimal.
    checksum: String,
    duplicates: u64,
    unordered: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_unordered: Option<u64>,
}

impl Records {
    fn of(summary: &Summary) -> Self {
        Self {
            records: summary.records,
            bytes: summary.records * RECORD_BYTES as u64,
            checksum: format!("{:016x}", summary.checksum),
            duplicates: summary.duplicates,
            unordered: summary.unordered,
            first_unordered: summary.first_unordered,
        }
    }

    fn print(&self, json: bool) -> Result<(), Failure> {
        if json {
            return output::print_json(self);
        }
        output::print(format_args!(
            "{} records, checksum {}, {} duplicate keys",
            self.records, self.checksum, self.duplicates
        ))
    }
}

#[derive(Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    records: Records,
    workers: usize,
    memory: u64,
    device: String,
    preset: String,
    seconds: f64,
    starting_s: f64,
    shuffling_s: f64,
    merging_s: f64,
    bytes_per_s: f64,
    partitions: Vec<u64>,
    spilled_runs: u64,
    spilled_bytes: u64,
}

/// Converts the error of a sort to a failure of the command.
pub fn failed(error: SortError) -> Failure {
    match error {
        SortError::Interrupted => Failure::interrupted(),
        SortError::Workers(_) | SortError::Memory(_) => Failure::usage(error),
        SortError::File(error) => file_failed(error),
        SortError::Died { .. } => {
            Failure::new(error).help("no files of it are left: it can be started again")
        }
        SortError::Silent { .. } => Failure::new(error).help("increase --patience to wait longer"),
        error => Failure::new(error),
    }
}

fn file_failed(error: FileError) -> Failure {
    match error {
        FileError::Shape { .. } => {
            Failure::usage(error).help("`dunlin sort make` creates a file of records")
        }
        error => Failure::new(error),
    }
}

/// Sorts with a progress bar.
pub fn sort_with_bar(
    (input, output): (&Path, &Path),
    options: &SortOptions,
) -> Result<Sorted, Failure> {
    let bar = output::progress_bar();
    let mut phase = Phase::default();
    let sorted = dunlin_shuffle::sort(input, output, options, &mut |progress| {
        if progress.phase != phase {
            phase = progress.phase;
            bar.set_message(phase.to_string());
        }
        bar.set_position((progress.part() * 1000.0) as u64);
        !interrupt::came()
    });
    bar.finish_and_clear();
    sorted.map_err(failed)
}

/// Moves a progress bar to this part of the whole; `false` on Ctrl-C.
fn advance(bar: &ProgressBar, done: u64, all: u64) -> bool {
    bar.set_position(done.saturating_mul(1000) / all.max(1));
    !interrupt::came()
}

/// Generates a file of records.
pub fn make(file: &Path, records: u64, generator: Generator) -> Result<Summary, Failure> {
    let of = |error| Failure::new(format!("{}: {error}", file.display()));
    let bar = output::progress_bar();
    let mut to = BufWriter::with_capacity(1 << 20, File::create(file).map_err(of)?);
    let made = generator.write(0..records, &mut to, |done| advance(&bar, done, records));
    bar.finish_and_clear();
    let made = made
        .and_then(|made| to.flush().map(|()| made))
        .map_err(of)?;
    interrupt::check()?;
    Ok(made)
}

/// Runs the command.
pub fn run(args: &Args) -> Result<(), Failure> {
    match &args.action {
        Action::Make {
            file,
            records,
            seed,
            keys,
            json,
        } => {
            interrupt::listen()?;
            let generator = Generator::new(*seed);
            let generator = keys.map_or(generator, |keys| generator.distinct_keys(keys));
            let made = make(file, *records, generator)?;
            // They were made in no order, and nobody asked for one.
            let made = Summary {
                unordered: 0,
                first_unordered: None,
                ..made
            };
            Records::of(&made).print(*json)
        }
        Action::Run {
            input,
            output,
            how,
            json,
        } => run_sort((input, output), how, *json),
        Action::Check { file, json } => check(file, *json),
        Action::Worker => {
            // Ctrl-C is for the coordinator, with which this process ends.
            interrupt::ignore()?;
            dunlin_shuffle::work();
            Ok(())
        }
    }
}

fn check(file: &Path, json: bool) -> Result<(), Failure> {
    interrupt::listen()?;
    let bar = output::progress_bar();
    let all = std::fs::metadata(file).map_or(0, |metadata| metadata.len() / RECORD_BYTES as u64);
    let found = check_file(file, |done| advance(&bar, done, all));
    bar.finish_and_clear();
    let found = found.map_err(file_failed)?;
    interrupt::check()?;
    Records::of(&found).print(json)?;
    match found.first_unordered {
        None => Ok(()),
        Some(first) => Err(Failure::new(format!(
            "{}: {} records are less than the record before them, the first of them is record {first}",
            file.display(),
            found.unordered
        ))),
    }
}

fn run_sort(paths: (&Path, &Path), how: &How, json: bool) -> Result<(), Failure> {
    interrupt::listen()?;
    let sorted = sort_with_bar(paths, &how.options()?)?;
    let seconds = sorted.took().as_secs_f64();
    let records = Records::of(&sorted.output);
    let report = Report {
        workers: how.workers.into(),
        memory: how.memory,
        device: how.device.clone(),
        preset: how.preset.to_string(),
        seconds,
        starting_s: sorted.starting.as_secs_f64(),
        shuffling_s: sorted.shuffling.as_secs_f64(),
        merging_s: sorted.merging.as_secs_f64(),
        bytes_per_s: records.bytes as f64 / seconds.max(1e-9),
        partitions: sorted.partitions,
        spilled_runs: sorted.spilled_runs,
        spilled_bytes: sorted.spilled_bytes,
        records,
    };
    if json {
        return output::print_json(&report);
    }
    report.records.print(false)?;
    output::print(format_args!(
        "in {seconds:.2} s, {}: {:.2} s starting, {:.2} s reading and sending, {:.2} s merging and writing; \
         {} spilled in {} runs",
        output::bandwidth(report.bytes_per_s),
        report.starting_s,
        report.shuffling_s,
        report.merging_s,
        output::bytes(report.spilled_bytes as f64),
        report.spilled_runs,
    ))
}
