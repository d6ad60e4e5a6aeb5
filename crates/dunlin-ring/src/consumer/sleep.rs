//! Sleeping until something has arrived.

use dunlin_verbs::Device;

use super::Consumer;
use crate::error::RingError;
use crate::link::{Event, Sleeping, NAMELESS};

impl<D: Device> Consumer<D> {
    /// Announces a sleep; returns `true` once the producer knows of it and the event is armed.
    pub(crate) fn prepare_sleep(&mut self) -> Result<bool, RingError> {
        let (ready, _) = self.link.prepare_sleep(NAMELESS)?;
        Ok(ready)
    }

    /// The event to sleep on, if this ring has one.
    pub(crate) fn event(&self) -> Option<Box<dyn Event>> {
        self.link.sleeping.as_ref().map(Sleeping::event)
    }
}
