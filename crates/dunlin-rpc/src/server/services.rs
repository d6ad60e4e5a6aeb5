//! The table of a server's services, by the names of their devices. A service that few clients use is started for the
//! first of them.

use std::sync::{Mutex, OnceLock};

use dunlin_verbs::VerbsError;

use super::service::Service;
use crate::error::ServeError;

/// Starts a service.
type Start = Box<dyn FnOnce() -> Result<Box<dyn Service>, ServeError> + Send>;

/// A device's name and its service.
pub(super) struct NamedService {
    pub(super) name: String,
    running: OnceLock<Box<dyn Service>>,
    /// `None` if it was started, could not be started, or must no longer be.
    start: Mutex<Option<Start>>,
}

impl NamedService {
    pub(super) fn new(name: String, service: Box<dyn Service>) -> Self {
        Self {
            name,
            running: service.into(),
            start: Mutex::default(),
        }
    }

    /// A service that is started for its first client.
    pub(super) fn on_demand(
        name: String,
        start: impl FnOnce() -> Result<Box<dyn Service>, ServeError> + Send + 'static,
    ) -> Self {
        Self {
            name,
            running: OnceLock::new(),
            start: Mutex::new(Some(Box::new(start))),
        }
    }

    /// The service, unless it was not needed so far.
    pub(super) fn running(&self) -> Option<&dyn Service> {
        self.running.get().map(|service| &**service)
    }

    /// The service for a client, which starts it if it is the first.
    pub(super) fn for_client(&self) -> Result<&dyn Service, VerbsError> {
        if let Some(service) = self.running() {
            return Ok(service);
        }
        // Held while it starts: other clients wait for it.
        let mut start = dunlin_verbs::thread::lock(&self.start);
        if let Some(start) = start.take() {
            let service = start().map_err(|error| match error {
                ServeError::Device(error) => error,
                other => VerbsError::Invalid {
                    argument: "service",
                    why: other.to_string(),
                },
            })?;
            let _ = self.running.set(service);
        }
        self.running().ok_or_else(|| VerbsError::Invalid {
            argument: "service",
            why: "the server no longer accepts clients on this device".to_owned(),
        })
    }

    /// Prevents any start from now on; returns the service if it was started before.
    pub(super) fn close(&self) -> Option<&dyn Service> {
        drop(dunlin_verbs::thread::lock(&self.start).take());
        self.running()
    }
}
