//! `dunlin demo`: demonstrations that start their own processes and run on any machine in a few seconds.

mod bank;
mod files;
mod kv;
mod stream;

use std::time::Duration;

use super::perf::parse_seconds;
use super::{connect, Failure};
use crate::affinity;
use crate::interrupt;
use crate::services::child::ServerProcess;

/// What is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum What {
    /// A key-value store under YCSB B: 95 % reads and 5 % updates of 100-byte values, Zipfian keys
    Kv,
    /// The store's ordered index under YCSB E: 95 % scans of 1 to 100 entries, 5 % inserts
    Index,
    /// A bank on three machines with a copy each, one of which is killed under load and comes back
    Txn,
    /// A file system whose files are written and read one-sided, and survive the kill of its metadata server
    Fs,
    /// A byte stream, compared with the kernel's TCP
    Stream,
}

/// Run a demonstration: server processes and a load
#[derive(Debug, clap::Args)]
#[command(after_help = "\
By default a second process serves a key-value store; this one loads it and reads and updates entries. Requests and \
responses are one-sided WRITEs into each other's memory: no system call, no socket, no copy through the kernel.\n\n\
No processes or files are left behind.\n\n\
Examples:\n  \
  dunlin demo                  a key-value store\n  \
  dunlin demo --what txn       a bank whose machines are killed\n  \
  dunlin demo --what fs        a file system whose server is killed")]
pub struct Args {
    /// Demonstration to run
    #[arg(long, value_enum, default_value = "kv")]
    what: What,
    /// Seconds to run the load
    #[arg(long, default_value = "5", value_parser = parse_seconds, allow_negative_numbers = true)]
    seconds: Duration,
    /// Number of entries in the store, or of accounts in the bank
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    entries: u32,
    /// Calls outstanding at the key-value store
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=512))]
    outstanding: u32,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Take a stream, and what comes from this port by TCP
    #[arg(long, hide = true, value_name = "PORT")]
    take: Option<u16>,
    #[command(flatten)]
    connect: connect::Options,
}

/// Runs it.
pub fn run(args: &Args) -> Result<(), Failure> {
    if let Some(port) = args.take {
        return stream::take(args, port);
    }
    interrupt::listen()?;
    match args.what {
        What::Kv => kv::run(args, false)?,
        What::Index => kv::run(args, true)?,
        What::Txn => bank::run(args)?,
        What::Fs => files::run(args)?,
        What::Stream => stream::run(args)?,
    }
    interrupt::check()
}

/// Starts a server process on the second core, with this one on the first, over the requested device.
fn start(args: &Args, service: &str, mut more: Vec<String>) -> Result<ServerProcess, Failure> {
    if let Some((client, server)) = affinity::client_and_server() {
        more.extend(["--pin".to_string(), server.to_string()]);
        affinity::pin(client);
    }
    more.extend(device(args));
    ServerProcess::start(service, &more)
}

/// The requested device, as arguments.
fn device(args: &Args) -> Vec<String> {
    let device = args.connect.device();
    device.map_or_else(Vec::new, |device| {
        vec!["--device".to_owned(), device.to_owned()]
    })
}
