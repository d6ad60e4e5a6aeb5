//! Messages through RB²'s distributed ring buffer, one for each direction, on the channel's own queue pair: the ring as
//! the layer under an RPC (RB² §I, §VI). `dunlin-ring` has the ring; this module makes messages in its slots, and
//! copies those that have arrived together out of the peer's.
//!
//! ```text
//! a ring's message:  header 16 B | payload
//! ```
//!
//! A message is made in the slot that is sent (zero copy at the producer) and is batched with those behind it: slots
//! are transmitted by β, the tail is advanced by α or with the flush that ends the caller's batch, and the reader
//! returns its head lazily, by γ. Everything else is the [`Carrier`]'s: sleeping, long payloads, one-sided operations.

use std::ops::{Deref, DerefMut};

use dunlin_ring::{ConsumerCore, Message, ProducerCore, Received, RingError, SendError};
use dunlin_verbs::{Device, QueuePair, QueuePairState, Work};

use super::carrier::Carrier;
use super::message::{Header, Kind, HEADER_BYTES};
use super::{Channel, ChannelError, Exchange};
use crate::effort;

mod connect;
mod link;
mod taken;

use taken::Taken;

/// Two rings of RB² over one queue pair.
#[derive(Debug)]
pub(crate) struct Rb2Channel<D: Device> {
    carrier: Carrier<D>,
    producer: ProducerCore<D>,
    consumer: ConsumerCore<D>,
    /// Maximum length of a payload that is sent with its message.
    eager_bytes: usize,
    taken: Taken,
}

impl<D: Device> Deref for Rb2Channel<D> {
    type Target = Carrier<D>;

    #[inline]
    fn deref(&self) -> &Carrier<D> {
        &self.carrier
    }
}

impl<D: Device> DerefMut for Rb2Channel<D> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Carrier<D> {
        &mut self.carrier
    }
}

impl<D: Device> Rb2Channel<D> {
    /// Ends the channel because a ring has ended, with the reason that the carrier knows.
    #[cold]
    fn fail_by(&mut self, error: RingError) -> ChannelError {
        if self.carrier.broken.is_none() {
            if let Err(reason) = self.carrier.progress() {
                return reason;
            }
        }
        self.carrier.fail(link::error_of(error))
    }

    /// Sends the next message, whose payload of this length is in its place.
    #[inline]
    fn send(&mut self, header: Header) {
        D::charge(effort::ADDED);
        let length = HEADER_BYTES + header.length as usize;
        let place = self.producer.next(HEADER_BYTES);
        place.copy_from_slice(&header.encode());
        if let Err(error) = self.producer.send_next(&mut self.carrier, length) {
            // The next flush reports it.
            self.fail_by(error);
        }
    }

    /// Takes the messages that have arrived out of the ring, in place of the last ones. `false`: there are none.
    #[inline]
    fn take(&mut self) -> Result<bool, ChannelError> {
        let taken = &mut self.taken;
        taken.clear();
        let mut fit = true;
        let copy = |message: Message<'_>| fit &= taken.copy(message);
        match self
            .consumer
            .receive_run(&mut self.carrier, taken::MOST, copy)
        {
            Ok(Received::Message(_)) if fit => {}
            Ok(Received::Message(_)) => return Err(self.violated("a message longer than agreed")),
            Ok(Received::Empty) => {
                self.catch_up()?;
                return Ok(false);
            }
            Ok(Received::End) => return Err(self.violated("the end of a ring that does not end")),
            Err(error) => return Err(self.fail_by(error)),
        }
        D::charge(Work::Arrived);
        D::charge(Work::Copy(self.taken.bytes()));
        self.carrier.met = true;
        self.note_push();
        Ok(true)
    }

    /// To be called after a poll without success.
    #[inline]
    fn catch_up(&mut self) -> Result<(), ChannelError> {
        match self.carrier.is_short() {
            true => self.flush(),
            false => Ok(()),
        }
    }

    /// Notes that the head is to be pushed later: the peer may wait for that only.
    #[inline]
    fn note_push(&mut self) {
        if self.consumer.is_push_due() {
            self.carrier.be_short();
        }
    }
}

impl<D: Device> Channel for Rb2Channel<D> {
    type Device = D;

    #[inline]
    fn eager_bytes(&self) -> usize {
        self.eager_bytes
    }

