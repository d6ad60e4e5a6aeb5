//! Channels: message transport with flow control, so that both sides agree on what is free and what is complete.
//!
//! A [`Channel`] carries messages over a connected queue pair; what all channels share is in [`carrier::Carrier`]. The
//! ring channel of the preset `plain`: each side has a ring in its own memory into which the peer WRITEs. A [`message`]
//! travels in a [`batch`] that contains its own arrival flag, so a reader polls the line that it will read. An
//! [`outbox::Outbox`] encodes, an [`inbox::Inbox`] finds and checks, and [`ring::RingChannel`] connects both to a queue
//! pair. Payloads too long for it are fetched by READ from [`buffers`]. The message pool ([`pool`]) gives each message
//! a block of its own, [`sent`] a SEND; [`datagram`]s need no connection.

use std::fmt::Debug;
use std::ops::DerefMut;
use std::sync::Arc;

use dunlin_verbs::{Device, QueuePair};

pub(crate) mod batch;
pub(crate) mod buffers;
pub(crate) mod call_id;
pub(crate) mod carrier;
pub(crate) mod datagram;
#[cfg(all(test, not(loom)))]
mod form_tests;
pub(crate) mod inbox;
mod lines;
#[cfg(all(test, loom))]
mod loom_tests;
pub(crate) mod message;
pub(crate) mod message_place;
#[cfg(all(test, not(loom)))]
mod model_tests;
pub(crate) mod one_sided;
pub(crate) mod opening;
pub(crate) mod outbox;
pub(crate) mod parameters;
pub(crate) mod pool;
pub(crate) mod rb2;
pub(crate) mod ring;
#[cfg(all(test, not(loom)))]
mod room_tests;
pub(crate) mod sent;
pub(crate) mod short_copy;
mod short_messages;
pub(crate) mod upcoming;

use buffers::{Buffer, BufferPool};
use carrier::Carrier;
use message::{Header, Kind, DESCRIPTOR_BYTES};
use ring::RingChannel;
use upcoming::Upcoming;

pub(crate) use carrier::CLASS_PARAMETER;
pub(crate) use parameters::Parameters;

/// Memory of the peer that is mapped here.
pub(crate) type Mapped<D> = <<D as Device>::QueuePair as QueuePair>::Mapped;

/// A request's payload, the place of its response, and the pool that provides memory for a long one.
pub(crate) type Exchange<'a, D> = (&'a [u8], &'a mut [u8], &'a Arc<BufferPool<D>>);

/// A short request passed to its server.
pub(crate) struct Asked<'a, D: Device> {
    pub(crate) handler: u16,
    pub(crate) call: u64,
    pub(crate) payload: &'a [u8],
    /// The place of a short response.
    pub(crate) place: &'a mut [u8],
    /// The pool that provides memory for a long response.
    pub(crate) exports: &'a Arc<BufferPool<D>>,
}

