//! A message that has arrived, as a guard.

use dunlin_verbs::Device;

use super::{Arrival, Consumer};
use crate::error::RingError;
use crate::memory::Message;

/// A message that has arrived, read in place. Its slots are given back when it is dropped.
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
        self.consumer.array.message(offset, length)
    }

    /// Leaves the message in the ring; it is the next one again.
    pub fn leave(mut self) {
        self.arrival.units = 0;
    }

    /// Gives the slots back now.
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
        self.consumer.give_back(offset, length, units)
    }
}

impl<D: Device> Drop for Arrived<'_, D> {
    fn drop(&mut self) {
        // A connection that failed is told by the next call.
        let _ = self.end();
    }
}
