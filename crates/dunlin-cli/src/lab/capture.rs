//! `dunlin lab run FILE.toml --capture OUT.pcapng`: the options of a capture and its summary.

use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;

use dunlin_lab::experiment::Experiment;

use super::hosts::named;
use super::recording::Recording;
use crate::capture::{Bounds, Recorder};
use crate::commands::Failure;
use crate::input::{parse_bytes, parse_long_bytes};
use crate::output;

/// An option that Wireshark and tshark need: by default, a payload that begins with a known Ethernet type and two
/// zeros, as counters of eight bytes do at times, is dissected as an Ethernet packet. Nothing in the file can prevent
/// that.
const DISSECTION: &str = "--disable-heuristic eth_over_ib";

/// A capture of the first run
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "A capture (FILE.toml)")]
pub(super) struct CaptureArgs {
    /// Write the packets of the first run into a pcapng file, as RoCEv2 with simulated times, for Wireshark and tshark
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,
    /// Only packets of this host or group of hosts; may be given several times
    #[arg(long, value_name = "NAME", requires = "capture")]
    capture_host: Vec<String>,
    /// Maximum number of packets, each counted where it is sent and again where it arrives
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1_000_000,
        requires = "capture",
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    capture_packets: u64,
    /// Maximum number of bytes of packets
    #[arg(
        long,
        value_name = "BYTES",
        default_value = "256MiB",
        requires = "capture",
        value_parser = parse_long_bytes(1..=u64::MAX)
    )]
    capture_bytes: u64,
    /// Bytes kept of each packet, headers included
    #[arg(
        long,
        value_name = "BYTES",
        default_value = "64KiB",
        requires = "capture",
        value_parser = parse_bytes(64..=65_536)
    )]
    capture_snap: u32,
}

/// A capture that is being written.
pub(super) struct Capture {
    file: PathBuf,
    recording: Recording<Recorder<BufWriter<File>>>,
}

impl CaptureArgs {
    /// Whether a capture was requested.
    pub(super) fn is_used(&self) -> bool {
        self.capture.is_some()
    }

    /// Begins the capture, if one was requested.
    ///
    /// # Errors
    /// When a named host does not exist, or the file cannot be written.
    pub(super) fn begin(&self, experiment: &Experiment) -> Result<Option<Capture>, Failure> {
        let Some(file) = &self.capture else {
            return Ok(None);
        };
        let hosts = named(experiment, &self.capture_host, "--capture-host")?;
        let bounds = Bounds {
            packets: self.capture_packets,
            bytes: self.capture_bytes,
            snap: self.capture_snap,
        };
        let recorder = |to| Recorder::begin(to, &hosts, bounds);
        Recording::begin(file, recorder).map(|recording| {
            Some(Capture {
                file: file.clone(),
                recording,
            })
        })
    }
}

impl Capture {
    /// The observer of the run.
    pub(super) fn observer(&self) -> Box<dyn dunlin_sim::Observer> {
        self.recording.observer()
    }

    /// Ends the file, and prints what it contains and how to open it.
    ///
    /// # Errors
    /// When the file could not be written.
    pub(super) fn end(self, run: &str) -> Result<(), Failure> {
        let end = Recorder::end;
        let choose = "--capture-packets, --capture-bytes, --capture-snap and --capture-host";
        self.recording
            .end(end, &format!("packets of the run {run}"), choose)?;
        let file = self.file.display();
        output::note(format_args!("open it by: wireshark {DISSECTION} -r {file}"));
        Ok(())
    }
}
