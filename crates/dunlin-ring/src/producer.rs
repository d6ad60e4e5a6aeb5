//! The producer: where messages enter the ring (RB² `WRITEMSG`).
//!
//! A state machine that does what can be done now: it neither waits nor reads a clock. Whoever writes either calls [`Producer::poll`]
//! again and again, as pollers do, or [`Producer::flush`] after the last message; then no message waits for a later one.

use std::sync::atomic::Ordering;

use dunlin_verbs::{
    Device, Operation, Payload, Region, RemoteAddress, Segment, SendFlags, SendRequest, Work,
};

use crate::design::{Batching, Design, HeadSync, TailSync};
use crate::error::{LengthLimit, RingError, SendError};
use crate::framing;
use crate::geometry::{Geometry, HEADER_BYTES};
use crate::link::{Link, Request};
use crate::memory::Mirror;
use crate::policy::{Due, Sender};
use crate::reservation::Reservation;
use crate::stream::Watch;

/// Most requests of one list: two pieces of the array and the tail.
const LIST: usize = 3;

/// The places at the consumer that a producer writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConsumerPlaces {
    pub(crate) array: RemoteAddress,
    pub(crate) tail: RemoteAddress,
    pub(crate) end: RemoteAddress,
    pub(crate) published_head: RemoteAddress,
}

/// The writing end of a ring.
#[derive(Debug)]
pub struct Producer<D: Device> {
    sender: Sender,
    geometry: Geometry,
    design: Design,
    link: Link<D>,
    /// Our array, or room for one message where the design has none at the producer.
    local: Mirror<D::Region>,
    /// Where messages are made when the design has no zero copy.
    scratch: Vec<u8>,
    /// What the consumer writes.
    inlet: D::Region,
    places: ConsumerPlaces,
    inline_bytes: usize,
    /// The tail at the last signaled request: places come back by completions, so they must not be too far apart.
    signaled_tail: u64,
    /// While the tail is below this, a message of one unit that is made in the array calls for nothing else.
    quiet_until: u64,
    /// The tail at the last poll: the same again means that the sender is idle.
    polled_tail: u64,
    /// A READ of the head is under way.
    pulling: bool,
    /// A message is being WRITTEN from the one place there is.
    staged: bool,
    /// A flush or a close that found no entry in the send queue.
    flush_wanted: bool,
    close: Close,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Close {
    Open,
    Wanted,
    Told,
}

/// What [`Producer::new`] is made of.
pub(crate) struct Parts<D: Device> {
    pub(crate) sender: Sender,
    pub(crate) geometry: Geometry,
    pub(crate) design: Design,
    pub(crate) link: Link<D>,
    pub(crate) local: Mirror<D::Region>,
    pub(crate) inlet: D::Region,
    pub(crate) places: ConsumerPlaces,
    pub(crate) inline_bytes: usize,
}

impl<D: Device> Producer<D> {
    pub(crate) fn new(parts: Parts<D>) -> Self {
        let scratch = if parts.design.zero_copy {
            Vec::new()
        } else {
            vec![0; parts.geometry.longest]
        };
        Self {
            sender: parts.sender,
            geometry: parts.geometry,
            design: parts.design,
            link: parts.link,
            local: parts.local,
            scratch,
            inlet: parts.inlet,
            places: parts.places,
            inline_bytes: parts.inline_bytes,
            signaled_tail: 0,
            quiet_until: 0,
            polled_tail: 0,
            pulling: false,
            staged: false,
            flush_wanted: false,
            close: Close::Open,
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
        self.local.place(0).0.page_kind()
    }

    /// Sends a copy of `message`.
    ///
    /// # Errors
    /// [`SendError::Full`] when the consumer has not read enough: poll and try again. When the length is not one that the ring
    /// carries. When the ring has ended.
    #[inline]
    pub fn try_send(&mut self, message: &[u8]) -> Result<(), SendError> {
        if self.sender.tail() < self.quiet_until && self.geometry.is_single(message.len()) {
            self.send_quietly(message.len(), |place| place.copy_from_slice(message));
            D::charge(Work::Copy(message.len()));
            return Ok(());
        }
        let offset = self.claim(message.len())?;
        let prefix = self.geometry.prefix;
        let place = self.local.bytes_mut(offset + prefix, message.len());
        place.copy_from_slice(message);
        D::charge(Work::Copy(message.len()));
        self.publish(offset, message.len())?;
        self.quiet_until = self.quiet_bound();
        Ok(())
    }

    /// Sends a message of `length` bytes that `fill` makes in the ring itself (RB² §IV-C, zero copy at the sender). The bytes are what an
    /// earlier message left there.
    ///
    /// # Errors
    /// As for [`Producer::try_send`]; `fill` is not called then.
    #[inline]
    pub fn try_send_with(
        &mut self,
        length: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), SendError> {
        if self.sender.tail() < self.quiet_until && self.geometry.is_single(length) {
            self.send_quietly(length, fill);
            return Ok(());
        }
        let offset = self.claim(length)?;
        fill(self.room(offset, length));
        self.commit(offset, length)?;
        self.quiet_until = self.quiet_bound();
        Ok(())
    }

    /// A message of one unit for which there is room, and which brings no threshold about: most of them.
    #[inline(always)]
    fn send_quietly(&mut self, length: usize, fill: impl FnOnce(&mut [u8])) {
        let offset = self.geometry.offset(self.sender.tail());
        let prefix = self.geometry.prefix;
        let place = self.local.bytes_mut(offset, prefix + length);
        let (header, payload) = place.split_at_mut(prefix);
        if let Some(header) = header.first_chunk_mut() {
            *header = framing::encode(length);
        }
        fill(payload);
        self.sender.wrote(1);
    }

    /// How far messages may be sent quietly; none where each one calls for more than being made.
    #[inline(always)]
    fn quiet_bound(&self) -> u64 {
        let plain = self.design.zero_copy && self.design.mirrored && self.close == Close::Open;
        if plain && !self.design.polls_messages() {
            self.sender.quiet_until()
        } else {
            0
        }
    }

    /// Room for a message of at most `length` bytes in the ring itself, to be filled and committed.
    ///
    /// # Errors
    /// As for [`Producer::try_send`].
    #[inline]
    pub fn reserve(&mut self, length: usize) -> Result<Reservation<'_, D>, SendError> {
        let offset = self.claim(length)?;
        Ok(Reservation::new(self, offset, length))
    }

