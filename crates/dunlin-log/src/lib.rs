//! Log output of Dunlin's crates on standard error, enabled by `DUNLIN_LOG`: for the command, and for programs in C and
//! Python. A Rust program uses a `tracing` subscriber of its own choice instead.
#![forbid(unsafe_code)]

use std::sync::Once;

use tracing_subscriber::filter::{ParseError, Targets};
use tracing_subscriber::prelude::*;

/// Name of the variable. Its value is a level (`error`, `warn`, `info`, `debug`, `trace`, `off`), or crates with levels
/// (`dunlin_rpc=debug,dunlin_shm=trace`).
pub const VARIABLE: &str = "DUNLIN_LOG";

/// The value of the variable is not valid.
#[derive(Debug, thiserror::Error)]
#[error("{VARIABLE}={wanted}: {cause}")]
pub struct WrongFilter {
    wanted: String,
    #[source]
    cause: ParseError,
}

impl WrongFilter {
    /// The allowed values.
    pub const HELP: &str =
        "a level such as debug, or crates with levels: dunlin_rpc=debug,dunlin_shm=trace";
}

/// Starts logging as the variable says; if it is not set, as `otherwise` says, or not at all. A subscriber that the
/// process already has is kept.
///
/// # Errors
/// When the value of the variable is not valid.
pub fn start(otherwise: Option<&str>) -> Result<(), WrongFilter> {
    let wanted = match (std::env::var(VARIABLE), otherwise) {
        (Ok(wanted), _) => wanted,
        (Err(_), Some(otherwise)) => otherwise.to_owned(),
        (Err(_), None) => return Ok(()),
    };
    let targets: Targets = match wanted.parse() {
        Ok(targets) => targets,
        Err(cause) => return Err(WrongFilter { wanted, cause }),
    };
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(false);
    let _ = tracing_subscriber::registry()
        .with(lines.with_filter(targets))
        .try_init();
    Ok(())
}

/// As [`start`] without a default, at the first call; for libraries, which report an invalid variable on standard error
/// and continue.
pub fn start_once() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        if let Err(wrong) = start(None) {
            eprintln!("{wrong}: nothing is logged; expected {}", WrongFilter::HELP);
        }
    });
}
