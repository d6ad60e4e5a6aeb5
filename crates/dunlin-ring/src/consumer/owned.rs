//! A consumer with a queue pair of its own.

use dunlin_verbs::{Device, Region, Work};

use super::{Arrived, ConsumerCore, Received};
use crate::design::{Design, TailSync};
use crate::error::{LengthLimit, RingError};
use crate::link::{Link, RingLink, NAMELESS};
use crate::memory::Message;

/// The reading end of a ring.
#[derive(Debug)]
pub struct Consumer<D: Device> {
    pub(super) core: ConsumerCore<D>,
    pub(super) link: Link<D>,
}

impl<D: Device> Consumer<D> {
    pub(crate) fn new(core: ConsumerCore<D>, link: Link<D>) -> Self {
        Self { core, link }
    }

    /// The point in the design space.
    pub fn design(&self) -> &Design {
        &self.core.design
    }

    /// The message lengths that the ring carries.
    pub fn limit(&self) -> LengthLimit {
        self.core.geometry.limit()
    }

    /// The kind of pages that back the array.
    pub fn page_kind(&self) -> dunlin_verbs::PageKind {
        self.core.inlet.page_kind()
    }

    /// Passes the next message, in place, to `read` (RB² §IV-C: the callback of the receiver), and frees its slots when
    /// `read` returns. If `read` panics, the message remains the next one.
    ///
    /// # Errors
    /// When the producer is gone without closing the ring, or violated the protocol. Messages that arrived in full
    /// before that are returned first. A caller that waits for a long time should call [`Consumer::probe`].
    #[inline(always)]
    pub fn receive<T>(
        &mut self,
        read: impl FnOnce(Message<'_>) -> T,
    ) -> Result<Received<T>, RingError> {
        self.core.receive(&mut self.link, read)
    }

    /// Passes up to `most` messages that have arrived to `read`, and returns their number. Zero means either *nothing
    /// now* or *the end*; [`Consumer::receive`] distinguishes them.
    ///
    /// # Errors
    /// As for [`Consumer::receive`].
    #[inline]
    pub fn receive_many(
        &mut self,
        most: usize,
        read: impl FnMut(Message<'_>),
    ) -> Result<usize, RingError> {
        self.core.receive_many(&mut self.link, most, read)
    }

    /// Returns the next message as a guard: it is read in place, and its slots are freed when the guard is dropped.
    ///
    /// # Errors
    /// As for [`Consumer::receive`].
    #[inline]
    pub fn peek(&mut self) -> Result<Received<Arrived<'_, D>>, RingError> {
        Ok(match self.core.next(&mut self.link)? {
            Received::Message(arrival) => Received::Message(Arrived {
                consumer: self,
                arrival,
            }),
            Received::Empty => Received::Empty,
            Received::End => Received::End,
        })
    }

    /// Copies the next message to the start of `target` and returns its length. A message longer than `target` stays in
    /// the ring, and the received value is `Err` with its length.
    ///
    /// # Errors
    /// As for [`Consumer::receive`].
    #[inline]
    pub fn receive_into(
        &mut self,
        target: &mut [u8],
    ) -> Result<Received<Result<usize, usize>>, RingError> {
        Ok(match self.peek()? {
            Received::Message(arrived) => {
                let message = arrived.message();
                let length = message.len();
                Received::Message(match target.get_mut(..length) {
                    Some(target) => {
                        message.read(0, target);
                        D::charge(Work::Copy(length));
                        arrived.give_back()?;
                        Ok(length)
                    }
                    None => {
                        arrived.leave();
                        Err(length)
                    }
                })
            }
            Received::Empty => Received::Empty,
            Received::End => Received::End,
        })
    }

    /// Does what is due: takes completions and retries a deferred push. A caller that keeps receiving need not call it.
    ///
    /// # Errors
    /// When the connection has failed.
    pub fn poll(&mut self) -> Result<(), RingError> {
        self.core.poll(&mut self.link)
    }

    /// Checks whether the producer is still alive, for a caller that waits for messages. It posts an empty WRITE; if
    /// that is not acknowledged, the ring ends, usually after four seconds. Call it about once a second: a consumer
    /// that waits posts nothing else, and without a request no device notices that a process on another host was
    /// killed. A probe that is still outstanding is not repeated.
    ///
    /// # Errors
    /// When the connection has failed. [`Consumer::receive`] also reports it, after what arrived before.
    pub fn probe(&mut self) -> Result<(), RingError> {
        self.link.check()?;
        // Where completions announce messages, each poll takes them.
        if self.core.design.tail_sync != TailSync::CompletionQueue {
            self.link.poll()?;
        }
        self.link.probe(self.core.peer_head, NAMELESS)
    }

    /// Pushes the head to the producer without waiting for γ.
    ///
    /// # Errors
    /// When the connection has failed.
    pub fn push(&mut self) -> Result<(), RingError> {
        self.link.check_process()?;
        self.core.push_head(&mut self.link)
    }

    /// Tells the producer for the last time what has been read, unless it has closed the ring itself.
    pub(crate) fn leave(&mut self) {
        if !self.core.over && self.push().is_ok() {
            // The last request: once it has completed, the head has arrived. There is no caller left to report a
            // failure to.
            let _ = self.probe();
        }
    }

    /// Whether the head sent by [`Consumer::leave`] is known to have arrived, or can no longer arrive.
    pub(crate) fn has_left(&mut self) -> bool {
        self.link.check().is_err() || self.link.poll().is_err() || !self.link.is_probing()
    }
}

#[cfg(any(all(test, not(loom)), feature = "fuzzing"))]
impl<D: Device> Consumer<D> {
    /// All memory that the producer may write.
    pub(crate) fn inlet_for_tests(&self) -> D::Region {
        self.core.inlet.clone()
    }

    #[cfg(test)]
    pub(crate) fn units_for_tests(&self) -> u64 {
        self.core.geometry.units
    }
}
