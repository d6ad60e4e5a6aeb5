//! What the crates say of themselves while they work, on standard error, for who asks by `DUNLIN_LOG`.

use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

use crate::commands::Failure;

/// The variable: a level (`error`, `warn`, `info`, `debug`, `trace`), or crates with levels
/// (`dunlin_rpc=debug,dunlin_shm=trace`).
const VARIABLE: &str = "DUNLIN_LOG";

/// Begins to log, if the variable is set. Processes that this one starts inherit it.
///
/// # Errors
/// When the variable says nothing that can be understood.
pub fn start() -> Result<(), Failure> {
    let Ok(wanted) = std::env::var(VARIABLE) else {
        return Ok(());
    };
    let targets: Targets = wanted.parse().map_err(|error| {
        Failure::usage(format!("{VARIABLE}={wanted}: {error}"))
            .help("a level such as debug, or crates with levels: dunlin_rpc=debug,dunlin_shm=trace")
    })?;
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(false);
    tracing_subscriber::registry()
        .with(lines.with_filter(targets))
        .init();
    Ok(())
}