    /// Tells the consumer of everything that was sent, without waiting for the thresholds. Where the send queue has no entry now,
    /// [`Producer::poll`] does it.
    ///
    /// # Errors
    /// When the ring has ended.
    #[inline]
    pub fn flush(&mut self) -> Result<(), RingError> {
        self.flush_wanted = self.sender.is_behind() && !self.hand_over(true)?;
        Ok(())
    }

    /// Whether the consumer has been told of everything.
    pub fn is_flushed(&self) -> bool {
        !self.sender.is_behind()
    }

    /// Does what is due: takes completions, retries what was deferred, and flushes a partial batch when nothing was sent since the last
    /// call, which is how an idle sender is known (design §5).
    ///
    /// # Errors
    /// When the ring has ended.
    #[inline]
    pub fn poll(&mut self) -> Result<(), RingError> {
        self.link.check()?;
        if self.link.in_flight() > 0 {
            self.take_completions()?;
        }
        if self.flush_wanted {
            self.flush()?;
        } else if self.sender.is_behind() {
            if self.sender.tail() != self.polled_tail {
                self.after_write()?;
            } else if self.sender.may_advance(self.link.in_flight()) {
                self.hand_over(true)?;
            }
        }
        self.polled_tail = self.sender.tail();
        if self.close == Close::Wanted {
            self.tell_end()?;
        }
        Ok(())
    }

