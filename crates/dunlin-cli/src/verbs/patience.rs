//! Waiting for the other side of an endpoint while driving its device.

use dunlin_verbs::{Device, QueuePairState};

use super::endpoint::Endpoint;
use crate::commands::Failure;
use crate::patience::Patience as Looks;

/// Looks between two at the endpoint's own completions.
const REAP_EVERY: u32 = 16;

/// One wait.
#[derive(Debug, Default)]
pub struct Patience(Looks);

impl Patience {
    /// A new one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Called between two polls of what is waited for: drives the device, and from time to time yields to other
    /// processes.
    ///
    /// # Errors
    /// When the device reports a failure, or the peer has said nothing for ten seconds.
    #[inline]
    pub fn wait<D: Device>(&mut self, endpoint: &mut Endpoint<D>) -> Result<(), Failure> {
        if self.0.looks() % REAP_EVERY == 0 {
            endpoint.reap()?;
        }
        self.pause(endpoint)
    }

    /// The same for callers that poll completions of sends themselves.
    ///
    /// # Errors
    /// When the queue pair failed, or the peer has said nothing for ten seconds.
    #[inline]
    pub fn pause<D: Device>(&mut self, endpoint: &Endpoint<D>) -> Result<(), Failure> {
        self.0.wait_or(|| match endpoint.state() {
            QueuePairState::Error => Err(Failure::new(
                "the peer process does not respond: its queue pair is in the error state",
            )),
            _ => Ok(()),
        })
    }

    /// The time waited; reads the clock only from time to time, and is zero otherwise.
    pub fn waited_ns(&mut self) -> u64 {
        self.0.waited_ns()
    }
}
