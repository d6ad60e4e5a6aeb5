//! The consumer, which takes messages from the ring (RB² `READMSG`).

mod guard;
mod head;
mod look;
mod parse;
mod run;
mod sleep;

use dunlin_verbs::{Device, Region, RemoteAddress, Work};

pub use guard::Arrived;

use crate::design::{Design, TailSync};
use crate::error::{LengthLimit, RingError};
use crate::geometry::Geometry;
use crate::link::{Link, NAMELESS};
use crate::memory::{Inbound, Message};
use crate::policy::Receiver;

/// The result of [`Consumer::receive`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received<T> {
    /// A message.
    Message(T),
    /// No message at present.
    Empty,
    /// The producer has closed the ring, and everything has been read.
    End,
}

/// Location of the next message.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    offset: usize,
    length: usize,
    units: u64,
}

/// The reading end of a ring.
#[derive(Debug)]
pub struct Consumer<D: Device> {
    receiver: Receiver,
    geometry: Geometry,
    design: Design,
    link: Link<D>,
    array: Inbound<D::Region>,
    /// The memory that the producer writes: words and the array.
    inlet: D::Region,
    /// The producer's copy of this side's head.
    peer_head: RemoteAddress,
    /// Buffer into which messages are copied when the design has no zero copy.
    scratch: Vec<u8>,
    /// Whether messages may be read in runs; see `run.rs`.
    runs: bool,
    /// RECEIVEs that were consumed and have not been posted again.
    owed: usize,
    /// Whether the last poll for completions found none.
    looked_in_vain: bool,
    looks: u32,
    /// Whether the end or an error has been reported; every later call reports it again.
    over: bool,
}

/// Arguments of [`Consumer::new`].
pub(crate) struct Parts<D: Device> {
    pub(crate) receiver: Receiver,
    pub(crate) geometry: Geometry,
    pub(crate) design: Design,
    pub(crate) link: Link<D>,
    pub(crate) array: Inbound<D::Region>,
    pub(crate) inlet: D::Region,
    pub(crate) peer_head: RemoteAddress,
}

impl<D: Device> Consumer<D> {
    pub(crate) fn new(parts: Parts<D>) -> Self {
        let scratch = if parts.design.zero_copy {
            Vec::new()
        } else {
            vec![0; parts.geometry.longest]
        };
        let runs =
            parts.design.zero_copy && !parts.design.polls_messages() && parts.geometry.makes_runs();
        Self {
            receiver: parts.receiver,
            geometry: parts.geometry,
            design: parts.design,
            link: parts.link,
            array: parts.array,
            inlet: parts.inlet,
            peer_head: parts.peer_head,
            scratch,
            runs,
            owed: 0,
            looked_in_vain: false,
            looks: 0,
            over: false,
        }
    }

    /// The point in the design space.
    pub fn design(&self) -> &Design {
        &self.design
    }

    /// The message lengths that the ring carries.
    pub fn limit(&self) -> LengthLimit {
        self.geometry.limit()
    }

    /// The kind of pages that back the array.
    pub fn page_kind(&self) -> dunlin_verbs::PageKind {
        self.inlet.page_kind()
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
        let arrival = match self.next()? {
            Received::Message(arrival) => arrival,
            Received::Empty => return Ok(Received::Empty),
            Received::End => return Ok(Received::End),
        };
        let message = self.array.message(arrival.offset, arrival.length);
        let result = if self.design.zero_copy {
            read(message)
        } else {
            let copy = &mut self.scratch[..arrival.length];
            message.read(0, copy);
            D::charge(Work::Copy(copy.len()));
            read(Message::private(copy))
        };
        self.give_back(arrival.offset, arrival.length, arrival.units)?;
        Ok(Received::Message(result))
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
        mut read: impl FnMut(Message<'_>),
    ) -> Result<usize, RingError> {
        self.link.check_process()?;
        let mut count = 0;
        while count < most {
            let run = self.read_run(most - count, &mut read)?;
            if run > 0 {
                count += run;
                continue;
            }
            if !matches!(self.receive(&mut read)?, Received::Message(())) {
                break;
            }
            count += 1;
        }
        Ok(count)
    }

    /// Returns the next message as a guard: it is read in place, and its slots are freed when the guard is dropped.
    ///
    /// # Errors
    /// As for [`Consumer::receive`].
    #[inline]
    pub fn peek(&mut self) -> Result<Received<Arrived<'_, D>>, RingError> {
        Ok(match self.next()? {
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
        self.link.check()?;
        if self.receiver.push_is_due() {
            self.push_head()?;
        }
        Ok(())
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
        if self.design.tail_sync != TailSync::CompletionQueue {
            self.link.poll()?;
        }
        self.link.probe(self.peer_head, NAMELESS)
    }

    /// Pushes the head to the producer without waiting for γ.
    ///
    /// # Errors
    /// When the connection has failed.
    pub fn push(&mut self) -> Result<(), RingError> {
        self.link.check_process()?;
        self.push_head()
    }
}

#[cfg(any(all(test, not(loom)), feature = "fuzzing"))]
impl<D: Device> Consumer<D> {
    /// All memory that the producer may write.
    pub(crate) fn inlet_for_tests(&self) -> D::Region {
        self.inlet.clone()
    }

    #[cfg(test)]
    pub(crate) fn units_for_tests(&self) -> u64 {
        self.geometry.units
    }
}
