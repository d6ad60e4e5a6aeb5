//! A received message as a guard.

use dunlin_verbs::Device;

use super::{Arrival, Consumer};
use crate::error::RingError;
use crate::memory::Message;

/// A received message, read in place. Its slots are freed when the guard is dropped.
#[derive(Debug)]
pub struct Arrived<'a, D: Device> {
    pub(super) consumer: &'a mut Consumer<D>,
    pub(super) arrival: Arrival,
}

impl<D: Device> Arrived<'_, D> {
    /// The message.
    #[inline]
    pub fn message(&self) -> Message<'_> {
        let Arrival { offset, length, .. } = self.arrival;
        self.consumer.core.array.message(offset, length)
    }

    /// Leaves the message in the ring, where it remains the next one.
    pub fn leave(mut self) {
        self.arrival.units = 0;
    }

    /// Frees the slots now.
    ///
    /// # Errors
    /// When the connection has failed.
    pub fn give_back(mut self) -> Result<(), RingError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), RingError> {
        let Arrival {
            offset,
            length,
            units,
        } = self.arrival;
        self.arrival.units = 0;
        if units == 0 {
            return Ok(());
        }
        let Consumer { core, link } = &mut *self.consumer;
        core.give_back(link, offset, length, units)
    }
}

impl<D: Device> Drop for Arrived<'_, D> {
    fn drop(&mut self) {
        // If the connection has failed, the next call reports it.
        let _ = self.end();
    }
}
