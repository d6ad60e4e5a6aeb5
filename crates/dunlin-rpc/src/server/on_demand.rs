//! A service that is started for its first client, for devices that few clients use.

use std::sync::{Mutex, OnceLock};
use std::time::Instant;

use dunlin_verbs::{EndpointAddress, PeerConfirmation, VerbsError};

use super::caller::Caller;
use super::service::{AcceptError, Service};
use super::statistics::ServerStatistics;
use crate::admission::SenderReport;
use crate::channel::Parameters;
use crate::error::ServeError;
use crate::preset::ChannelKind;

/// Starts the service.
type Start = Box<dyn FnOnce() -> Result<Box<dyn Service>, ServeError> + Send>;

/// See the module.
pub(super) struct OnDemand {
    started: OnceLock<Box<dyn Service>>,
    /// `None` if it was started, could not be started, or must no longer be.
    start: Mutex<Option<Start>>,
}

impl OnDemand {
    pub(super) fn new(
        start: impl FnOnce() -> Result<Box<dyn Service>, ServeError> + Send + 'static,
    ) -> Self {
        Self {
            started: OnceLock::new(),
            start: Mutex::new(Some(Box::new(start))),
        }
    }

    fn running(&self) -> Option<&dyn Service> {
        self.started.get().map(|service| &**service)
    }

    fn service(&self) -> Result<&dyn Service, VerbsError> {
        let mut start = dunlin_verbs::thread::lock(&self.start);
        if let Some(start) = start.take() {
            let service = start().map_err(|error| match error {
                ServeError::Device(error) => error,
                other => VerbsError::Invalid {
                    argument: "service",
                    why: other.to_string(),
                },
            })?;
            let _ = self.started.set(service);
        }
        self.running().ok_or_else(|| VerbsError::Invalid {
            argument: "service",
            why: "the server takes no more clients on this device".to_owned(),
        })
    }

    /// Prevents any start from now on.
    fn close(&self) {
        drop(dunlin_verbs::thread::lock(&self.start).take());
    }
}

impl Service for OnDemand {
    fn confirm(&self, peer: &EndpointAddress) -> Result<PeerConfirmation, VerbsError> {
        self.service()?.confirm(peer)
    }

    fn accept(
        &self,
        channel: ChannelKind,
        peer: &EndpointAddress,
        parameters: &Parameters,
        caller: Caller,
    ) -> Result<(EndpointAddress, Parameters), AcceptError> {
        self.service()?.accept(channel, peer, parameters, caller)
    }

    fn senders(&self) -> Vec<SenderReport> {
        self.running().map(Service::senders).unwrap_or_default()
    }

    fn connections(&self) -> usize {
        self.running().map_or(0, Service::connections)
    }

    fn count(&self, sum: &mut ServerStatistics) {
        if let Some(service) = self.running() {
            service.count(sum);
        }
    }

    fn packet_counts(&self) -> Vec<(&'static str, u64)> {
        self.running()
            .map(Service::packet_counts)
            .unwrap_or_default()
    }

    fn drain(&self) {
        self.close();
        if let Some(service) = self.running() {
            service.drain();
        }
    }

    fn is_over(&self) -> bool {
        self.running().is_none_or(Service::is_over)
    }

    fn stop(&self) {
        self.close();
        if let Some(service) = self.running() {
            service.stop();
        }
    }

    fn end(&self, deadline: Instant) {
        self.close();
        if let Some(service) = self.running() {
            service.end(deadline);
        }
    }
}