    /// Ends the ring: the consumer reads what was sent and then finds the end. Poll until [`Producer::is_closed`] before the producer is
    /// dropped, or its last messages may be lost with it.
    ///
    /// # Errors
    /// When the ring has ended otherwise.
    pub fn close(&mut self) -> Result<(), RingError> {
        if self.close == Close::Open {
            self.quiet_until = 0;
            self.close = Close::Wanted;
            self.tell_end()?;
        }
        Ok(())
    }

    /// Whether the end, and so everything before it, is known to have arrived.
    pub fn is_closed(&self) -> bool {
        self.close == Close::Told && self.link.in_flight() == 0
    }

    /// Whether the consumer has read everything that was sent, as far as it has said.
    pub fn is_drained(&mut self) -> Result<bool, RingError> {
        self.hear_head()?;
        Ok(self.sender.told_head() == self.sender.tail())
    }

    /// Becomes true when the consumer has given something back since now.
    pub(crate) fn giving_back(&self) -> Watch {
        let (inlet, at) = (self.inlet.clone(), self.geometry.words.head);
        let told = self.sender.told_head().to_le();
        Box::new(move || inlet.memory().atomic_u64(at).load(Ordering::Acquire) != told)
    }

    /// Whether a message of this length can be sent at all.
    pub(crate) fn carries(&self, length: usize) -> bool {
        self.geometry.carries(length)
    }

    /// Room for a message: checks the length, skips the end of the array if need be, and says where the message begins.
    #[inline(always)]
    fn claim(&mut self, length: usize) -> Result<usize, SendError> {
        if !self.geometry.carries(length) {
            return Err(self.wrong_length(length));
        }
        let units = self.geometry.units_of(length);
        let skip = self.geometry.skip(self.sender.tail(), units);
        if !self.sender.has_room(skip + units) || !self.is_ready() {
            self.look_for_room(skip + units)?;
        }
        if skip > 0 {
            self.skip_to_start(skip)?;
        }
        Ok(self.place_of_tail())
    }

    /// Whether a message may be made now, room in the ring aside. A message that tells of itself is posted by the call that makes it, so it
    /// needs its entries of the send queue then; others can wait in the array.
    #[inline(always)]
    fn is_ready(&self) -> bool {
        self.close == Close::Open
            && !self.staged
            && (!self.design.polls_messages() || self.link.has_entries(LIST))
    }

    /// Where in our array the next message begins.
    #[inline(always)]
    fn place_of_tail(&self) -> usize {
        if self.design.mirrored {
            self.geometry.offset(self.sender.tail())
        } else {
            0
        }
    }

    #[cold]
    fn wrong_length(&self, bytes: usize) -> SendError {
        SendError::Length {
            bytes,
            limit: self.geometry.limit(),
        }
    }

    /// Looks for what the consumer has read, and tells it of everything that waits if it may have read all it knows of.
    #[inline(never)]
    fn look_for_room(&mut self, units: u64) -> Result<(), SendError> {
        if self.close != Close::Open {
            return Err(SendError::Closed);
        }
        D::charge(Work::Poll);
        self.link.check()?;
        if self.link.in_flight() > 0 {
            self.take_completions()?;
        }
        if self.staged && self.link.in_flight() == 0 {
            self.staged = false;
        }
        self.hear_head()?;
        if self.sender.has_room(units) && self.is_ready() {
            return Ok(());
        }
        // A consumer that has more than γ to read of what it knows will say so without our help.
        if self.sender.synced_tail() - self.sender.told_head() < self.geometry.units / 4 {
            self.flush()?;
        }
        if self.design.head_sync == HeadSync::LazyPull && !self.pulling {
            self.pull_head()?;
        }
        Err(SendError::Full)
    }

    fn take_completions(&mut self) -> Result<(), RingError> {
        if let Some(position) = self.link.poll()?.completed {
            if self.design.mirrored {
                self.sender.completed(position);
            }
        }
        Ok(())
    }

