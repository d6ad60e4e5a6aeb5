//! What Dunlin's crates say of themselves while they work, on standard error, for who asks by `DUNLIN_LOG`: the
//! command, and programs in C and Python. A program in Rust has a `tracing` subscriber of its own choice instead.
#![forbid(unsafe_code)]

use std::sync::Once;

use tracing_subscriber::filter::{ParseError, Targets};
use tracing_subscriber::prelude::*;

/// The variable: a level (`error`, `warn`, `info`, `debug`, `trace`, `off`), or crates with levels
/// (`dunlin_rpc=debug,dunlin_shm=trace`).
pub const VARIABLE: &str = "DUNLIN_LOG";

/// The variable says nothing that can be understood.
#[derive(Debug, thiserror::Error)]
#[error("{VARIABLE}={wanted}: {cause}")]
pub struct WrongFilter {
    wanted: String,
    #[source]
    cause: ParseError,
}

impl WrongFilter {
    /// What it may be.
    pub const HELP: &str =
        "a level such as debug, or crates with levels: dunlin_rpc=debug,dunlin_shm=trace";
}

/// Begins to log as the variable says; without it as `otherwise` does, or not at all. Where the process has a
/// subscriber already, that one stays.
///
/// # Errors
/// When the variable says nothing that can be understood.
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

/// As [`start`] without a default, the first time that it is called; for libraries, which say on standard error that
/// the variable is wrong and go on.
pub fn start_once() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        if let Err(wrong) = start(None) {
            eprintln!(
                "{wrong}: nothing is logged; it may be {}",
                WrongFilter::HELP
            );
        }
    });
}
