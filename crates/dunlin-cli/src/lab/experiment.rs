//! `dunlin lab run FILE.toml`: a user's experiment, or the file of a figure with other values.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use dunlin_lab::experiment::{
    Comparison, Experiment, Judged, LoadError, Outcome, Recorded, Runs, Settings,
};

use super::{capture, replaced, runner, trace};
use crate::commands::Failure;
use crate::interrupt;
use crate::output;

/// Options of experiments only.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Experiments (FILE.toml)")]
pub struct Args {
    /// Runs of each point, each with another seed: mean and 95 % confidence interval
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    repeat: Option<u64>,
    /// Cores among which each run is divided; worthwhile for few long runs, since running several at once gains more.
    /// Results are the same. Faults, columns about queues, --capture and --trace use one core
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    cores: Option<u16>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// File with another simulator's results for the same runs, to be printed for comparison, such as
    /// data/peers/runs.csv of the lab
    #[arg(long, value_name = "FILE")]
    beside: Option<PathBuf>,
    /// Only check the file
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    capture: capture::CaptureArgs,
    #[command(flatten)]
    trace: trace::TraceArgs,
}

impl Args {
    /// Whether an option was given that figures do not have.
    pub fn is_used(&self) -> bool {
        let looks = self.check || self.capture.is_used() || self.trace.is_used();
        let shows = self.json || self.beside.is_some();
        let runs = self.repeat.is_some() || self.cores.is_some();
        runs || shows || looks
    }

    /// Runs the file, or the `embedded` text, and writes results into `out`.
    ///
    /// # Errors
    /// When the file is wrong, the RPC refuses, or results cannot be written.
    pub fn run(
        &self,
        (file, embedded): (&Path, Option<&str>),
        how: &How<'_>,
        out: Option<&PathBuf>,
    ) -> Result<(), Failure> {
        let settings = Settings {
            set: how.replaced.sets().to_vec(),
            seed: how.seed,
            repeats: self.repeat,
            cores: self.cores.map(usize::from),
            quick: how.quick,
            nic: how.replaced.nic()?,
            parameters: Vec::new(),
        };
        let loaded = match embedded {
            None => Experiment::load(file, &settings),
            Some(text) => {
                let name = file.display().to_string();
                Experiment::parse(&name, text, Path::new(""), &settings).map_err(LoadError::from)
            }
        };
        let experiment = loaded.map_err(|error| match error {
            LoadError::Wrong(wrong) => Failure::usage(wrong).help(
                "`docs/experiments.md` describes every key; `dunlin lab run --help` shows an example",
            ),
            error => Failure::usage(error),
        })?;
        let recorded = self.beside.as_deref().map(recorded).transpose()?;
        let (points, repeats) = experiment.size();
        if self.check {
            return output::print(format_args!(
                "{}: right; points: {points}, runs of each: {repeats}",
                file.display()
            ));
        }
        if let Some(out) = out {
            output::folder(out)?;
        }
        let capture = self.capture.begin(&experiment)?;
        let trace = self.trace.begin(&experiment)?;
        let mut observers = Vec::new();
        observers.extend(capture.as_ref().map(capture::Capture::observer));
        observers.extend(trace.as_ref().map(trace::Trace::observer));
        interrupt::listen()?;
        let threads = match (how.threads, self.cores) {
            // As many runs at once as have cores of their own.
            (None, Some(cores)) => (runner::threads(None) / usize::from(cores)).max(1),
            (threads, _) => runner::threads(threads),
        };
        let experiment = Arc::new(experiment);
        let runs = Arc::new(Runs::default());
        let (ran, seen) = (Arc::clone(&experiment), Arc::clone(&runs));
        runner::points(experiment.runs(), "runs", move || {
            let looks = !observers.is_empty();
            let observer = looks.then(|| -> Box<dyn dunlin_sim::Observer> { Box::new(observers) });
            ran.run_into(&seen, threads, interrupt::came, observer);
        });
        let mut first = experiment.first_run();
        if !runs.has_first() {
            first.push_str(", which did not end");
        }
        let outcome = experiment
            .outcome(&runs)
            .map_err(|error| Failure::new(format!("{}: {error}", file.display())))?;
        if let Some(capture) = capture {
            capture.end(&first)?;
        }
        if let Some(trace) = trace {
            trace.end(&first)?;
        }
        if let Some(out) = out {
            write(out, file, &outcome)?;
        }
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        let beside = recorded.map(|recorded| recorded.beside(&name, &outcome));
        match beside {
            None if self.json => output::print_json(&outcome)?,
            None => print(&experiment, &outcome)?,
            Some(beside) if self.json => output::print_json(&WithOthers {
                outcome: &outcome,
                beside,
            })?,
            Some(beside) => {
                print(&experiment, &outcome)?;
                let mut table = output::table(&Comparison::HEADER);
                table.add_rows(beside.iter().map(Comparison::row));
                output::print(table)?;
            }
        }
        interrupt::check()?;
        let broken = outcome
            .expected
            .iter()
            .filter(|one| one.holds == Some(false));
        let broken: Vec<&str> = broken.map(|one| one.name.as_str()).collect();
        match broken.is_empty() {
            true => Ok(()),
            false => Err(Failure::new(format!(
                "{}: expectation not met: {}",
                file.display(),
                broken.join(", ")
            ))),
        }
    }
}

