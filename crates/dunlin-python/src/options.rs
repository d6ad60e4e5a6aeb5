//! Conversion of Python arguments to settings: seconds, presets, secrets.

use std::time::Duration;

use dunlin::{ChannelConfig, Preset, Secret, WaitMode};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Converts a number of seconds, as used in Python.
pub(crate) fn seconds(name: &str, value: f64) -> PyResult<Duration> {
    match Duration::try_from_secs_f64(value) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err(PyValueError::new_err(format!(
            "{name} is {value}: it must be a number of seconds above zero"
        ))),
    }
}

/// The timeout of a call, or the default.
#[inline]
pub(crate) fn timeout(value: Option<f64>, default: Duration) -> PyResult<Duration> {
    match value {
        None => Ok(default),
        Some(value) => seconds("timeout", value),
    }
}

pub(crate) fn preset(name: &str) -> PyResult<Preset> {
    name.parse()
        .map_err(|error| PyValueError::new_err(format!("preset: {error}")))
}

pub(crate) fn secret(bytes: Vec<u8>) -> PyResult<Secret> {
    Secret::new(bytes).map_err(|error| PyValueError::new_err(format!("secret: {error}")))
}

/// Limits, each of which is optional. `spin`: the number of seconds that a thread polls before it sleeps.
pub(crate) fn channel(
    max_message_bytes: Option<usize>,
    max_outstanding: Option<usize>,
    spin: Option<f64>,
) -> PyResult<ChannelConfig> {
    let mut channel = ChannelConfig::default();
    if let Some(bytes) = max_message_bytes {
        channel.max_message_bytes = bytes;
    }
    if let Some(most) = max_outstanding {
        channel.max_outstanding = most;
    }
    if let Some(spin) = spin {
        channel.wait = match spin {
            f64::INFINITY => WaitMode::Spin,
            0.0 => WaitMode::Doze {
                spin: Duration::ZERO,
            },
            spin => WaitMode::Doze {
                spin: seconds("spin", spin)?,
            },
        };
    }
    Ok(channel)
}
