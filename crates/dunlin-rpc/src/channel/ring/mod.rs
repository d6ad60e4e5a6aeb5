//! A ring channel: inbox, outbox and the queue pair between two of them.
//!
//! Each side registers one *inlet*, which only its peer may write: a control line with the peer's count of consumed
//! lines, one with the peer's request to be woken, then the ring. Nothing here waits: [`RingChannel::receive`] polls,
//! [`RingChannel::flush`] writes, and the drivers above decide when to poll again or to sleep.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering;

use dunlin_verbs::{
    Device, Operation, Payload, PeerMemory, QueuePair, QueuePairState, Region, Segment,
    SendRequest, Work,
};

use super::batch::LINE_BYTES;
use super::carrier::{Carrier, QUIET};
use super::inbox::Inbox;
use super::message::{Header, Kind, ShortKind};
use super::outbox::{Outbox, Piece};
use super::upcoming::Upcoming;
use super::{Asked, Channel, ChannelError, Exchange};
use crate::effort;

mod connect;
mod credits;

/// Offset in an inlet of the number of lines of the *other* ring that the peer has consumed.
const CONSUMED_AT: usize = 0;
/// Offset in an inlet of the word with the credits that the peer has granted and whether it wants this lane active.
const GRANT_AT: usize = 128;
/// Offset in an inlet of the ring: one page, so that lines are cache lines.
const RING_AT: usize = 4096;

type Mapped<D> = <<D as Device>::QueuePair as QueuePair>::Mapped;

/// A ring in each direction over one RC queue pair.
#[derive(Debug)]
pub(crate) struct RingChannel<D: Device> {
    carrier: Carrier<D>,
    /// Staging memory for batches that are too long to be inline: a copy of the peer's ring.
    staging: Option<D::Region>,
    inbox: Inbox,
    outbox: Outbox,
    /// Maximum length of a payload that the peer accepts in its ring.
    peer_eager_bytes: usize,
    /// Number of consumed lines of our inbox that the peer was last told by a separate WRITE. Batches carry it too, but
    /// the peer learns it only by reading them, and a peer that waits for room does not read.
    told_consumed: u64,
    /// The peer's ring, if it is mapped here and has been written once.
    peer_ring: Option<Mapped<D>>,
    /// The immediate to send with the next batch.
    asks: Option<u32>,
    /// A report for which there was no entry of the send queue.
    unreported: Option<u32>,
}

impl<D: Device> Deref for RingChannel<D> {
    type Target = Carrier<D>;

    #[inline]
    fn deref(&self) -> &Carrier<D> {
        &self.carrier
    }
}

impl<D: Device> DerefMut for RingChannel<D> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Carrier<D> {
        &mut self.carrier
    }
}

impl<D: Device> RingChannel<D> {
    /// Called once per batch; kept out of line so that the code for every message stays small.
    #[inline(never)]
    fn begin_batch(&mut self, payload: usize) -> Result<bool, ChannelError> {
        self.flush()?;
        if self.outbox.fits(payload) {
            return Ok(true);
        }
        self.look_for_room()?;
        Ok(self.outbox.fits(payload))
    }

    #[cold]
    fn look_for_room(&mut self) -> Result<(), ChannelError> {
        self.peer_consumed(self.told_of_room())
    }

    /// The number of lines that the peer has consumed, according to its last separate WRITE.
    fn told_of_room(&self) -> u32 {
        let memory = self.carrier.inlet.memory();
        memory.atomic_u64(CONSUMED_AT).load(Ordering::Acquire) as u32
    }

    /// Whether this number of lines is larger than the known one.
    #[inline]
    fn is_news(&self, told: u32) -> bool {
        told.wrapping_sub(self.outbox.known_consumed() as u32) as i32 > 0
    }

    /// The peer has reported how many lines it has consumed, in a batch's commit word or by a separate WRITE. Either
    /// may be older than the other; the count never decreases.
    #[inline]
    fn peer_consumed(&mut self, told: u32) -> Result<(), ChannelError> {
        if self.is_news(told) {
            self.outbox.peer_consumed(told)?;
        }
        Ok(())
    }

