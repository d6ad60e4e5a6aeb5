//! Sleeping until something has arrived.

use dunlin_verbs::Device;

use super::Consumer;
use crate::error::RingError;
use crate::link::{Event, Sleeps, NAMELESS};

impl<D: Device> Sleeps for Consumer<D> {
    fn prepare_sleep(&mut self) -> Result<bool, RingError> {
        let (ready, _) = self.link.prepare_sleep(NAMELESS)?;
        Ok(ready)
    }

    fn event(&self) -> Option<Box<dyn Event>> {
        self.link.event()
    }

    fn probe(&mut self) -> Result<(), RingError> {
        Consumer::probe(self)
    }
}
