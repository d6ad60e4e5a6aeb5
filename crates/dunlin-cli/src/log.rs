//! What the crates say of themselves while they work, on standard error, for who asks by `DUNLIN_LOG`.

use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

use crate::commands::Failure;

/// The variable: a level (`error`, `warn`, `info`, `debug`, `trace`), or crates with levels
/// (`dunlin_rpc=debug,dunlin_shm=trace`).
const VARIABLE: &str = "DUNLIN_LOG";

/// What a server says when the variable is not set: whom it has refused, and why.
const OF_SERVERS: &str = "warn";

/// Begins to log, if the variable is set or this is a server. Processes that this one starts inherit it.
///
/// # Errors
/// When the variable says nothing that can be understood.
pub fn start(serves: bool) -> Result<(), Failure> {
    let wanted = match std::env::var(VARIABLE) {
        Ok(wanted) => wanted,
        Err(_) if serves => OF_SERVERS.to_owned(),
        Err(_) => return Ok(()),
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