    /// Posts what had no entry of the send queue before.
    #[cold]
    fn catch_up(&mut self) -> Result<(), ChannelError> {
        if !self.carrier.take_short() {
            return Ok(());
        }
        if !self.outbox.is_flushed() {
            self.write_batch()?;
        }
        if let Some(degree) = self.unreported {
            self.report(degree)?;
        }
        self.tell_consumed()?;
        self.wake_if_asleep()
    }

    /// Writes the batch to the peer, if there are entries for it, and wakes the peer if it sleeps.
    #[inline(always)]
    fn write_batch(&mut self) -> Result<(), ChannelError> {
        D::charge(effort::WRITTEN);
        if !self.store_batch()? && !self.post_batch()? {
            return Ok(());
        }
        self.carrier.unconfirmed = Some(self.carrier.last_posted());
        self.wake_if_asleep()
    }

    /// Stores the batch into the peer's ring if that is mapped. `false`: it must be posted.
    #[inline(always)]
    fn store_batch(&mut self) -> Result<bool, ChannelError> {
        let Some(peer) = &self.peer_ring else {
            return Ok(false);
        };
        if self.asks.is_some() || !peer.is_open() {
            return Ok(false);
        }
        self.outbox.store(self.inbox.consumed(), peer)?;
        if let Some((offset, length)) = self.outbox.written() {
            peer.expect(offset, length);
        }
        Ok(true)
    }

    /// Posts the batch as WRITEs. `false`: there are no entries for it.
    #[inline(never)]
    fn post_batch(&mut self) -> Result<bool, ChannelError> {
        if !self.reserve(4)? {
            return Ok(false);
        }
        let ring = self.carrier.peer_inlet.plus(RING_AT as u64);
        let pieces = self.outbox.pieces(self.inbox.consumed())?;
        let last = if pieces[2].bytes.is_empty() { 1 } else { 2 };
        for (place, Piece { offset, bytes }) in pieces.into_iter().enumerate() {
            if bytes.is_empty() {
                continue;
            }
            let flags = self.carrier.next_flags();
            let immediate = match place == last {
                true => self.asks.take(),
                false => None,
            };
            let write = Operation::Write {
                remote: ring.plus(offset as u64),
                immediate,
            };
            let segment;
            let payload = match &self.staging {
                Some(staging) if bytes.len() > self.carrier.inline_bytes => {
                    D::charge(Work::Copy(bytes.len()));
                    staging.memory().write(offset, bytes);
                    segment = [Segment {
                        region: staging,
                        offset,
                        length: bytes.len(),
                    }];
                    Payload::Segments(&segment)
                }
                _ => Payload::Inline(bytes),
            };
            let request = SendRequest::new(QUIET, write, payload, flags);
            if let Err(error) = self.carrier.queue_pair.post_send(&[request]) {
                let error = ChannelError::queue_pair(error.to_string());
                return Err(self.carrier.fail(error));
            }
            self.carrier.note_posted(flags);
        }
        if let Some((offset, length)) = self.outbox.written() {
            let carrier = &mut self.carrier;
            carrier
                .queue_pair
                .expect_write(ring.plus(offset as u64), length);
        }
        if D::QueuePair::MAPS_PEERS && self.peer_ring.is_none() {
            let pair = &mut self.carrier.queue_pair;
            self.peer_ring = pair.map_peer(ring, self.outbox.ring_bytes());
            if self.peer_ring.is_some() {
                self.outbox.batch_adaptively();
            }
        }
        Ok(true)
    }

    /// Opens the next batch when all messages of the last were taken; returns whether a message waits.
    #[inline]
    fn has_message(&mut self) -> Result<bool, ChannelError> {
        if self.inbox.messages() > 0 {
            return Ok(true);
        }
        let Some(peer_consumed) = self.inbox.open(self.carrier.inlet.memory())? else {
            D::charge(Work::Poll);
            if self.carrier.is_short() {
                self.catch_up()?;
            }
            return Ok(false);
        };
        self.carrier.met = true;
        D::charge(effort::OPENED);
        D::charge(Work::Arrived);
        D::charge(Work::Copy(self.inbox.opened_bytes()));
        self.peer_consumed(peer_consumed)?;
        Ok(true)
    }

