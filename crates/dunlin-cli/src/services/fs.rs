//! The servers of the file system.

use std::path::PathBuf;
use std::time::Duration;

use dunlin::{Address, RunningServer, Secret, ServerBuilder};
use dunlin_fs::data::{self, DataError, DataOptions};
use dunlin_fs::meta::{self, Durability, MetaError, MetaOptions, MetaThreads};

use crate::commands::perf::parse_seconds;
use crate::commands::Failure;
use crate::input::parse_bytes;

/// When data counts as durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kept {
    /// On disk: survives a power failure
    Power,
    /// In the kernel: survives the end of the process
    Process,
}

/// Options of the servers of a file system.
#[derive(Debug, clap::Args)]
pub struct FileServerOptions {
    /// With `meta`: folder of the journal, created if missing
    #[arg(long, value_name = "FOLDER")]
    store: Option<PathBuf>,
    /// With `meta`: address of a data server; repeat for each
    #[arg(long = "data", value_name = "ADDRESS")]
    data: Vec<Address>,
    /// With `meta`: seconds that a client may be silent before its session ends and its leases go to others
    #[arg(long, default_value = "10", value_parser = parse_seconds, value_name = "SECONDS")]
    lease: Duration,
    /// With `data`: file of the extents, created if missing
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// With `data`: bytes to offer; takes as much memory
    #[arg(long, default_value = "256MiB", value_name = "BYTES", value_parser = parse_bytes(1 << 20..=u32::MAX))]
    size: u32,
    /// With `meta`, `data` and `blocks`: when data counts as durable
    #[arg(long, value_enum, default_value_t = Kept::Power)]
    pub durability: Kept,
}

impl FileServerOptions {
    fn durability(&self) -> Durability {
        match self.durability {
            Kept::Power => Durability::Power,
            Kept::Process => Durability::Process,
        }
    }
}

/// Serves metadata; the threads end when they are dropped.
///
/// # Errors
/// When no store is given, it is damaged, or the server cannot be started.
pub fn serve_meta(
    server: ServerBuilder,
    options: &FileServerOptions,
    secret: Option<Secret>,
) -> Result<(RunningServer, MetaThreads), Failure> {
    let Some(store) = &options.store else {
        return Err(Failure::usage("serve meta requires --store FOLDER"));
    };
    let settings = MetaOptions {
        data: options.data.iter().map(ToString::to_string).collect(),
        durability: options.durability(),
        lease: options.lease,
        secret,
        ..MetaOptions::new(store)
    };
    match meta::serve(server, &settings) {
        Ok(served) => Ok(served.split()),
        Err(MetaError::Serve(error)) => Err(error.into()),
        Err(error @ MetaError::Lease(_)) => Err(Failure::usage(error)),
        Err(error) => Err(Failure::new(error)),
    }
}

/// Serves data.
///
/// # Errors
/// When no file is given, it belongs to another server, or the server cannot be started.
pub fn serve_data(
    server: ServerBuilder,
    options: &FileServerOptions,
) -> Result<RunningServer, Failure> {
    let Some(file) = &options.file else {
        return Err(Failure::usage("serve data requires --file FILE"));
    };
    let settings = DataOptions {
        file: file.clone(),
        bytes: options.size.into(),
        durability: options.durability(),
    };
    data::serve(server, &settings).map_err(|error| match error {
        DataError::Serve(error) => error.into(),
        error @ DataError::Bytes(_) => Failure::usage(error),
        error => Failure::new(error),
    })
}
