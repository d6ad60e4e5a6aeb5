//! Sleeping until the consumer has freed slots, or the device has completed requests.

use dunlin_verbs::Device;

use super::Producer;
use crate::error::RingError;
use crate::link::{Event, Sleeps};

impl<D: Device> Sleeps for Producer<D> {
    fn prepare_sleep(&mut self) -> Result<bool, RingError> {
        let (ready, polled) = self.link.prepare_sleep(self.core.sender.esc_tail())?;
        if let Some(name) = polled.completed {
            self.core.completed(name);
            // There is progress, so do not sleep yet.
            return Ok(false);
        }
        Ok(ready)
    }

    fn event(&self) -> Option<Box<dyn Event>> {
        self.link.event()
    }

    fn probe(&mut self) -> Result<(), RingError> {
        Producer::probe(self)
    }
}