/// How much to run, and with which parameters.
#[derive(Debug)]
pub struct How<'a> {
    /// The seed of the first run.
    pub seed: Option<u64>,
    /// Number of runs at once.
    pub threads: Option<u16>,
    /// Whether to run the quick points only.
    pub quick: bool,
    /// Other NICs and parameters.
    pub replaced: &'a replaced::Replaced,
}

/// What is printed as JSON with `--beside`.
#[derive(serde::Serialize)]
struct WithOthers<'a> {
    #[serde(flatten)]
    outcome: &'a Outcome,
    beside: Vec<Comparison>,
}

/// Runs of another simulator.
fn recorded(file: &Path) -> Result<Recorded, Failure> {
    let wrong =
        |error: &dyn std::fmt::Display| Failure::usage(format!("{}: {error}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| wrong(&error))?;
    Recorded::parse(&text).map_err(|error| wrong(&error))
}

fn print(experiment: &Experiment, outcome: &Outcome) -> Result<(), Failure> {
    output::print(&outcome.title)?;
    if let Some(says) = experiment.says() {
        output::print(format_args!("  said of it: {says}"))?;
    }
    let table = |header: Vec<String>, rows: Vec<Vec<String>>| {
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        let mut table = output::table(&header);
        table.add_rows(rows);
        output::print(table)
    };
    table(outcome.header(), outcome.rows())?;
    if outcome.has_series() {
        table(outcome.series_header(), outcome.series_rows())?;
    }
    if !outcome.expected.is_empty() {
        let mut table = output::table(&Judged::HEADER);
        table.add_rows(outcome.expected.iter().map(Judged::row));
        output::print(table)?;
    }
    // That of a part would be compared with others'.
    match outcome.complete {
        true => output::print(format_args!("digest {}", outcome.digest)),
        false => Ok(()),
    }
}

/// Writes `NAME.csv`, `NAME.series.csv`, `NAME.flows.csv` and `NAME.svg`, except those that would be empty.
fn write(out: &Path, file: &Path, outcome: &Outcome) -> Result<(), Failure> {
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    let place = |end: &str| out.join(format!("{name}{end}"));
    output::file(&place(".csv"), outcome.csv())?;
    if outcome.has_series() {
        output::file(&place(".series.csv"), outcome.series_csv())?;
    }
    if outcome.has_flows() {
        output::file(&place(".flows.csv"), outcome.flows_csv())?;
    }
    if let Some(chart) = &outcome.chart {
        output::file(&place(".svg"), chart)?;
        output::note(place(".svg").display());
    }
    Ok(())
}