    /// Reads what the consumer says of its head; checks it before it is used.
    fn hear_head(&mut self) -> Result<(), RingError> {
        let at = match self.design.head_sync {
            HeadSync::LazyPull => {
                if self.link.in_flight() > 0 {
                    return Ok(());
                }
                self.pulling = false;
                self.geometry.words.pulled_head
            }
            HeadSync::LazyPush | HeadSync::ActivePush => self.geometry.words.head,
        };
        let head = self.inlet.memory().atomic_u64(at).load(Ordering::Acquire);
        let head = u64::from_le(head);
        if head != self.sender.told_head() {
            if let Err(violation) = self.sender.heard_head(head) {
                return Err(self.link.fail(violation.into()));
            }
        }
        Ok(())
    }

    /// READs the head of the consumer.
    fn pull_head(&mut self) -> Result<(), RingError> {
        if !self.link.has_entries(1) {
            return Ok(());
        }
        let segment = [Segment {
            region: &self.inlet,
            offset: self.geometry.words.pulled_head,
            length: 8,
        }];
        let read = Operation::Read {
            remote: self.places.published_head,
        };
        let request = SendRequest::new(0, read, Payload::Segments(&segment), SendFlags::empty());
        self.link
            .post(&mut [request], true, self.sender.esc_tail())?;
        self.pulling = true;
        Ok(())
    }

    /// Where a message of this reservation is made.
    #[inline(always)]
    pub(crate) fn room(&mut self, offset: usize, length: usize) -> &mut [u8] {
        if self.design.zero_copy {
            self.local.bytes_mut(offset + self.geometry.prefix, length)
        } else {
            &mut self.scratch[..length]
        }
    }

    /// A message has been made where [`Producer::room`] said.
    #[inline(always)]
    pub(crate) fn commit(&mut self, offset: usize, length: usize) -> Result<(), RingError> {
        if !self.design.zero_copy {
            let place = self.local.bytes_mut(offset + self.geometry.prefix, length);
            place.copy_from_slice(&self.scratch[..length]);
            D::charge(Work::Copy(length));
        }
        self.publish(offset, length)
    }

    /// Frames a message that stands in our array and does what is due.
    #[inline(always)]
    fn publish(&mut self, offset: usize, length: usize) -> Result<(), RingError> {
        let units = self.geometry.units_of(length);
        if self.geometry.has_header() {
            let header = framing::encode(length);
            let place = self.local.bytes_mut(offset, HEADER_BYTES);
            place.copy_from_slice(&header);
            if !self.geometry.spans {
                let next = self.geometry.index(self.sender.tail() + units);
                let link = framing::encode(next as usize);
                let place = self.local.bytes_mut(offset + HEADER_BYTES, HEADER_BYTES);
                place.copy_from_slice(&link);
            }
        }
        if self.geometry.suffix > 0 {
            let end = offset + self.geometry.prefix + length;
            self.local.bytes_mut(end, 1)[0] = framing::VALID;
        }
        if self.design.polls_messages() {
            return self.write_message(offset, units, length);
        }
        self.sender.wrote(units);
        self.after_write()
    }

    /// Slot transmission and pointer advancement, if they are due (Algorithm 1, lines 6 to 15).
    #[inline(always)]
    fn after_write(&mut self) -> Result<(), RingError> {
        match self.sender.due() {
            Due::Nothing => Ok(()),
            Due::Transmit => self.hand_over(false).map(|_| ()),
            Due::Advance => self.advance(),
        }
    }

    #[inline(never)]
    fn advance(&mut self) -> Result<(), RingError> {
        if self.link.in_flight() > 0 {
            self.take_completions()?;
        }
        if self.sender.may_advance(self.link.in_flight()) {
            self.hand_over(true)?;
        } else if self.sender.transmission_is_due() {
            self.hand_over(false)?;
        }
        Ok(())
    }

