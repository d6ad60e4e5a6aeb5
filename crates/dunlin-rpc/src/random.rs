//! Random numbers that peers are told.

use dunlin_verbs::{random, Device, VerbsError};

/// A random number: the system's, unless the device is to be repeatable.
pub(crate) fn random<D: Device>(device: &D) -> Result<u64, VerbsError> {
    match device.seed() {
        Some(seed) => Ok(seed),
        None => random::number().map_err(|source| VerbsError::System {
            call: "getrandom",
            source,
        }),
    }
}
