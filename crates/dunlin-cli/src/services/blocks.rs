//! A block server: copies of the blocks of volumes.

use std::path::Path;

use dunlin::{RunningServer, ServerBuilder};
use dunlin_volume::server::{self, BlockOptions, BlockServerError, Durability, LogEnd, Place};

use super::fs::Kept;
use crate::commands::Failure;
use crate::input::parse_long_bytes;

/// The value of `--log` that stands for memory instead of a directory.
const MEMORY: &str = "memory";

/// Options of a block server.
#[derive(Debug, clap::Args)]
pub struct BlockServerOptions {
    /// With `blocks`: maximum total size of the volumes, in bytes
    #[arg(
        long, default_value = "16GiB", value_name = "BYTES", value_parser = parse_long_bytes(1 << 20..=u64::MAX)
    )]
    capacity: u64,
}

/// Serves blocks; the second value must be dropped after the server.
///
/// # Errors
/// When no place for the blocks is given, the log is damaged, or the server cannot be started.
pub fn serve(
    server: ServerBuilder,
    options: &BlockServerOptions,
    log: Option<&Path>,
    durability: Kept,
) -> Result<(RunningServer, LogEnd), Failure> {
    let place = match log {
        None => {
            let words = "serve blocks requires --log DIR or --log memory";
            return Err(Failure::usage(words)
                .help("with --log memory, blocks are lost with the process and only the other copies keep them"));
        }
        Some(path) if path == Path::new(MEMORY) => Place::Memory,
        Some(path) => Place::Log(
            path.to_owned(),
            match durability {
                Kept::Power => Durability::Power,
                Kept::Process => Durability::Process,
            },
        ),
    };
    let capacity = options.capacity;
    match server::serve(server, &BlockOptions { place, capacity }) {
        Ok(served) => Ok(served.split()),
        Err(BlockServerError::Serve(error)) => Err(error.into()),
        Err(error @ BlockServerError::Io { .. }) => Err(Failure::new(error).help(
            "--log must be a directory that this user can write; it is created if missing, with its parents",
        )),
        Err(error) => Err(Failure::new(error)),
    }
}
