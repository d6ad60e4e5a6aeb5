//! A producer with a queue pair of its own.

use dunlin_verbs::{Device, Region};

use super::{ProducerCore, Reservation};
use crate::design::Design;
use crate::error::{LengthLimit, RingError, SendError};
use crate::link::{Link, RingLink};

/// The writing end of a ring.
#[derive(Debug)]
pub struct Producer<D: Device> {
    pub(super) core: ProducerCore<D>,
    pub(super) link: Link<D>,
}

impl<D: Device> Producer<D> {
    pub(crate) fn new(core: ProducerCore<D>, link: Link<D>) -> Self {
        Self { core, link }
    }

    /// The point in the design space.
    pub fn design(&self) -> &Design {
        &self.core.design
    }

    /// The message lengths that the ring carries.
    pub fn limit(&self) -> LengthLimit {
        self.core.limit()
    }

    /// The kind of pages that back the array.
    pub fn page_kind(&self) -> dunlin_verbs::PageKind {
        self.core.local.place(0).0.page_kind()
    }

    /// Sends a copy of `message`.
    ///
    /// # Errors
    /// [`SendError::Full`] when the consumer has not read enough: poll and try again, and if that takes long, call
    /// [`Producer::probe`]. Also when the ring does not carry messages of this length, or has ended.
    #[inline]
    pub fn try_send(&mut self, message: &[u8]) -> Result<(), SendError> {
        self.core.try_send(&mut self.link, message)
    }

    /// Sends a message of `length` bytes that `fill` writes directly into the ring (RB² §IV-C, zero copy at the
    /// sender). The bytes initially hold the remains of an earlier message.
    ///
    /// # Errors
    /// As for [`Producer::try_send`]; `fill` is then not called.
    #[inline]
    pub fn try_send_with(
        &mut self,
        length: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), SendError> {
        self.core.try_send_with(&mut self.link, length, fill)
    }

    /// Reserves space in the ring for a message of at most `length` bytes, to be filled and committed.
    ///
    /// # Errors
    /// As for [`Producer::try_send`].
    #[inline]
    pub fn reserve(&mut self, length: usize) -> Result<Reservation<'_, D>, SendError> {
        self.link.check_process()?;
        let offset = self.core.claim(&mut self.link, length)?;
        Ok(Reservation::new(self, offset, length))
    }

    /// Publishes everything that was sent to the consumer, without waiting for the thresholds. If the send queue is
    /// full, [`Producer::poll`] does it later.
    ///
    /// # Errors
    /// When the ring has ended.
    #[inline]
    pub fn flush(&mut self) -> Result<(), RingError> {
        self.core.flush(&mut self.link)
    }

    /// As [`RingLink::check_process`].
    pub(crate) fn check_process(&self) -> Result<(), RingError> {
        self.link.check_process()
    }

    /// Checks whether the consumer is still alive, for a caller that waits for space: see
    /// [`probe`](crate::Consumer::probe) of the other end.
    ///
    /// # Errors
    /// When the ring has ended.
    pub fn probe(&mut self) -> Result<(), RingError> {
        self.link.check()?;
        self.core.take_completions(&mut self.link)?;
        let (tail, name) = (self.core.places.tail, self.core.sender.esc_tail());
        self.link.probe(tail, name)
    }

    /// Whether everything has been published to the consumer.
    pub fn is_flushed(&self) -> bool {
        self.core.is_flushed()
    }

    /// Does what is due: takes completions, retries deferred steps, and flushes a partial batch if nothing was sent
    /// since the last call, which shows that the sender is idle (design §5). If the ring is full and the consumer has
    /// enough to read, the flush waits for 64 calls.
    ///
    /// # Errors
    /// When the ring has ended.
    #[inline]
    pub fn poll(&mut self) -> Result<(), RingError> {
        self.core.poll(&mut self.link)
    }

    /// Closes the ring: the consumer reads what was sent and then finds the end. Poll until [`Producer::is_closed`]
    /// before dropping the producer, or the last messages may be lost.
    ///
    /// # Errors
    /// When the ring has failed.
    pub fn close(&mut self) -> Result<(), RingError> {
        self.core.close(&mut self.link)
    }

    /// Whether the end, and so everything before it, is known to have arrived.
    pub fn is_closed(&self) -> bool {
        self.core.is_closed(&self.link)
    }

    /// As [`ProducerCore::has_all_arrived`].
    pub(crate) fn has_all_arrived(&mut self) -> Option<bool> {
        self.core.has_all_arrived(&mut self.link)
    }

    /// Whether the end was passed to the device.
    pub(crate) fn has_told_end(&self) -> bool {
        self.core.has_told_end()
    }

    /// Whether the consumer has read everything that was sent, as far as it has reported.
    ///
    /// # Errors
    /// When the consumer has violated the protocol.
    pub fn is_drained(&mut self) -> Result<bool, RingError> {
        self.core.is_drained(&mut self.link)
    }

    /// Whether a message of this length can be sent at all.
    pub(super) fn carries(&self, length: usize) -> bool {
        self.core.carries(length)
    }

    /// As [`ProducerCore::room`].
    #[inline(always)]
    pub(super) fn room(&mut self, offset: usize, length: usize) -> &mut [u8] {
        self.core.room(offset, length)
    }

    /// As [`ProducerCore::commit`].
    #[inline(always)]
    pub(super) fn commit(&mut self, offset: usize, length: usize) -> Result<(), RingError> {
        self.core.commit(&mut self.link, offset, length)
    }
}

#[cfg(any(all(test, not(loom)), feature = "fuzzing"))]
impl<D: Device> Producer<D> {
    /// All memory that the consumer may write.
    pub(crate) fn inlet_for_tests(&self) -> D::Region {
        self.core.inlet.clone()
    }
}