    #[inline]
    fn make_room(&mut self, payload: usize) -> Result<bool, ChannelError> {
        let whole = HEADER_BYTES + payload;
        match self.producer.make_room(&mut self.carrier, whole) {
            Ok(()) => Ok(true),
            Err(SendError::Full) => {
                D::charge(Work::Poll);
                self.catch_up()?;
                Ok(false)
            }
            Err(SendError::Ring(error)) => Err(self.fail_by(error)),
            // The caller keeps to the eager bytes, and only the end of the channel closes its ring.
            Err(_) => Err(self.carrier.fail(ChannelError::overrun())),
        }
    }

    #[inline]
    fn push(&mut self, kind: Kind, handler: u16, call: u64, payload: &[u8]) {
        D::charge(Work::Copy(payload.len()));
        let bytes = self.producer.next(HEADER_BYTES + payload.len());
        super::short_copy::copy(&mut bytes[HEADER_BYTES..], payload);
        self.send(Header::new(kind, handler, call, payload.len()));
    }

    #[inline]
    fn request_space(&mut self, length: usize) -> Option<&mut [u8]> {
        Some(&mut self.producer.next(HEADER_BYTES + length)[HEADER_BYTES..])
    }

    #[inline]
    fn push_written(&mut self, handler: u16, call: u64, length: usize) {
        D::charge(Work::Copy(length));
        self.send(Header::new(Kind::Request, handler, call, length));
    }

    #[inline]
    fn exchange(&mut self, header: Header, has_room: bool) -> Exchange<'_, D> {
        let place = match has_room {
            true => &mut self.producer.next(HEADER_BYTES + self.eager_bytes)[HEADER_BYTES..],
            false => &mut [],
        };
        (self.taken.payload(header), place, self.carrier.exports())
    }

    #[inline]
    fn commit(&mut self, call: u64, length: usize) {
        D::charge(Work::Copy(length));
        self.send(Header::new(Kind::Response, 0, call, length));
    }

    #[inline]
    fn flush(&mut self) -> Result<(), ChannelError> {
        self.carrier.take_short();
        let flushed = self.producer.flush(&mut self.carrier);
        let flushed = flushed.and_then(|()| self.consumer.poll(&mut self.carrier));
        if let Err(error) = flushed {
            return Err(self.fail_by(error));
        }
        if !self.producer.is_flushed() {
            self.carrier.be_short();
        }
        self.note_push();
        match &self.carrier.broken {
            None => Ok(()),
            Some(error) => Err(error.clone()),
        }
    }

    fn end_batch(&mut self) -> Result<(), ChannelError> {
        match self.carrier.config().answer_each_message {
            true => self.flush(),
            false => Ok(()),
        }
    }

    #[inline]
    fn receive(&mut self) -> Result<Option<Header>, ChannelError> {
        if self.taken.is_empty() && !self.take()? {
            return Ok(None);
        }
        D::charge(effort::OPENED);
        let next = self.taken.next();
        next.map(Some).map_err(|what| self.violated(what))
    }

    #[inline]
    fn payload(&self, header: Header) -> &[u8] {
        self.taken.payload(header)
    }

    #[inline]
    fn has_arrival(&self) -> bool {
        !self.taken.is_empty() || self.consumer.has_arrived()
    }

    fn may_have_room(&self) -> bool {
        let longest = HEADER_BYTES + self.eager_bytes;
        self.carrier.is_short() || self.producer.may_have_room(&self.carrier, longest)
    }

    #[inline]
    fn is_idle(&self) -> bool {
        let carrier = &self.carrier;
        !self.has_arrival()
            && !carrier.is_short()
            && !carrier.is_fetching()
            && !carrier.has_one_sided()
    }

    /// Retries a push of the head that found no entry of the send queue.
    fn tell_consumed(&mut self) -> Result<(), ChannelError> {
        let told = self.consumer.poll(&mut self.carrier);
        self.note_push();
        told.map_err(|error| self.fail_by(error))
    }

    /// Ends the channel. The dialling side tells its peer, if it can.
    fn close(&mut self) {
        let carrier = &self.carrier;
        let whole =
            carrier.broken.is_none() && carrier.queue_pair.state() == QueuePairState::ReadyToSend;
        let has_entries = carrier.has_entries(8);
        if carrier.dialled && whole && has_entries && self.producer.is_flushed() {
            if let Ok(true) = self.make_room(0) {
                self.push(Kind::Goodbye, 0, 0, &[]);
                let _ = self.flush();
            }
        }
        self.carrier.queue_pair.to_error();
    }
}

impl<D: Device> Rb2Channel<D> {
    #[cold]
    fn violated(&mut self, what: &'static str) -> ChannelError {
        self.carrier.fail(ChannelError::violation(what))
    }
}