    #[inline(always)]
    fn put(&mut self, header: Header, payload: &[u8]) {
        D::charge(effort::ADDED);
        D::charge(Work::Copy(payload.len()));
        self.outbox.place().put(header, payload);
    }

    /// Number of batches received.
    pub(crate) fn batches_received(&self) -> u64 {
        self.inbox.opened()
    }
}

impl<D: Device> Channel for RingChannel<D> {
    type Device = D;

    const SHORT_NAMES: bool = true;

    #[inline]
    fn eager_bytes(&self) -> usize {
        self.peer_eager_bytes
    }

    #[inline]
    fn ring(&mut self) -> Option<&mut RingChannel<D>> {
        Some(self)
    }

    /// Makes room for a message with `payload` bytes, by flushing and by reading the peer's count. `false`: not now.
    #[inline]
    fn make_room(&mut self, payload: usize) -> Result<bool, ChannelError> {
        if self.outbox.fits(payload) {
            return Ok(true);
        }
        self.begin_batch(payload)
    }

    /// Adds a message to the batch. The caller has made room and keeps to [`RingChannel::eager_bytes`].
    #[inline]
    fn push(&mut self, kind: Kind, handler: u16, call: u64, payload: &[u8]) {
        self.put(Header::new(kind, handler, call, payload.len()), payload);
    }

    #[inline(always)]
    fn push_request(&mut self, handler: u16, call: u64, payload: &[u8]) {
        self.put(
            Header::new(Kind::Request, handler, call, payload.len()),
            payload,
        );
    }

    #[inline]
    fn request_space(&mut self, length: usize) -> Option<&mut [u8]> {
        Some(self.outbox.place().into_payload(length))
    }

    #[inline]
    fn push_written(&mut self, handler: u16, call: u64, length: usize) {
        D::charge(effort::ADDED);
        D::charge(Work::Copy(length));
        let header = Header::new(Kind::Request, handler, call, length);
        self.outbox.place().commit(header, length);
    }

