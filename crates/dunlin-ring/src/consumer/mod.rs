//! The consumer: where messages leave the ring (RB² `READMSG`).

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

/// What [`Consumer::receive`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received<T> {
    /// A message.
    Message(T),
    /// No message now.
    Empty,
    /// The producer has closed the ring, and everything has been read.
    End,
}

/// Where the next message lies.
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
    /// What the producer writes: words and the array.
    inlet: D::Region,
    /// The producer's copy of our head.
    peer_head: RemoteAddress,
    /// Where messages are copied when the design has no zero copy.
    scratch: Vec<u8>,
    /// Whether messages may be read by runs: `run.rs`.
    runs: bool,
    /// RECEIVEs that were taken and are not posted again.
    owed: usize,
    /// The last look for completions found none.
    looked_in_vain: bool,
    looks: u32,
    /// The end or an error has been told; it is told again by every call.
    over: bool,
}

/// What [`Consumer::new`] is made of.
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

    /// Which lengths the ring carries.
    pub fn limit(&self) -> LengthLimit {
        self.geometry.limit()
    }

    /// The pages below the array.
    pub fn page_kind(&self) -> dunlin_verbs::PageKind {
        self.inlet.page_kind()
    }

    /// Gives the next message, in place, to `read` (RB² §IV-C: the callback of the receiver), and its slots back when
    /// `read` returns. When `read` panics the message stays the next one.
    ///
    /// # Errors
    /// When the producer is gone without an end, or broke the rules. Messages that arrived whole before that are given
    /// out first. Whoever waits long should call [`Consumer::probe`].
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

    /// Gives what has arrived, up to `most` messages, to `read`, and says how many there were. Zero is both *nothing
    /// now* and *the end*: [`Consumer::receive`] tells them apart.
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

    /// The next message as a guard: it is read in place, and its slots are given back when the guard is dropped.
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

    /// Copies the next message to the start of `target` and says how long it is. A message that is longer than `target`
    /// stays where it is, and its length is the `Err` of the message.
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

    /// Does what is due: takes completions and retries a push that was deferred. Those who go on receiving need not
    /// call it.
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

    /// Asks whether the producer is still there, for whoever waits for messages: it posts a WRITE of nothing, and that
    /// nobody answers ends the ring, after four seconds as a rule. Call it about once a second. Who waits posts nothing
    /// else, and of a process that was killed on another host no device hears by itself. One that is not answered yet
    /// is not repeated.
    ///
    /// # Errors
    /// When the connection has failed. [`Consumer::receive`] tells it too, after what arrived before that.
    pub fn probe(&mut self) -> Result<(), RingError> {
        self.link.check()?;
        // Where completions tell of messages, each look takes them.
        if self.design.tail_sync != TailSync::CompletionQueue {
            self.link.poll()?;
        }
        self.link.probe(self.peer_head, NAMELESS)
    }

    /// Tells the producer of everything that was read, without waiting for γ.
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
    /// All that the producer may write.
    pub(crate) fn inlet_for_tests(&self) -> D::Region {
        self.inlet.clone()
    }

    #[cfg(test)]
    pub(crate) fn units_for_tests(&self) -> u64 {
        self.geometry.units
    }
}
