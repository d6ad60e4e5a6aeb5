//! A ring channel: inbox, outbox and the queue pair between two of them.
//!
//! Each side registers one *inlet*, which only its peer may write: a control line with the peer's count of consumed lines, one with the
//! peer's wish to be woken, then the ring. Nobody waits in here: [`RingChannel::receive`] looks, [`RingChannel::flush`] writes,
//! and the drivers above decide when to look again or to sleep.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Instant;

use dunlin_verbs::{
    Device, Operation, Payload, QueuePair, QueuePairState, Region, RemoteAddress, Segment,
    SendFlags, SendRequest, Work,
};

use super::batch::LINE_BYTES;
use super::buffers::{Buffer, BufferPool};
use super::inbox::Inbox;
use super::message::{Header, Kind};
use super::outbox::{Outbox, Piece};
use super::ChannelError;
use crate::config::ChannelConfig;

mod connect;
mod credits;
mod long;
mod one_sided;
mod requests;
mod sleep;

pub(crate) use connect::UnconnectedRing;
use long::{Fetch, Fetched};
use one_sided::OneSidedWork;

pub(crate) use one_sided::Finished;
pub(crate) use requests::PROBE_INTERVAL;

/// Offset in an inlet of the lines of the *other* ring that the peer has consumed.
const CONSUMED_AT: usize = 0;
/// Offset in an inlet of the number of the peer's latest sleep; a new number asks for a wake-up.
const SLEEP_AT: usize = 64;
/// Offset in an inlet of the credits that the peer has granted, and whether it wants this lane active.
const GRANT_AT: usize = 128;
/// Offset in an inlet of the ring; a page, so that lines are cache lines.
const RING_AT: usize = 4096;

/// Entries of the send queue.
const SEND_REQUESTS: usize = 256;
/// One in this many WRITEs is signaled (FaSST's selective signaling), so that entries of the send queue come back.
const SIGNAL_EVERY: u32 = 64;
/// RECEIVEs kept posted for wake-ups.
const RECEIVES: usize = 8;
/// Ids of work requests whose completion means nothing but that entries came back.
const QUIET: u64 = u64::MAX;

/// What two sides tell each other: numbers by name.
pub(crate) type Parameters = BTreeMap<String, u64>;

/// One ring each way over one RC queue pair.
#[derive(Debug)]
pub(crate) struct RingChannel<D: Device> {
    queue_pair: D::QueuePair,
    completions: D::CompletionQueue,
    wake: D::CompletionChannel,
    inlet: D::Region,
    exports: Arc<BufferPool<D>>,
    landings: Arc<BufferPool<D>>,
    /// Where batches stand that are too long to be inline: a copy of the peer's ring.
    staging: Option<D::Region>,
    inbox: Inbox,
    outbox: Outbox,
    config: ChannelConfig,
    inline_bytes: usize,
    peer_inlet: RemoteAddress,
    /// Longest payload that the peer takes in its ring, and at all.
    peer_eager_bytes: usize,
    peer_longest: usize,
    /// Lines of our inbox that the peer was told to be consumed by a WRITE of its own. Tags tell it too, but only when it
    /// reads them, and a peer that waits for room does not read.
    told_consumed: u64,
    /// Requests since the last signaled one.
    unsignaled: u32,
    /// Requests posted in all, how many of them are known to be done, and the signaled ones between, in order.
    posted: u64,
    retired: u64,
    signaled: VecDeque<u64>,
    /// Looks for their completions in vain, in a row, and when the first of them was that looked at the clock.
    vain_looks: u32,
    stalled_since: Instant,
    fetches: Vec<Fetch<D>>,
    fetched: Vec<Fetched<D>>,
    /// The peer's sleep that we last answered with a wake-up, and our own latest one.
    woken: u64,
    sleep: u64,
    /// Whether the peer still has to wake us for our latest sleep, and which request told it so.
    asleep: bool,
    announcement: u64,
    /// The last request that brought the peer something, until it is known to have arrived.
    unconfirmed: Option<u64>,
    broken: Option<ChannelError>,
    /// The peer asked for credits and reported this degree.
    asked: Option<u32>,
    /// The immediate that goes with the next batch.
    asks: Option<u32>,
    /// The peer reported this degree of one-sided operations.
    reported: Option<u32>,
    one_sided: OneSidedWork<D>,
    /// The peer's queue pair is known to take requests.
    met: bool,
    /// Since when the peer's first word is waited for: by the clock of whoever polls, who need not be who joined.
    waited_since: Option<Instant>,
    /// This side has dialled.
    dialled: bool,
    /// The last probe, while it is not known to have arrived.
    probe: Option<u64>,
    next_probe: Instant,
    device: D,
    domain: D::ProtectionDomain,
}

