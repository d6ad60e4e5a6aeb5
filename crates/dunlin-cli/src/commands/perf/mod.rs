//! `dunlin perf`: the measuring commands, one file each.

pub mod change;
mod crowd;
pub mod kv;
pub mod limits;
mod load;
pub mod meta;
pub mod mpi;
pub mod ring;
pub mod rpc;
pub mod sort;
pub mod transfer;
pub mod txn;
pub mod typed;
pub mod verbs;

use clap::Subcommand;

use super::Failure;

/// What to measure.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Measure what this machine allows without a framework
    Limits(limits::Args),
    /// Measure calls between two processes
    Rpc(rpc::Args),
    /// Measure what callers notice while a client changes its preset and changes back
    Change(change::Args),
    /// Measure transactions on three server processes
    Txn(txn::Args),
    /// Measure the key-value store between two processes, optionally against memcached or Redis
    Kv(kv::Args),
    /// Measure a file system's metadata server: create, stat, readdir, remove
    Meta(meta::Args),
    /// Measure calls of a typed service between two processes
    Typed(typed::Args),
    /// Measure one-sided transfers to and from the memory of another process
    Transfer(transfer::Args),
    /// Measure how fast several processes sort a file, compared with one thread
    Sort(sort::Args),
    /// Measure work requests between two processes, as perftest does
    Verbs(verbs::Args),
    /// Measure a ring between two processes: RB² and its competitors
    Ring(ring::Args),
    /// Measure messages between the ranks of a job
    Mpi(mpi::Args),
    /// Another rank of `perf mpi`
    #[command(hide = true)]
    MpiPeer,
    /// The other process of `perf ring`
    #[command(hide = true)]
    RingPeer,
    /// The other process of `count-traffic`
    #[command(hide = true)]
    TrafficPeer,
    /// The other process of `perf verbs`
    #[command(hide = true)]
    VerbsPeer,
}

impl Command {
    /// Runs the measurement.
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Self::Limits(args) => limits::run(&args),
            Self::Rpc(args) => rpc::run(&args),
            Self::Change(args) => change::run(&args),
            Self::Txn(args) => txn::run(&args),
            Self::Kv(args) => kv::run(&args),
            Self::Meta(args) => meta::run(&args),
            Self::Typed(args) => typed::run(&args),
            Self::Transfer(args) => transfer::run(&args),
            Self::Sort(args) => sort::run(&args),
            Self::Verbs(args) => verbs::run(&args),
            Self::Ring(args) => ring::run(&args),
            Self::Mpi(args) => mpi::run(&args),
            Self::MpiPeer => mpi::peer(),
            Self::RingPeer => crate::ring::serve::run(),
            Self::TrafficPeer => crate::traffic::over_ring::serve(),
            Self::VerbsPeer => crate::verbs::serve::run(),
        }
    }
}

/// Arguments of an echo server that the command starts, pinned to a core if one is given.
fn server_arguments(pinned: &[usize], device: Option<&str>) -> Vec<String> {
    let mut arguments = Vec::new();
    for core in pinned {
        arguments.extend(["--pin".to_string(), core.to_string()]);
    }
    if let Some(device) = device {
        arguments.extend(["--device".to_string(), device.to_string()]);
    }
    arguments
}

/// What to compare the measurement with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Against {
    /// Raw limits of the machine
    Limits,
}

/// Parses a number of seconds, more than 0 and at most a day.
pub fn parse_seconds(text: &str) -> Result<std::time::Duration, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| format!("{text} is not a number of seconds"))?;
    if seconds > 0.0 && seconds <= 86_400.0 {
        Ok(std::time::Duration::from_secs_f64(seconds))
    } else {
        Err("the number of seconds must be more than 0 and at most 86400".into())
    }
}
