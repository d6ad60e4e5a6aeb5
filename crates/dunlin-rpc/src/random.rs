//! Random numbers that peers are told.

use dunlin_verbs::{Device, VerbsError};

/// A random number: the system's, unless the device is to be repeatable.
pub(crate) fn random<D: Device>(device: &D) -> Result<u64, VerbsError> {
    match device.seed() {
        Some(seed) => Ok(seed),
        None => getrandom::u64().map_err(|error| VerbsError::System {
            call: "getrandom",
            source: error.into(),
        }),
    }
}
