//! Reserved space in the ring.

use dunlin_verbs::Device;

use super::Producer;
use crate::error::RingError;

/// Space for one message in the producer's array. If dropped without [`Reservation::commit`], no message is sent.
#[derive(Debug)]
#[must_use = "a reservation must be committed to send anything"]
pub struct Reservation<'a, D: Device> {
    producer: &'a mut Producer<D>,
    offset: usize,
    length: usize,
}

impl<'a, D: Device> Reservation<'a, D> {
    pub(crate) fn new(producer: &'a mut Producer<D>, offset: usize, length: usize) -> Self {
        Self {
            producer,
            offset,
            length,
        }
    }

    /// The bytes, to be filled; initially they hold the remains of an earlier message. The slice is plain memory: no
    /// peer can access this side's array, and the device reads it only after the commit.
    pub fn bytes(&mut self) -> &mut [u8] {
        self.producer.room(self.offset, self.length)
    }

    /// Sends the message.
    ///
    /// # Errors
    /// When the ring has ended.
    pub fn commit(self) -> Result<(), RingError> {
        self.producer.commit(self.offset, self.length)
    }

    /// Sends the first `length` bytes as the message.
    ///
    /// # Errors
    /// When the ring has ended.
    ///
    /// # Panics
    /// When `length` is more than was reserved, or the ring carries only messages of another length.
    pub fn commit_first(self, length: usize) -> Result<(), RingError> {
        assert!(
            length <= self.length && self.producer.carries(length),
            "a message must be within its reservation and of a length that the ring carries"
        );
        self.producer.commit(self.offset, length)
    }
}
