//! Sleeping until the consumer has freed slots, or the device has completed requests.

use dunlin_verbs::Device;

use super::Producer;
use crate::error::RingError;
use crate::link::{Event, Sleeping};

impl<D: Device> Producer<D> {
    /// Announces a sleep; returns `true` once the consumer knows of it and the event is armed.
    pub(crate) fn prepare_sleep(&mut self) -> Result<bool, RingError> {
        let (ready, polled) = self.link.prepare_sleep(self.sender.esc_tail())?;
        if let Some(name) = polled.completed {
            self.completed(name);
            // There is progress, so do not sleep yet.
            return Ok(false);
        }
        Ok(ready)
    }

    /// The event to sleep on, if this ring has one.
    pub(crate) fn event(&self) -> Option<Box<dyn Event>> {
        self.link.sleeping.as_ref().map(Sleeping::event)
    }
}
