//! The store of transactions: one machine of a database.

mod membership;
mod replicated;

pub use replicated::{serve_replicated, Begins};

use std::path::{Path, PathBuf};
use std::time::Duration;

use dunlin::txn::server::{LogFolder, StoreConfig, StoreServer, StoreServerError, TableSpec};
use dunlin::txn::workload::{self, Workload};
use dunlin::{Address, RunningServer, ServerBuilder};
use dunlin_store::StoreError;

use crate::commands::perf::parse_seconds;
use crate::commands::Failure;
use crate::input::parse_bytes;
use membership::Place;

/// Options of a machine of a database.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// With `store`: number of this machine, starting at 0
    #[arg(long, default_value_t = 0, value_name = "N")]
    machine: u16,
    /// With `store`: number of machines in the database
    #[arg(long, default_value_t = 1, value_name = "N")]
    machines: u16,
    /// With `store`: copies of each key [default: one on each machine, at most 3]
    #[arg(long, value_name = "N")]
    replicas: Option<u16>,
    /// With `store`: a table for about ROWS keys with values of at most BYTES bytes, the same on all machines; repeat
    /// for each
    #[arg(long = "table", value_name = "NAME:ROWS:BYTES", value_parser = parse_table)]
    tables: Vec<(String, u64, usize)>,
    /// With `store`: create the tables and rows of a workload of `dunlin perf txn`
    #[arg(long, value_name = "WORKLOAD")]
    load: Option<String>,
    /// With `--load`: number of customers, subscribers or keys
    #[arg(long, default_value_t = 100_000)]
    rows: u64,
    /// With `store`: let clients write the tables directly (protocol scaletx); they can then write anything there
    #[arg(long)]
    one_sided_writes: bool,
    /// With `store`: let machines replace each other, with the membership kept here: a folder that all of them share,
    /// which must then be processes of one host, or etcd://HOST:PORT[,HOST:PORT...]/NAME
    #[arg(long, value_name = "WHERE")]
    membership: Option<Place>,
    /// With `--membership`: seconds that a machine may be silent before the others go on without it
    #[arg(long, default_value = "2", value_parser = parse_seconds, value_name = "SECONDS", allow_negative_numbers = true)]
    replace_after: Duration,
    /// With `--membership`: address at which others reach this machine; needed if `--listen` names all addresses of the
    /// host
    #[arg(long, value_name = "ADDRESS")]
    advertise: Option<Address>,
    /// With `--membership`: keep the log in this directory, one for each machine. Acknowledged transactions are then on
    /// the disks of all machines that have a copy, and survive even if all machines end at once and are restarted with
    /// the same directories. With `blocks`: keep the blocks in a log in this directory, or in `memory`
    #[arg(long, value_name = "DIR")]
    log: Option<PathBuf>,
    /// With `--log`: minimum number of bytes logged between two snapshots; a start reads the log in addition to the
    /// snapshot
    #[arg(long, default_value = "64MiB", value_name = "BYTES", value_parser = parse_bytes(1 << 16..=u32::MAX))]
    snapshot_after: u32,
}

impl Options {
    /// Where the log is, if that is on a disk.
    fn log(&self) -> Option<LogFolder> {
        let path = self.log.clone()?;
        let snapshot_bytes = u64::from(self.snapshot_after);
        Some(LogFolder {
            path,
            snapshot_bytes,
        })
    }

    /// The directory of the log, as given.
    pub fn log_directory(&self) -> Option<&Path> {
        self.log.as_deref()
    }

    /// Whether machines replace each other.
    pub fn is_replicated(&self) -> bool {
        self.membership.is_some()
    }

    fn workload(&self) -> Result<Option<Box<dyn Workload>>, Failure> {
        let load = self.load.as_deref();
        load.map(|name| workload(name, self.rows)).transpose()
    }

    fn config(&self, load: Option<&dyn Workload>) -> Result<StoreConfig, Failure> {
        let mut tables = load.map_or_else(Vec::new, Workload::tables);
        for (name, rows, bytes) in &self.tables {
            tables.push(TableSpec::new(tables.len() as u16, name, *rows, *bytes));
        }
        if tables.is_empty() {
            let words = "a store needs tables: use --table NAME:ROWS:BYTES or --load WORKLOAD";
            return Err(Failure::usage(words));
        }
        Ok(StoreConfig {
            machine: self.machine,
            machines: self.machines,
            replicas: self.replicas.unwrap_or(self.machines.min(3)),
            tables,
            one_sided_writes: self.one_sided_writes,
        })
    }
}

fn parse_table(text: &str) -> Result<(String, u64, usize), String> {
    let wrong = || format!("invalid table {text}: write NAME:ROWS:BYTES, such as accounts:10000:8");
    let mut parts = text.rsplitn(3, ':');
    let bytes = parts.next().and_then(|bytes| bytes.parse().ok());
    let rows = parts.next().and_then(|rows| rows.parse().ok());
    match (parts.next(), rows, bytes) {
        (Some(name), Some(rows), Some(bytes)) if !name.is_empty() => {
            Ok((name.to_owned(), rows, bytes))
        }
        _ => Err(wrong()),
    }
}

/// The workload of this name.
///
/// # Errors
/// When there is none; the message lists the names.
pub fn workload(name: &str, rows: u64) -> Result<Box<dyn Workload>, Failure> {
    workload::named(name, rows).ok_or_else(|| {
        let names = workload::NAMES.join(", ");
        let scans = match name {
            "ycsb-e" => {
                " (ycsb-e scans: `dunlin perf kv --workload ycsb-e` runs it on the ordered index)"
            }
            _ => "",
        };
        Failure::usage(format!(
            "unknown workload '{name}'{scans}; available: {names}"
        ))
    })
}

/// The failure of a machine that does not serve: the options may contradict each other.
fn not_served(error: StoreServerError) -> Failure {
    match error {
        StoreServerError::Serve(error) => error.into(),
        StoreServerError::Placement(_)
        | StoreServerError::Machine { .. }
        | StoreServerError::Replicas { .. }
        | StoreServerError::Twice { .. }
        | StoreServerError::OneSided
        | StoreServerError::Table {
            source: StoreError::ValueBytes { .. } | StoreError::Buckets { .. },
            ..
        } => Failure::usage(error),
        error => Failure::new(error),
    }
}

/// Serves a machine of a database.
///
/// # Errors
/// When the options contradict each other, or the server does not start.
pub fn serve(server: ServerBuilder, options: &Options) -> Result<RunningServer, Failure> {
    if options.log.is_some() {
        let words =
            "--log requires --membership: otherwise nothing decides the transactions that were in progress when the \
             machines ended";
        let help = "use --membership FOLDER for machines of one host, also for a single machine, or etcd://...";
        return Err(Failure::usage(words).help(help));
    }
    let load = options.workload()?;
    let config = options.config(load.as_deref())?;
    let store = StoreServer::serve(server, config).map_err(not_served)?;
    if let Some(load) = load {
        store.load(load.load()).map_err(Failure::new)?;
    }
    Ok(store.into_server())
}