    /// What a handler needs: the payload of the last received message, and the place for the response's, if the caller
    /// has made room for it.
    #[inline]
    fn exchange(&mut self, header: Header, has_room: bool) -> Exchange<'_, D> {
        let place = match has_room {
            true => self.outbox.place().into_payload(self.peer_eager_bytes),
            false => &mut [],
        };
        (self.inbox.payload(header), place, self.carrier.exports())
    }

    /// Adds the message whose payload, of `length` bytes, was written at the place returned by
    /// [`RingChannel::exchange`] to the batch.
    #[inline]
    fn commit(&mut self, call: u64, length: usize) {
        D::charge(effort::ADDED);
        D::charge(Work::Copy(length));
        let header = Header::new(Kind::Response, 0, call, length);
        self.outbox.place().commit(header, self.peer_eager_bytes);
    }

    /// Writes the batch to the peer, and wakes it if it sleeps.
    #[inline]
    fn flush(&mut self) -> Result<(), ChannelError> {
        if self.carrier.is_short() {
            return self.catch_up();
        }
        if self.outbox.is_flushed() {
            return Ok(());
        }
        self.write_batch()
    }

    #[inline]
    fn end_batch(&mut self) -> Result<(), ChannelError> {
        match self.inbox.messages() == 0 && self.carrier.config.answer_each_message {
            true => self.flush(),
            false => Ok(()),
        }
    }

    /// Takes the next message.
    #[inline]
    fn receive(&mut self) -> Result<Option<Header>, ChannelError> {
        match self.has_message()? {
            true => self.inbox.take(),
            false => Ok(None),
        }
    }

    #[inline(always)]
    fn serve(
        &mut self,
        most: usize,
        ahead: &mut impl FnMut(Upcoming<'_>),
        run: &mut impl FnMut(Asked<'_, D>) -> Option<usize>,
    ) -> Result<(usize, Option<Header>), ChannelError> {
        let eager = self.peer_eager_bytes;
        let mut served = 0;
        while served < most {
            // Before room is made, because a written batch takes whole lines.
            self.end_batch()?;
            if served > 0 && self.inbox.is_idle(self.carrier.inlet.memory()) {
                break;
            }
            // Room first: a request that is taken must be answered; otherwise it waits in the ring.
            if !self.make_room(eager)? || !self.has_message()? {
                break;
            }
            let Self { inbox, outbox, .. } = self;
            if let Some(upcoming) = inbox.take_new() {
                ahead(upcoming);
            }
            let mut messages = inbox.short_messages();
            while served < most && !messages.is_empty() && outbox.fits(eager) {
                served += 1;
                let Some((header, payload)) = messages.take(ShortKind::Request)? else {
                    drop(messages);
                    return Ok((served, inbox.take()?));
                };
                let mut place = outbox.place();
                let asked = Asked {
                    handler: header.handler(),
                    call: header.call(),
                    payload,
                    place: place.payload(eager),
                    exports: self.carrier.exports(),
                };
                let Some(answer) = run(asked) else {
                    return Ok((served, Some(header.as_header(ShortKind::Request))));
                };
                D::charge(effort::ADDED);
                D::charge(Work::Copy(answer));
                let header = Header::new(Kind::Response, 0, header.call(), answer);
                place.commit(header, eager);
            }
        }
        Ok((served, None))
    }

    #[inline(always)]
    fn take_answers(
        &mut self,
        most: usize,
        answer: &mut impl FnMut(u64, &[u8]) -> Result<(), ChannelError>,
    ) -> Result<(usize, Option<Header>), ChannelError> {
        let mut taken = 0;
        while taken < most {
            if (taken > 0 && self.inbox.is_idle(self.carrier.inlet.memory()))
                || !self.has_message()?
            {
                break;
            }
            let mut messages = self.inbox.short_messages();
            while taken < most && !messages.is_empty() {
                taken += 1;
                let Some((header, payload)) = messages.take(ShortKind::Response)? else {
                    drop(messages);
                    return Ok((taken, self.inbox.take()?));
                };
                answer(header.call(), payload)?;
            }
        }
        Ok((taken, None))
    }

    /// The payload of the last received message.
    #[inline]
    fn payload(&self, header: Header) -> &[u8] {
        self.inbox.payload(header)
    }

    /// Whether a message has begun to arrive.
    #[inline]
    fn has_arrival(&self) -> bool {
        self.inbox.has_arrival(self.carrier.inlet.memory())
    }

    fn may_have_room(&self) -> bool {
        self.carrier.is_short()
            || self.outbox.fits(self.peer_eager_bytes)
            || self.is_news(self.told_of_room())
    }

    #[inline]
    fn is_idle(&self) -> bool {
        let carrier = &self.carrier;
        self.inbox.is_idle(carrier.inlet.memory())
            && !carrier.is_short()
            && !carrier.is_fetching()
            && !carrier.has_one_sided()
    }

    /// Tells the peer how much was consumed, once for each quarter of the ring (RB²'s lazy push).
    #[inline]
    fn tell_consumed(&mut self) -> Result<(), ChannelError> {
        let untold = self.inbox.consumed() - self.told_consumed;
        if (untold as usize) < self.config.ring_bytes / LINE_BYTES / 4 {
            return Ok(());
        }
        let consumed = self.inbox.consumed();
        if !self.write_word(CONSUMED_AT, &consumed.to_le_bytes())? {
            return Ok(());
        }
        self.told_consumed = consumed;
        // The peer may be sleeping because it waits for room and not for messages.
        self.unconfirmed = Some(self.last_posted());
        self.wake_if_asleep()
    }

    /// Ends the channel. The dialling side tells its peer, if it can: a server that has nothing to send would notice
    /// the end only when it sends something.
    fn close(&mut self) {
        let whole = self.broken.is_none() && self.queue_pair.state() == QueuePairState::ReadyToSend;
        // What was not flushed is no longer sent, and nothing here waits for room.
        let room = self.outbox.is_flushed() && self.outbox.fits(0) && self.has_entries(8);
        if self.dialled && whole && room {
            self.push(Kind::Goodbye, 0, 0, &[]);
            let _ = self.flush();
        }
        self.queue_pair.to_error();
    }
}
