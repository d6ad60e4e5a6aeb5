//! How bytes cross so that both sides agree on what is free and what is complete.
//!
//! A [`Channel`] carries messages over a connected queue pair; what all of them need of that is a [`carrier::Carrier`].
//! The ring channel of the preset `plain`: each side has a ring in its own memory into which the peer WRITEs. A
//! [`message`] crosses in a [`batch`] that carries its own arrival, so a reader polls the very line that it will read.
//! An [`outbox::Outbox`] encodes, an [`inbox::Inbox`] finds and checks, and [`ring::RingChannel`] joins both to a queue
//! pair. Payloads too long for it are fetched by READ from [`buffers`]. The message pool ([`pool`]) gives each message
//! a block of its own, [`sent`] a SEND; [`datagram`]s need no connection.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::DerefMut;
use std::sync::Arc;

use dunlin_verbs::{Device, QueuePair, Region};

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
pub(crate) mod outbox;
pub(crate) mod pool;
pub(crate) mod ring;
#[cfg(all(test, not(loom)))]
mod room_tests;
pub(crate) mod sent;
pub(crate) mod short_copy;
mod short_messages;
pub(crate) mod upcoming;

use buffers::{Buffer, BufferPool};
use carrier::Carrier;
use message::{Descriptor, Header, Kind, DESCRIPTOR_BYTES};
use ring::RingChannel;
use upcoming::Upcoming;

/// What two sides tell each other: numbers by name.
pub(crate) type Parameters = BTreeMap<String, u64>;

/// Which traffic class a client wants for both directions ([`ChannelConfig::traffic_class`]).
pub(crate) const CLASS_PARAMETER: &str = "traffic-class";

/// Memory of the peer that is mapped here.
pub(crate) type Mapped<D> = <<D as Device>::QueuePair as QueuePair>::Mapped;

/// A request's payload, the place of its answer, and where the memory for a long one comes from.
pub(crate) type Exchange<'a, D> = (&'a [u8], &'a mut [u8], &'a Arc<BufferPool<D>>);

/// A short request in the hands of its server.
pub(crate) struct Asked<'a, D: Device> {
    pub(crate) handler: u16,
    pub(crate) call: u64,
    pub(crate) payload: &'a [u8],
    /// Where an answer goes that is short.
    pub(crate) place: &'a mut [u8],
    /// Where the memory for a long one comes from.
    pub(crate) exports: &'a Arc<BufferPool<D>>,
}