    /// Hands everything up to the tail to the device, and the tail itself if `advance`. `false`: the send queue has no room now.
    #[inline(never)]
    fn hand_over(&mut self, advance: bool) -> Result<bool, RingError> {
        if !self.link.has_entries(LIST) {
            self.take_completions()?;
            if !self.link.has_entries(LIST) {
                return Ok(false);
            }
        }
        let (from, to) = (self.sender.esc_tail(), self.sender.tail());
        let unit = self.geometry.unit_bytes;
        let count = (to - from) as usize;
        let until_end = (self.geometry.units - self.geometry.index(from)) as usize;
        let pieces = [
            (self.geometry.offset(from), count.min(until_end) * unit),
            (0, count.saturating_sub(until_end) * unit),
        ];
        let segments = pieces.map(|(offset, length)| {
            let (region, offset) = self.local.place(offset);
            [Segment {
                region,
                offset,
                length,
            }]
        });
        let tail = to.to_le_bytes();
        let immediate = (advance && self.design.tail_sync == TailSync::CompletionQueue)
            .then_some((to - self.sender.synced_tail()) as u32);
        let word = || {
            let (remote, payload, immediate) = match immediate {
                Some(_) => (self.places.array, &[][..], immediate),
                None => (self.places.tail, &tail[..], None),
            };
            let write = Operation::Write { remote, immediate };
            SendRequest::new(0, write, Payload::Inline(payload), SendFlags::empty())
        };
        let mut list: [Request<'_, D>; LIST] = [word(), word(), word()];
        let mut used = 0;
        for ((offset, length), segment) in pieces.into_iter().zip(&segments) {
            if length == 0 {
                continue;
            }
            let write = Operation::Write {
                remote: self.places.array.plus(offset as u64),
                immediate: None,
            };
            let payload = if length <= self.inline_bytes {
                Payload::Inline(self.local.bytes(offset, length))
            } else {
                Payload::Segments(segment)
            };
            list[used] = SendRequest::new(0, write, payload, SendFlags::empty());
            used += 1;
        }
        match (advance, immediate) {
            // The last piece carries the notification.
            (true, Some(_)) if used > 0 => {
                if let Operation::Write {
                    immediate: with, ..
                } = &mut list[used - 1].operation
                {
                    *with = immediate;
                }
            }
            (true, _) => used += 1,
            (false, _) => {}
        }
        if used == 0 {
            return Ok(true);
        }
        let far = to - self.signaled_tail >= self.geometry.units / 4;
        let signal = far || (advance && self.signals_advancement());
        if signal {
            self.signaled_tail = to;
        }
        // Without batching each request has a doorbell of its own: a NIC takes a short one from its doorbell, but fetches those of a
        // list from memory, which is a round trip over PCIe more.
        let together = if self.design.batching == Batching::Off {
            1
        } else {
            LIST
        };
        let groups = used.div_ceil(together);
        for (group, requests) in list[..used].chunks_mut(together).enumerate() {
            self.link
                .post(requests, signal && group + 1 == groups, to)?;
        }
        self.sender.transmitted();
        if advance {
            self.sender.advanced();
        }
        // The next slots, when the consumer has given them back.
        if count > 1 && self.sender.has_room(2 * count as u64) {
            let offset = self.geometry.offset(to);
            let length = (count * unit).min(self.geometry.array_bytes() - offset);
            let remote = self.places.array.plus(offset as u64);
            self.link.expect_write(remote, length);
        }
        Ok(true)
    }

    /// Whether pointer advancements make completions: for the elastic threshold, and where WRITEs under way are counted.
    #[inline(always)]
    fn signals_advancement(&self) -> bool {
        match self.design.batching {
            Batching::Off => false,
            Batching::Adaptive { elastic, .. } => elastic,
            Batching::InFlight { .. } => true,
        }
    }

    /// WRITEs one message that its reader polls: whole, or its length behind it.
    #[inline(never)]
    fn write_message(&mut self, offset: usize, units: u64, length: usize) -> Result<(), RingError> {
        let position = self.sender.tail();
        let whole = self.geometry.prefix + length + self.geometry.suffix;
        let remote = self
            .places
            .array
            .plus(self.geometry.offset(position) as u64);
        let length_last = self.design.tail_sync == TailSync::PollLength;
        let first = if length_last { HEADER_BYTES } else { 0 };
        let (region, at) = self.local.place(offset);
        let segment = [Segment {
            region,
            offset: at + first,
            length: whole - first,
        }];
        let inline = whole - first <= self.inline_bytes;
        let payload = if inline {
            Payload::Inline(self.local.bytes(offset + first, whole - first))
        } else {
            Payload::Segments(&segment)
        };
        let write = |remote| Operation::Write {
            remote,
            immediate: None,
        };
        let none = SendFlags::empty();
        let header = self.local.bytes(offset, HEADER_BYTES);
        let mut list: [Request<'_, D>; 2] = [
            SendRequest::new(0, write(remote.plus(first as u64)), payload, none),
            SendRequest::new(0, write(remote), Payload::Inline(header), none),
        ];
        let used = if length_last { 2 } else { 1 };
        let to = position + units;
        // The one place of a design without an array is free again when its WRITE is complete.
        let staged = !self.design.mirrored && !inline;
        let far = to - self.signaled_tail >= self.geometry.units / 4;
        for (index, request) in list[..used].chunks_mut(1).enumerate() {
            let signal = (staged || far) && index + 1 == used;
            self.link.post(request, signal, to)?;
        }
        if staged || far {
            self.signaled_tail = to;
        }
        self.staged = staged;
        self.sender.wrote(units);
        self.told(to);
        Ok(())
    }

    /// A message that tells of itself has been handed over.
    #[inline(always)]
    fn told(&mut self, to: u64) {
        self.sender.transmitted();
        self.sender.advanced();
        if !self.design.mirrored {
            // Nothing at this side waits for it.
            self.sender.completed(to);
        }
    }

    /// Fills the end of the array with nothing, because the next message does not fit there.
    #[cold]
    fn skip_to_start(&mut self, skip: u64) -> Result<(), SendError> {
        let offset = self.place_of_tail();
        if self.geometry.has_header() {
            let place = self.local.bytes_mut(offset, HEADER_BYTES);
            place.copy_from_slice(&framing::SKIP);
        }
        if self.design.polls_messages() {
            let remote = self.geometry.offset(self.sender.tail());
            let write = Operation::Write {
                remote: self.places.array.plus(remote as u64),
                immediate: None,
            };
            let payload = Payload::Inline(&framing::SKIP);
            let request = SendRequest::new(0, write, payload, SendFlags::empty());
            self.link
                .post(&mut [request], false, self.sender.esc_tail())?;
            self.sender.wrote(skip);
            self.told(self.sender.tail());
            return Ok(());
        }
        // Only the unit with the mark is transmitted, not what an earlier message left behind it.
        self.sender.wrote(1);
        if !self.hand_over(false)? {
            // The mark is then transmitted with what is left in these units.
            self.sender.wrote(skip - 1);
            return Ok(());
        }
        self.sender.wrote(skip - 1);
        self.sender.transmitted();
        Ok(())
    }

    /// Says where the ring ends, behind everything else.
    fn tell_end(&mut self) -> Result<(), RingError> {
        self.flush()?;
        if self.sender.is_behind() || !self.link.has_entries(1) {
            return Ok(());
        }
        let word = (self.sender.tail() + 1).to_le_bytes();
        let write = Operation::Write {
            remote: self.places.end,
            immediate: None,
        };
        let request = SendRequest::new(0, write, Payload::Inline(&word), SendFlags::empty());
        self.link.post(&mut [request], true, self.sender.tail())?;
        self.close = Close::Told;
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
impl<D: Device> Producer<D> {
    /// All that the consumer may write.
    pub(crate) fn inlet_for_tests(&self) -> D::Region {
        self.inlet.clone()
    }
}
