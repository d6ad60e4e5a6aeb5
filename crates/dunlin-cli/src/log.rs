//! The log output of the crates on standard error while a command runs ([`dunlin_log`]).

use dunlin_log::WrongFilter;

use crate::commands::Failure;

/// The default log filter of a server: which clients it refused, and why.
const OF_SERVERS: &str = "warn";

/// Begins to log, if the variable is set or this is a server. Processes that this one starts inherit it.
///
/// # Errors
/// When the variable is invalid.
pub fn start(serves: bool) -> Result<(), Failure> {
    let started = dunlin_log::start(serves.then_some(OF_SERVERS));
    started.map_err(|wrong| Failure::usage(wrong.to_string()).help(WrongFilter::HELP))
}
