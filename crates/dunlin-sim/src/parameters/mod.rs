//! Parameters: one file for each type of NIC, host and switch, with the source of each value and the confidence in it.
//!
//! The files are in `params/` and compiled in; a user may load others. A file that lacks a value or has an unknown one
//! is rejected; the few values that may be omitted document their defaults. Times are in nanoseconds (`..._ns`) in the
//! files and in picoseconds in the structures.

mod file;
mod host;
mod nic;
mod switch;
mod turns;

pub use file::{Confidence, Origin, ParameterError};
pub use host::HostParameters;
pub use nic::NicParameters;
pub use switch::SwitchParameters;

/// Names and texts of all compiled-in parameter files. The freeze of a calibration hashes these.
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
