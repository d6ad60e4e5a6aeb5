//! `dunlin lab run FILE.toml --trace OUT`: the options of a trace and its summary.

use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;
use std::time::Duration;

use dunlin_lab::experiment::{time, Experiment};

use super::recording::Recording;
use crate::commands::Failure;
use crate::trace::{Bounds, Recorder};

/// A trace of the first run
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "A trace (FILE.toml)")]
pub(super) struct TraceArgs {
    /// Write a trace of cores, NICs, queues and caches in the first run, for https://ui.perfetto.dev
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Start of the trace, counted from the start of the clients, such as 100us
    #[arg(long, value_name = "TIME", requires = "trace", value_parser = time)]
    trace_from: Option<Duration>,
    /// End of the trace
    #[arg(long, value_name = "TIME", requires = "trace", value_parser = time)]
    trace_until: Option<Duration>,
    /// Maximum number of slices and counter values, of some 25 bytes each
    #[arg(
        long,
        value_name = "N",
        default_value_t = 2_000_000,
        requires = "trace",
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    trace_events: u64,
}

/// A trace that is being written.
pub(super) struct Trace(Recording<Recorder<BufWriter<File>>>);

impl TraceArgs {
    /// Whether a trace was requested.
    pub(super) fn is_used(&self) -> bool {
        self.trace.is_some()
    }

    /// Begins the trace, if one was requested.
    ///
    /// # Errors
    /// When the times do not form a window, or the file cannot be written.
    pub(super) fn begin(&self, experiment: &Experiment) -> Result<Option<Trace>, Failure> {
        let Some(file) = &self.trace else {
            return Ok(None);
        };
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let window_ns =
            self.trace_from.map_or(0, nanoseconds)..self.trace_until.map_or(u64::MAX, nanoseconds);
        if window_ns.is_empty() {
            return Err(Failure::usage(
                "--trace-until must be later than --trace-from",
            ));
        }
        let bounds = Bounds {
            window_ns,
            events: self.trace_events,
        };
        let recorder = |to| Ok(Recorder::new(to, experiment.hosts(), bounds));
        Recording::begin(file, recorder).map(|recording| Some(Trace(recording)))
    }
}

impl Trace {
    /// The observer of the run.
    pub(super) fn observer(&self) -> Box<dyn dunlin_sim::Observer> {
        self.0.observer()
    }

    /// Ends the file, and prints what it contains.
    ///
    /// # Errors
    /// When the file could not be written.
    pub(super) fn end(self, run: &str) -> Result<(), Failure> {
        let end = Recorder::end;
        let what = format!("slices and values of the run {run}; https://ui.perfetto.dev opens it");
        self.0
            .end(end, &what, "--trace-events, --trace-from and --trace-until")
    }
}