/// Messages both ways over one queue pair, as lanes and servers see them.
pub(crate) trait Channel:
    DerefMut<Target = Carrier<<Self as Channel>::Device>> + Debug + Send
{
    /// The device of the queue pair.
    type Device: Device;

    /// Whether calls have names that fit into short headers; else what stands in a name is the channel's as well.
    const SHORT_NAMES: bool = false;

    /// Longest payload that crosses with its message.
    fn eager_bytes(&self) -> usize;

    /// Calls that may be out at once, whatever the user allows.
    fn most_calls(&self) -> usize {
        usize::MAX
    }

    /// Makes room for a message with `payload` bytes. `false`: not now.
    fn make_room(&mut self, payload: usize) -> Result<bool, ChannelError>;

    /// Puts a message on its way; it leaves with the next flush at the latest. The caller has made room and keeps to
    /// [`Channel::eager_bytes`].
    fn push(&mut self, kind: Kind, handler: u16, call: u64, payload: &[u8]);

    /// As [`Channel::push`], a request: what is done for every call, and in line for that.
    #[inline]
    fn push_request(&mut self, handler: u16, call: u64, payload: &[u8]) {
        self.push(Kind::Request, handler, call, payload);
    }

    /// Where a request of `length` bytes may be written as it will leave, for [`Channel::push_written`] right after.
    /// The caller has made room and keeps to [`Channel::eager_bytes`]. `None`: this channel has no such place.
    #[inline]
    fn request_space(&mut self, _length: usize) -> Option<&mut [u8]> {
        None
    }

    /// Puts the request on its way whose payload was written into all of [`Channel::request_space`].
    fn push_written(&mut self, _handler: u16, _call: u64, _length: usize) {
        unreachable!("a channel without a place for requests");
    }

    /// Puts a message on its way that tells where the payload in `buffer` is.
    fn push_long(&mut self, kind: Kind, handler: u16, call: u64, buffer: &Buffer<Self::Device>) {
        let remote = buffer.region().remote();
        let descriptor = Descriptor {
            address: remote.address,
            length: buffer.len() as u64,
            key: remote.key.0,
        };
        self.push(kind, handler, call, &descriptor.encode());
    }

    /// What a handler needs: the payload of the message that was received last, and the place of the answer's, if the
    /// caller has made room for it.
    fn exchange(&mut self, header: Header, has_room: bool) -> Exchange<'_, Self::Device>;

    /// Puts the answer on its way whose payload, of `length` bytes, was written where [`Channel::exchange`] said.
    fn commit(&mut self, call: u64, length: usize);

    /// Hands to the device what is on its way, and wakes the peer if it sleeps.
    fn flush(&mut self) -> Result<(), ChannelError>;

    /// Before a server looks for the next message: writes the answers to the last batch, where they are not to wait for
    /// those to another. That takes room, so it comes before any is made.
    fn end_batch(&mut self) -> Result<(), ChannelError> {
        Ok(())
    }

    /// Takes the next message.
    fn receive(&mut self) -> Result<Option<Header>, ChannelError>;

    /// Gives short requests that have come to `run`, in order, each with room for its answer, and puts the answer on
    /// its way when `run` says how long it is. Ends when there are no more, or no room, or `most` messages were taken,
    /// or at a message that `run` did not answer, or is none of these: that was received as by [`Channel::receive`] and
    /// is said. Says how many were taken. Where several come at once `ahead` sees all of them before.
    #[inline]
    fn serve(
        &mut self,
        most: usize,
        _ahead: &mut impl FnMut(Upcoming<'_>),
        run: &mut impl FnMut(Asked<'_, Self::Device>) -> Option<usize>,
    ) -> Result<(usize, Option<Header>), ChannelError> {
        for served in 0..most {
            // Room first: a request that is taken is answered, and one that is not waits where it is.
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

    /// Gives the short answers that have come to `answer`, in order, until there are no more, `most` messages were
    /// taken, or one of another kind came: that was received like by [`Channel::receive`] and is said. Says how many
    /// were taken.
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

    /// The payload of the message that was received last.
    fn payload(&self, header: Header) -> &[u8];

    /// The descriptor of the long message that was received last.
    ///
    /// # Errors
    /// When its payload has another length.
    fn descriptor(&self, header: Header) -> Result<[u8; DESCRIPTOR_BYTES], ChannelError> {
        let payload = self.payload(header).try_into();
        payload.map_err(|_| ChannelError::violation("a long message without a descriptor"))
    }

    /// Whether a message has begun to arrive.
    fn has_arrival(&self) -> bool;

    /// Whether [`Channel::make_room`] may find room for the longest message by now, as far as one look can tell. Where
    /// there is none its server takes no request, and the peer's word about room wakes it.
    fn may_have_room(&self) -> bool {
        true
    }

    /// Whether there is nothing to do for it, as far as one look can tell: most looks of who waits or serves end here.
    /// `false` is always right.
    #[inline]
    fn is_idle(&self) -> bool {
        false
    }

    /// Tells the peer what was consumed, where that must be said apart from answers.
    fn tell_consumed(&mut self) -> Result<(), ChannelError> {
        Ok(())
    }

    /// The channel as one over rings, which credits belong to.
    fn ring(&mut self) -> Option<&mut RingChannel<Self::Device>> {
        None
    }

    /// Ends the channel.
    fn close(&mut self);
}

/// The peer broke the protocol, or the queue pair failed: the channel is of no more use. One word, because every step
/// of a message may return it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct ChannelError(Box<Fault>);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Fault {
    #[error("the peer broke the protocol: {0}")]
    Violation(&'static str),
    #[error("the queue pair failed: {0}")]
    QueuePair(String),
    #[error("the peer is gone")]
    PeerGone,
    #[error("no more memory can be registered: {0}")]
    Memory(String),
    #[error("a batch was made that the peer's ring has no room for")]
    Overrun,
}

impl ChannelError {
    /// Bytes in our ring that an honest peer never writes.
    #[cold]
    pub(crate) fn violation(what: &'static str) -> Self {
        Self(Box::new(Fault::Violation(what)))
    }

    /// The queue pair failed.
    #[cold]
    pub(crate) fn queue_pair(why: String) -> Self {
        Self(Box::new(Fault::QueuePair(why)))
    }

    /// The peer cannot be reached any more.
    #[cold]
    pub(crate) fn peer_gone() -> Self {
        Self(Box::new(Fault::PeerGone))
    }

    /// The device refused more memory for a long message.
    #[cold]
    pub(crate) fn memory(why: String) -> Self {
        Self(Box::new(Fault::Memory(why)))
    }

    /// Our own fault: the peer's ring would be written beyond what is free.
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
