//! Sleeping until something has arrived.

use dunlin_verbs::Device;

use super::Consumer;
use crate::error::RingError;
use crate::link::{Event, Sleeping, NAMELESS};

impl<D: Device> Consumer<D> {
    /// Announces a sleep; `true` when the producer knows of it and the event is armed.
    pub(crate) fn prepare_sleep(&mut self) -> Result<bool, RingError> {
        let (ready, _) = self.link.prepare_sleep(NAMELESS)?;
        Ok(ready)
    }

    /// What to sleep on, where this ring has it.
    pub(crate) fn event(&self) -> Option<Box<dyn Event>> {
        self.link.sleeping.as_ref().map(Sleeping::event)
    }
}
