//! Parameters: one file for each NIC, host and switch type, each value with its source and how far it can be trusted.
//!
//! The files are in `params/` and compiled in; a user may load others. A file that lacks a value, or has one too many,
//! is refused; the few that may be left out say what holds then. Times stand in files as nanoseconds (`..._ns`) and in
//! the structures as picoseconds.

mod file;
mod host;
mod nic;
mod switch;
mod turns;

pub use file::{Confidence, Origin, ParameterError};
pub use host::HostParameters;
pub use nic::NicParameters;
pub use switch::SwitchParameters;

/// Names and texts of all parameter files that are compiled in. Whoever freezes a calibration hashes these.
pub fn parameter_files() -> impl Iterator<Item = (&'static str, &'static str)> + Clone {
    [
        NicParameters::FILES,
        HostParameters::FILES,
        SwitchParameters::FILES,
    ]
    .into_iter()
    .flatten()
    .copied()
}