impl<D: Device> RingChannel<D> {
    /// Longest payload that goes into the ring.
    #[inline]
    pub(crate) fn eager_bytes(&self) -> usize {
        self.peer_eager_bytes
    }

    /// Longest payload that the peer takes.
    pub(crate) fn longest(&self) -> usize {
        self.peer_longest
    }

    /// The limits of this side.
    pub(crate) fn config(&self) -> &ChannelConfig {
        &self.config
    }

    /// What to sleep on.
    pub(crate) fn wake(&self) -> &D::CompletionChannel {
        &self.wake
    }

    /// Where export buffers come from.
    pub(crate) fn exports(&self) -> &Arc<BufferPool<D>> {
        &self.exports
    }

    /// An export buffer for a payload of `length` bytes.
    pub(crate) fn export(&self, length: usize) -> Result<Buffer<D>, ChannelError> {
        self.exports
            .take(length)
            .map_err(|e| ChannelError::memory(e.to_string()))
    }

    /// Whether `buffer` was exported by this channel.
    pub(crate) fn owns(&self, buffer: &Buffer<D>) -> bool {
        buffer.is_of(&self.exports)
    }

    /// Whether the channel is known to be of no more use. The path of a call asks.
    #[inline]
    pub(crate) fn is_known_failed(&self) -> bool {
        self.broken.is_some() || self.queue_pair.is_known_failed()
    }

    /// Makes room for a message with `payload` bytes, by flushing and by looking at the peer's count. `false`: not now.
    #[inline]
    pub(crate) fn make_room(&mut self, payload: usize) -> Result<bool, ChannelError> {
        if self.outbox.fits(payload) {
            return Ok(true);
        }
        self.begin_batch(payload)
    }

