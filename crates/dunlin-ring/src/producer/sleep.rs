//! Sleeping until the consumer has given something back, or the device has finished something.

use dunlin_verbs::Device;

use super::Producer;
use crate::error::RingError;
use crate::link::{Event, Sleeping};

impl<D: Device> Producer<D> {
    /// Announces a sleep; `true` when the consumer knows of it and the event is armed.
    pub(crate) fn prepare_sleep(&mut self) -> Result<bool, RingError> {
        let (ready, polled) = self.link.prepare_sleep(self.sender.esc_tail())?;
        if let Some(name) = polled.completed {
            self.completed(name);
            // What waited for it may go on: not yet to sleep.
            return Ok(false);
        }
        Ok(ready)
    }

    /// What to sleep on, where this ring has it.
    pub(crate) fn event(&self) -> Option<Box<dyn Event>> {
        self.link.sleeping.as_ref().map(Sleeping::event)
    }
}
