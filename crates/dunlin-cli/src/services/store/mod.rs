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

/// What a machine stores.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// With `store`: the number of this machine, from 0
    #[arg(long, default_value_t = 0, value_name = "N")]
    machine: u16,
    /// With `store`: how many machines the database has
    #[arg(long, default_value_t = 1, value_name = "N")]
    machines: u16,
    /// With `store`: copies of each key; on each machine if nothing is said
    #[arg(long, value_name = "N")]
    replicas: Option<u16>,
    /// With `store`: a table, for about so many keys with values of at most so many bytes; the same on all machines
    #[arg(long = "table", value_name = "NAME:ROWS:BYTES", value_parser = parse_table)]
    tables: Vec<(String, u64, usize)>,
    /// With `store`: the tables and rows of a workload of `dunlin perf txn`
    #[arg(long, value_name = "WORKLOAD")]
    load: Option<String>,
    /// With `--load`: so many customers, subscribers or keys
    #[arg(long, default_value_t = 100_000)]
    rows: u64,
    /// With `store`: clients may write the tables themselves (protocol scaletx); they can write anything there then
    #[arg(long)]
    one_sided_writes: bool,
    /// With `store`: machines replace each other, by the membership kept there: a folder that all of them share, which
    /// are processes of one host then, or etcd://HOST:PORT[,HOST:PORT...]/NAME
    #[arg(long, value_name = "WHERE")]
    membership: Option<Place>,
    /// With `--membership`: seconds that a machine may be silent before the others go on without it
    #[arg(long, default_value = "2", value_parser = parse_seconds, value_name = "SECONDS", allow_negative_numbers = true)]
    replace_after: Duration,
    /// With `--membership`: where others reach this machine; say it where `--listen` names all addresses of the host
    #[arg(long, value_name = "ADDRESS")]
    advertise: Option<Address>,
    /// With `--membership`: keep the log in this directory, one for each machine. What was acknowledged is on the disks
    /// of all machines that have it then, and is there again after all of them were ended at once and started again
    /// with the same directories. With `blocks`: keep the blocks in a log in this directory, or in `memory`
    #[arg(long, value_name = "DIR")]
    log: Option<PathBuf>,
    /// With `--log`: so much is logged between two snapshots; a start reads so much more than there is
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

    /// The directory of the log, as it was given.
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
            let words = "a store without tables: say --table NAME:ROWS:BYTES, or --load WORKLOAD";
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
    let wrong = || format!("{text} is not NAME:ROWS:BYTES, such as accounts:10000:8");
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

/// The workload of a name.
///
/// # Errors
/// With the names that there are.
pub fn workload(name: &str, rows: u64) -> Result<Box<dyn Workload>, Failure> {
    workload::named(name, rows).ok_or_else(|| {
        let names = workload::NAMES.join(", ");
        let scans = match name {
            "ycsb-e" => {
                " (ycsb-e scans: `dunlin perf kv --workload ycsb-e` runs it on the ordered index)"
            }
            _ => "",
        };
        Failure::usage(format!("no workload '{name}'{scans}; there are: {names}"))
    })
}

/// Why a machine does not serve: the options may contradict each other.
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
        let words = "--log without --membership: nobody would decide what was on its way when the machines ended";
        let help = "say --membership FOLDER for machines of one host, also for one machine alone, or etcd://...";
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