/// Bidirectional messages over one queue pair, as lanes and servers see them.
pub(crate) trait Channel:
    DerefMut<Target = Carrier<<Self as Channel>::Device>> + Debug + Send
{
    /// The device of the queue pair.
    type Device: Device;

    /// Whether call names fit into short headers; otherwise the channel defines part of a name's contents.
    const SHORT_NAMES: bool = false;

    /// Maximum length of a payload that is sent with its message.
    fn eager_bytes(&self) -> usize;

    /// Maximum number of calls outstanding at once, whatever the user allows.
    fn most_calls(&self) -> usize {
        usize::MAX
    }

    /// Makes room for a message with `payload` bytes. `false`: not now.
    fn make_room(&mut self, payload: usize) -> Result<bool, ChannelError>;

    /// Queues a message; it is sent with the next flush at the latest. The caller has made room and keeps to
    /// [`Channel::eager_bytes`].
    fn push(&mut self, kind: Kind, handler: u16, call: u64, payload: &[u8]);

    /// As [`Channel::push`], for a request: done for every call, and inlined for that reason.
    #[inline]
    fn push_request(&mut self, handler: u16, call: u64, payload: &[u8]) {
        self.push(Kind::Request, handler, call, payload);
    }

    /// The place where a request of `length` bytes may be written as it will be sent, followed directly by
    /// [`Channel::push_written`]. The caller has made room and keeps to [`Channel::eager_bytes`]. `None`: this channel
    /// has no such place.
    #[inline]
    fn request_space(&mut self, _length: usize) -> Option<&mut [u8]> {
        None
    }

    /// Queues the request whose payload was written into all of [`Channel::request_space`].
    fn push_written(&mut self, _handler: u16, _call: u64, _length: usize) {
        unreachable!("a channel without a place for requests");
    }

    /// Queues a message that describes where the payload in `buffer` is.
    fn push_long(&mut self, kind: Kind, handler: u16, call: u64, buffer: &Buffer<Self::Device>) {
        self.push(kind, handler, call, &buffer.descriptor().encode());
    }

    /// What a handler needs: the payload of the last received message, and the place for the response's, if the caller
    /// has made room for it.
    fn exchange(&mut self, header: Header, has_room: bool) -> Exchange<'_, Self::Device>;

    /// Queues the response whose payload, of `length` bytes, was written at the place returned by
    /// [`Channel::exchange`].
    fn commit(&mut self, call: u64, length: usize);

    /// Posts queued messages to the device, and wakes the peer if it sleeps.
    fn flush(&mut self) -> Result<(), ChannelError>;

    /// Called before a server polls for the next message: writes the responses to the last batch, unless they are to be
    /// combined with those to another. This takes room, so it comes before any is made.
    fn end_batch(&mut self) -> Result<(), ChannelError> {
        Ok(())
    }

    /// Takes the next message.
    fn receive(&mut self) -> Result<Option<Header>, ChannelError>;

    /// Passes short requests that have arrived to `run`, in order, each with room for its response, and queues the
    /// response when `run` returns its length. Ends when there are no more requests or no room, when `most` messages
    /// were taken, or at a message that is not a short request or to which `run` returned no response: that message was
    /// received as by [`Channel::receive`] and its header is returned. Returns also the number of messages taken. Where
    /// several requests arrive at once, `ahead` sees all of them first.
    #[inline]
    fn serve(
        &mut self,
        most: usize,
        _ahead: &mut impl FnMut(Upcoming<'_>),
        run: &mut impl FnMut(Asked<'_, Self::Device>) -> Option<usize>,
    ) -> Result<(usize, Option<Header>), ChannelError> {
        for served in 0..most {
            // Room first: a request that is taken must be answered; otherwise it waits where it is.
            if !self.make_room(self.eager_bytes())? {
                return Ok((served, None));
            }
            let Some(header) = self.receive()? else {
                return Ok((served, None));
            };
            if header.kind != Kind::Request {
                return Ok((served + 1, Some(header)));
            }
            let (payload, place, exports) = self.exchange(header, true);
            let asked = Asked {
                handler: header.handler,
                call: header.call,
                payload,
                place,
                exports,
            };
            match run(asked) {
                Some(length) => self.commit(header.call, length),
                None => return Ok((served + 1, Some(header))),
            }
        }
        Ok((most, None))
    }

    /// Passes short responses that have arrived to `answer`, in order, until there are no more, `most` messages were
    /// taken, or a message of another kind arrived: that was received as by [`Channel::receive`] and its header is
    /// returned. Returns also the number of messages taken.
    #[inline]
    fn take_answers(
        &mut self,
        most: usize,
        answer: &mut impl FnMut(u64, &[u8]) -> Result<(), ChannelError>,
    ) -> Result<(usize, Option<Header>), ChannelError> {
        for taken in 0..most {
            let Some(header) = self.receive()? else {
                return Ok((taken, None));
            };
            if header.kind != Kind::Response {
                return Ok((taken + 1, Some(header)));
            }
            answer(header.call, self.payload(header))?;
        }
        Ok((most, None))
    }

    /// The payload of the last received message.
    fn payload(&self, header: Header) -> &[u8];

    /// The descriptor of the last received message, which is long.
    ///
    /// # Errors
    /// When its payload has another length.
    fn descriptor(&self, header: Header) -> Result<[u8; DESCRIPTOR_BYTES], ChannelError> {
        let payload = self.payload(header).try_into();
        payload.map_err(|_| ChannelError::violation("a long message without a descriptor"))
    }

    /// Whether a message has begun to arrive.
    fn has_arrival(&self) -> bool;

    /// Whether [`Channel::make_room`] may find room for the longest message, as far as one poll can tell. Without room
    /// a server takes no request, and is woken when the peer reports room.
    fn may_have_room(&self) -> bool {
        true
    }

    /// Whether there is nothing to do for the channel, as far as one poll can tell: most polls by waiting callers and
    /// servers end here. `false` is always correct.
    #[inline]
    fn is_idle(&self) -> bool {
        false
    }

    /// Tells the peer how much was consumed, where responses do not carry it.
    fn tell_consumed(&mut self) -> Result<(), ChannelError> {
        Ok(())
    }

    /// The channel as a ring channel, if it is one: only those have credits.
    fn ring(&mut self) -> Option<&mut RingChannel<Self::Device>> {
        None
    }

    /// Ends the channel.
    fn close(&mut self);
}

/// The peer violated the protocol, or the queue pair failed: the channel can no longer be used. One word, because every
/// step of a message may return it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct ChannelError(Box<Fault>);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Fault {
    #[error("the peer violated the protocol: {0}")]
    Violation(&'static str),
    #[error("the queue pair failed: {0}")]
    QueuePair(String),
    #[error("the peer has disconnected")]
    PeerGone,
    #[error("cannot register more memory: {0}")]
    Memory(String),
    #[error("a batch was built that does not fit into the peer's ring")]
    Overrun,
}

impl ChannelError {
    /// The peer wrote bytes that an honest peer never writes.
    #[cold]
    pub(crate) fn violation(what: &'static str) -> Self {
        Self(Box::new(Fault::Violation(what)))
    }

    /// The queue pair failed.
    #[cold]
    pub(crate) fn queue_pair(why: String) -> Self {
        Self(Box::new(Fault::QueuePair(why)))
    }

    /// The peer can no longer be reached.
    #[cold]
    pub(crate) fn peer_gone() -> Self {
        Self(Box::new(Fault::PeerGone))
    }

    /// The device refused more memory for a long message.
    #[cold]
    pub(crate) fn memory(why: impl ToString) -> Self {
        Self(Box::new(Fault::Memory(why.to_string())))
    }

    /// An error of this side: a write would exceed the free space of the peer's ring.
    #[cold]
    pub(crate) fn overrun() -> Self {
        Self(Box::new(Fault::Overrun))
    }

    pub(crate) fn is_violation(&self) -> bool {
        matches!(*self.0, Fault::Violation(_))
    }

    pub(crate) fn is_memory(&self) -> bool {
        matches!(*self.0, Fault::Memory(_))
    }
}