    /// Once in a batch; kept apart so that what every message does stays small.
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
        let told = self
            .inlet
            .memory()
            .atomic_u64(CONSUMED_AT)
            .load(Ordering::Acquire);
        self.peer_consumed(told as u32)
    }

    /// The peer says how many lines it has consumed, in the tail of a batch or by a WRITE of its own. Either may be older than
    /// the other; a count never goes back.
    #[inline]
    fn peer_consumed(&mut self, told: u32) -> Result<(), ChannelError> {
        if told.wrapping_sub(self.outbox.known_consumed() as u32) as i32 > 0 {
            self.outbox.peer_consumed(told)?;
        }
        Ok(())
    }

    /// Puts a message into the batch. The caller has made room and keeps to [`RingChannel::eager_bytes`].
    #[inline]
    pub(crate) fn push(&mut self, kind: Kind, handler: u16, call: u64, payload: &[u8]) {
        let header = Header::new(kind, handler, call, payload.len());
        D::charge(Work::Copy(payload.len()));
        self.outbox.push(header, payload);
    }

    /// What a handler needs: the payload of the message that was received last, and the place of the answer's, if the
    /// caller has made room for it.
    #[inline]
    pub(crate) fn exchange(
        &mut self,
        header: Header,
        has_room: bool,
    ) -> (&[u8], &mut [u8], &Arc<BufferPool<D>>) {
        let place = match has_room {
            true => self.outbox.space(self.peer_eager_bytes),
            false => &mut [],
        };
        (self.inbox.payload(header), place, &self.exports)
    }

    /// Puts the message into the batch whose payload, of `length` bytes, was written where [`RingChannel::exchange`] said.
    #[inline]
    pub(crate) fn commit(&mut self, kind: Kind, call: u64, length: usize) {
        let header = Header::new(kind, 0, call, length);
        D::charge(Work::Copy(length));
        self.outbox.commit(header);
    }

    /// Writes the batch to the peer, and wakes it if it sleeps.
    #[inline]
    pub(crate) fn flush(&mut self) -> Result<(), ChannelError> {
        if self.outbox.is_flushed() {
            return Ok(());
        }
        self.reserve(5)?;
        let ring = self.peer_inlet.plus(RING_AT as u64);
        let pieces = self.outbox.pieces(self.inbox.consumed());
        let last = if pieces[3].bytes.is_empty() { 2 } else { 3 };
        for (place, Piece { offset, bytes }) in pieces.into_iter().enumerate() {
            if bytes.is_empty() {
                continue;
            }
            let signal = self.unsignaled + 1 >= SIGNAL_EVERY;
            let flags = if signal {
                SendFlags::SIGNALED
            } else {
                SendFlags::empty()
            };
            let write = Operation::Write {
                remote: ring.plus(offset as u64),
                immediate: if place == last {
                    self.asks.take()
                } else {
                    None
                },
            };
            let posted = match &self.staging {
                Some(staging) if bytes.len() > self.inline_bytes => {
                    D::charge(Work::Copy(bytes.len()));
                    staging.memory().write(offset, bytes);
                    let segment = [Segment {
                        region: staging,
                        offset,
                        length: bytes.len(),
                    }];
                    let payload = Payload::Segments(&segment);
                    self.queue_pair
                        .post_send(&[SendRequest::new(QUIET, write, payload, flags)])
                }
                _ => {
                    let payload = Payload::Inline(bytes);
                    self.queue_pair
                        .post_send(&[SendRequest::new(QUIET, write, payload, flags)])
                }
            };
            if let Err(error) = posted {
                let error = ChannelError::queue_pair(error.to_string());
                self.broken = Some(error.clone());
                return Err(error);
            }
            self.posted += 1;
            if signal {
                self.unsignaled = 0;
                self.signaled.push_back(self.posted);
            } else {
                self.unsignaled += 1;
            }
        }
        if let Some((offset, length)) = self.outbox.written() {
            self.queue_pair
                .expect_write(ring.plus(offset as u64), length);
        }
        self.unconfirmed = Some(self.posted);
        self.wake_if_asleep()
    }

    /// Takes the next message.
    #[inline(always)]
    pub(crate) fn receive(&mut self) -> Result<Option<Header>, ChannelError> {
        if self.inbox.messages() == 0 {
            let Some(peer_consumed) = self.inbox.open(self.inlet.memory())? else {
                D::charge(Work::Poll);
                return Ok(None);
            };
            self.met = true;
            // Its lines come from the NIC, as from another core.
            D::charge(Work::SharedLine);
            D::charge(Work::Copy(self.inbox.opened_bytes()));
            self.peer_consumed(peer_consumed)?;
        }
        self.inbox.take()
    }

    /// The payload of the message that was received last.
    #[inline]
    pub(crate) fn payload(&self, header: Header) -> &[u8] {
        self.inbox.payload(header)
    }

    /// Whether a message has begun to arrive.
    #[inline]
    pub(crate) fn has_arrival(&self) -> bool {
        self.inbox.has_arrival(self.inlet.memory())
    }

    /// Tells the peer what was consumed, once for each quarter of the ring (RB²'s lazy push).
    #[inline]
    pub(crate) fn tell_consumed(&mut self) -> Result<(), ChannelError> {
        let untold = self.inbox.consumed() - self.told_consumed;
        if (untold as usize) < self.config.ring_bytes / LINE_BYTES / 4 {
            return Ok(());
        }
        self.told_consumed = self.inbox.consumed();
        let word = self.told_consumed.to_le_bytes();
        self.write_word(CONSUMED_AT, &word, false)?;
        // The peer may sleep for want of room rather than of messages.
        self.unconfirmed = Some(self.posted);
        self.wake_if_asleep()
    }

    /// Registers a region of this device for the peer of this channel alone.
    pub(crate) fn register_again(&self, region: &D::Region) -> Result<D::Region, ChannelError> {
        self.device
            .register_again(&self.domain, region)
            .map_err(|e| ChannelError::memory(e.to_string()))
    }

    /// Whether the peer's queue pair is known to take requests.
    pub(crate) fn is_met(&self) -> bool {
        self.met
    }

    /// Bytes that a work request carries inside itself.
    pub(crate) fn inline_bytes(&self) -> usize {
        self.inline_bytes
    }

    /// Ends the channel. The side that dialled tells its peer, as far as that can be done: a server that has nothing to say would see the
    /// end only when it says something.
    pub(crate) fn close(&mut self) {
        let whole = self.broken.is_none() && self.queue_pair.state() == QueuePairState::ReadyToSend;
        // What was not flushed is not sent any more, and nobody waits for room here.
        let room = self.outbox.is_flushed() && self.outbox.fits(0) && self.has_entries(8);
        if self.dialled && whole && room {
            self.push(Kind::Goodbye, 0, 0, &[]);
            let _ = self.flush();
        }
        self.queue_pair.to_error();
    }
}
