//! The consumer, which takes messages from the ring (RB² `READMSG`).
//!
//! A [`ConsumerCore`] is the consumer without its queue pair, which is passed to each call ([`RingLink`]); a
//! [`Consumer`] is the two together.

mod guard;
mod head;
mod look;
mod owned;
mod parse;
mod run;
mod sleep;

use std::sync::atomic::Ordering;

use dunlin_verbs::{Device, Region, RemoteAddress, Work};

pub use guard::Arrived;
pub use owned::Consumer;

use crate::design::Design;
use crate::error::RingError;
use crate::geometry::Geometry;
use crate::link::RingLink;
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

/// A consumer without its queue pair, which is passed to each call and must always be the same.
#[derive(Debug)]
pub struct ConsumerCore<D: Device> {
    receiver: Receiver,
    geometry: Geometry,
    design: Design,
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

/// Arguments of [`ConsumerCore::new`].
pub(crate) struct Parts<D: Device> {
    pub(crate) receiver: Receiver,
    pub(crate) geometry: Geometry,
    pub(crate) design: Design,
    pub(crate) array: Inbound<D::Region>,
    pub(crate) inlet: D::Region,
    pub(crate) peer_head: RemoteAddress,
}

impl<D: Device> ConsumerCore<D> {
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

    /// As [`Consumer::receive`].
    #[inline(always)]
    pub fn receive<T>(
        &mut self,
        link: &mut impl RingLink<D>,
        read: impl FnOnce(Message<'_>) -> T,
    ) -> Result<Received<T>, RingError> {
        let arrival = match self.next(link)? {
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
        self.give_back(link, arrival.offset, arrival.length, arrival.units)?;
        Ok(Received::Message(result))
    }

    /// As [`Consumer::receive_many`].
    #[inline]
    pub(crate) fn receive_many(
        &mut self,
        link: &mut impl RingLink<D>,
        most: usize,
        mut read: impl FnMut(Message<'_>),
    ) -> Result<usize, RingError> {
        link.check_process()?;
        let mut count = 0;
        while count < most {
            let run = self.read_run(link, most - count, &mut read)?;
            if run > 0 {
                count += run;
                continue;
            }
            if !matches!(self.receive(link, &mut read)?, Received::Message(())) {
                break;
            }
            count += 1;
        }
        Ok(count)
    }

    /// Passes the next message to `read`, if it has arrived, and then those behind it that are known to have arrived, as
    /// long as each occupies a single slot. Returns their number, at most `most`, which is at least one.
    ///
    /// # Errors
    /// As for [`Consumer::receive`].
    #[inline]
    pub fn receive_run(
        &mut self,
        link: &mut impl RingLink<D>,
        most: usize,
        mut read: impl FnMut(Message<'_>),
    ) -> Result<Received<usize>, RingError> {
        Ok(match self.receive(link, &mut read)? {
            Received::Message(()) => {
                Received::Message(1 + self.read_run(link, most.saturating_sub(1), &mut read)?)
            }
            Received::Empty => Received::Empty,
            Received::End => Received::End,
        })
    }

    /// Whether the next message has arrived, as far as one poll can tell. Only where the tail is a word in memory.
    #[inline]
    pub fn has_arrived(&self) -> bool {
        let tail = self.inlet.memory().atomic_u64(self.geometry.words.tail);
        self.receiver.available() > 0
            || u64::from_le(tail.load(Ordering::Acquire)) != self.receiver.local_tail()
    }

    /// Whether the head is to be pushed and has found no entry of the send queue.
    #[inline]
    pub fn is_push_due(&self) -> bool {
        self.receiver.push_is_due()
    }

    /// As [`Consumer::poll`].
    ///
    /// # Errors
    /// When the connection has failed.
    pub fn poll(&mut self, link: &mut impl RingLink<D>) -> Result<(), RingError> {
        link.check()?;
        if self.receiver.push_is_due() {
            self.push_head(link)?;
        }
        Ok(())
    }
}
