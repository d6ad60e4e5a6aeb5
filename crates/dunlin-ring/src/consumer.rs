//! The consumer: where messages leave the ring (RB² `READMSG`).

use std::sync::atomic::{fence, Ordering};

use dunlin_verbs::{
    Device, Operation, Payload, QueuePair, ReceiveRequest, Region, RemoteAddress, SendFlags,
    SendRequest, Work,
};

use crate::design::{Design, HeadSync, TailSync};
use crate::error::{LengthLimit, RingError, Violation};
use crate::framing::{self, Header};
use crate::geometry::{Geometry, HEADER_BYTES};
use crate::link::Link;
use crate::memory::{Inbound, Message};
use crate::policy::Receiver;
use crate::stream::Watch;

/// Empty looks between two looks at the end of the ring and at the connection.
const LOOKS: u32 = 16;
/// Lines that are asked for ahead of the reading.
const AHEAD_BYTES: usize = 16 * 64;

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
        Self {
            receiver: parts.receiver,
            geometry: parts.geometry,
            design: parts.design,
            link: parts.link,
            array: parts.array,
            inlet: parts.inlet,
            peer_head: parts.peer_head,
            scratch,
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

    /// Gives the next message, in place, to `read` (RB² §IV-C: the callback of the receiver), and its slots back when `read` returns.
    /// When `read` panics the message stays the next one.
    ///
    /// # Errors
    /// When the producer is gone without an end, or broke the rules. Messages that arrived whole before that are given out first.
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

    /// Gives what has arrived, up to `most` messages, to `read`, and says how many there were. Zero is both *nothing now* and *the end*:
    /// [`Consumer::receive`] tells them apart.
    ///
    /// # Errors
    /// As for [`Consumer::receive`].
    #[inline]
    pub fn receive_many(
        &mut self,
        most: usize,
        mut read: impl FnMut(Message<'_>),
    ) -> Result<usize, RingError> {
        for count in 0..most {
            if !matches!(self.receive(&mut read)?, Received::Message(())) {
                return Ok(count);
            }
        }
        Ok(most)
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

    /// Copies the next message to the start of `target` and says how long it is. A message that is longer than `target` stays where it is,
    /// and its length is the `Err` of the message.
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

    /// Does what is due: takes completions and retries a push that was deferred. Those who go on receiving need not call it.
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

    /// Tells the producer of everything that was read, without waiting for γ.
    ///
    /// # Errors
    /// When the connection has failed.
    pub fn push(&mut self) -> Result<(), RingError> {
        self.push_head()
    }

    /// Becomes true when something may have arrived since now, or the end.
    pub(crate) fn arrival(&self) -> Watch {
        let (inlet, words) = (self.inlet.clone(), self.geometry.words);
        let now = move || {
            let at = |at| inlet.memory().atomic_u64(at).load(Ordering::Acquire);
            (at(words.tail), at(words.end))
        };
        let tail = self.receiver.local_tail().to_le();
        Box::new(move || {
            let (seen_tail, seen_end) = now();
            seen_tail != tail || seen_end != 0
        })
    }

    /// The next message, checked.
    #[inline(always)]
    fn next(&mut self) -> Result<Received<Arrival>, RingError> {
        loop {
            if self.receiver.available() == 0 && !self.look()? {
                return self.nothing();
            }
            match self.parse() {
                Ok(Some(arrival)) => return Ok(Received::Message(arrival)),
                Ok(None) => self.skip()?,
                Err(violation) => return Err(self.violation(violation)),
            }
        }
    }

    /// Reads the header of the next message; `None` when the rest of the array is to be skipped.
    #[inline(always)]
    fn parse(&self) -> Result<Option<Arrival>, Violation> {
        let head = self.receiver.head();
        let offset = self.geometry.offset(head);
        let length = if self.geometry.has_header() {
            match framing::decode(self.array.word(offset)) {
                Header::Nothing => return Err(Violation::Header),
                Header::Skip => return self.check_skip(self.geometry.units),
                Header::Length(length) => length,
            }
        } else {
            self.geometry.fixed_bytes().unwrap_or_default()
        };
        if !self.geometry.carries(length) {
            return Err(self.wrong_length(length));
        }
        let units = self.geometry.units_of(length);
        if self.geometry.skip(head, units) > 0 {
            if self.geometry.has_header() {
                return Err(self.wrong_length(length));
            }
            return self.check_skip(units);
        }
        if units > self.receiver.available() {
            return Err(self.wrong_length(length));
        }
        if !self.geometry.spans {
            self.check_link(offset, head + units)?;
        }
        self.prefetch_behind(offset);
        Ok(Some(Arrival {
            offset: offset + self.geometry.prefix,
            length,
            units,
        }))
    }

    #[cold]
    fn wrong_length(&self, length: usize) -> Violation {
        let there = self.receiver.available() as usize * self.geometry.unit_bytes;
        Violation::Length {
            length: length as u64,
            limit: self.geometry.longest.min(there) as u64,
        }
    }

    /// A skip leads to the end of the array, and that has to be written.
    #[cold]
    fn check_skip(&self, units: u64) -> Result<Option<Arrival>, Violation> {
        let skip = self.units_to_end();
        if skip > self.receiver.available() || units <= 1 || !self.geometry.spans {
            return Err(Violation::Header);
        }
        Ok(None)
    }

    fn units_to_end(&self) -> u64 {
        self.geometry.units - self.geometry.index(self.receiver.head())
    }

    /// The list never changes, so there is one slot that a link may lead to.
    #[inline]
    fn check_link(&self, offset: usize, next: u64) -> Result<(), Violation> {
        let slots = self.geometry.units;
        let link = framing::decode(self.array.word(offset + HEADER_BYTES));
        match link {
            Header::Length(slot) if slot as u64 == self.geometry.index(next) => Ok(()),
            Header::Length(slot) => Err(Violation::Link {
                slot: slot as u64,
                slots,
            }),
            Header::Nothing | Header::Skip => Err(Violation::Link { slot: slots, slots }),
        }
    }

    #[cold]
    fn skip(&mut self) -> Result<(), RingError> {
        let units = self.units_to_end();
        let offset = self.geometry.offset(self.receiver.head());
        if self.design.polls_messages() {
            self.array.zero(offset, HEADER_BYTES);
        }
        if self.receiver.read(units) {
            self.push_head()?;
        }
        Ok(())
    }

    /// Looks for what the producer has written since.
    #[inline(always)]
    fn look(&mut self) -> Result<bool, RingError> {
        let tail = match self.design.tail_sync {
            TailSync::WriteTwice => {
                let at = self.geometry.words.tail;
                let word = self.inlet.memory().atomic_u64(at);
                u64::from_le(word.load(Ordering::Acquire))
            }
            TailSync::CompletionQueue => self.notified()?,
            TailSync::PollMessage | TailSync::PollLength => self.polled(),
        };
        if tail == self.receiver.local_tail() {
            return Ok(false);
        }
        if let Err(violation) = self.receiver.heard_tail(tail) {
            return Err(self.violation(violation));
        }
        self.prefetch();
        Ok(true)
    }

    /// Asks for the first lines of what has arrived, all at once: reading asks for one after the other.
    #[inline(always)]
    fn prefetch(&self) {
        let offset = self.geometry.offset(self.receiver.head());
        let there = self.receiver.available() as usize * self.geometry.unit_bytes;
        let most = there
            .min(AHEAD_BYTES)
            .min(self.geometry.array_bytes() - offset);
        for line in (0..most).step_by(crate::LINE_BYTES) {
            self.array.prefetch(offset + line);
        }
    }

    /// While reading goes on, asks for one line more, of those that have arrived: others the producer is writing. What lies behind the
    /// wrap is left to the next look.
    #[inline(always)]
    fn prefetch_behind(&self, offset: usize) {
        let ahead = offset + AHEAD_BYTES;
        let there = self.receiver.available() as usize * self.geometry.unit_bytes;
        if there > AHEAD_BYTES && ahead < self.geometry.array_bytes() {
            self.array.prefetch(ahead);
        }
    }

    /// The tail by completions of WRITEs with immediate data; their RECEIVEs are posted again.
    fn notified(&mut self) -> Result<u64, RingError> {
        let tail = self.receiver.local_tail();
        let polled = match self.link.poll() {
            Ok(polled) => polled,
            // Told by `nothing`, after the end was looked for.
            Err(_) => return Ok(tail),
        };
        for _ in 0..polled.received {
            let request = ReceiveRequest {
                id: 0,
                segments: &[],
            };
            if self.link.queue_pair.post_receive(&[request]).is_err() {
                // The queue pair is in error, which the next look finds.
                break;
            }
        }
        if polled.received > 0 && polled.immediate == 0 {
            return Err(self.violation(Violation::Immediate));
        }
        Ok(tail.wrapping_add(polled.immediate))
    }

    /// The tail by the next message itself: behind it when it is there and whole.
    #[inline]
    fn polled(&self) -> u64 {
        let head = self.receiver.head();
        let offset = self.geometry.offset(head);
        let length = match framing::decode(self.array.word(offset)) {
            Header::Nothing => return head,
            Header::Skip => return head + self.units_to_end(),
            Header::Length(length) => length,
        };
        let units = self.geometry.units_of(length.min(self.geometry.longest));
        if self.design.tail_sync == TailSync::PollMessage
            && length <= self.geometry.longest
            && self.geometry.skip(head, units) == 0
            && self.array.byte(offset + self.geometry.prefix + length) == 0
        {
            return head;
        }
        // A length that cannot be is found out when the message is parsed.
        head + units
    }

    /// Nothing has arrived: from time to time, looks for the end and for the connection.
    #[inline(always)]
    fn nothing(&mut self) -> Result<Received<Arrival>, RingError> {
        D::charge(Work::Poll);
        self.looks = self.looks.wrapping_add(1);
        if self.looks % LOOKS != 0 && !self.over {
            return Ok(Received::Empty);
        }
        let found = self.look_around();
        self.over = matches!(found, Ok(Received::End) | Err(_));
        found
    }

    #[inline(never)]
    fn look_around(&mut self) -> Result<Received<Arrival>, RingError> {
        let connection = self.link.check();
        // What arrived before the connection ended is given out before its end is told.
        if self.look()? {
            self.looks = self.looks.wrapping_sub(1);
            return self.next();
        }
        let at = self.geometry.words.end;
        let word = self.inlet.memory().atomic_u64(at).load(Ordering::Acquire);
        if let Some(end) = u64::from_le(word).checked_sub(1) {
            let ahead = end.wrapping_sub(self.receiver.head());
            if ahead == 0 {
                return Ok(Received::End);
            }
            if ahead >= self.geometry.units {
                return Err(self.violation(Violation::End));
            }
        }
        connection?;
        if self.receiver.push_is_due() {
            self.push_head()?;
        }
        Ok(Received::Empty)
    }

    /// Gives the units of a message back.
    #[inline(always)]
    fn give_back(&mut self, offset: usize, length: usize, units: u64) -> Result<(), RingError> {
        if self.design.polls_messages() {
            let start = offset - self.geometry.prefix;
            let whole = self.geometry.prefix + length + self.geometry.suffix;
            self.array.zero(start, whole);
            D::charge(Work::Copy(whole));
        }
        if self.receiver.read(units) {
            self.push_head()?;
        }
        Ok(())
    }

    /// Tells the producer how far we have read. Where the send queue has no entry now, the next call does it.
    #[inline(never)]
    fn push_head(&mut self) -> Result<(), RingError> {
        // What was read was read before the producer may write there again.
        fence(Ordering::Release);
        let head = self.receiver.head().to_le_bytes();
        if self.design.head_sync == HeadSync::LazyPull {
            let at = self.geometry.words.published_head;
            let word = self.inlet.memory().atomic_u64(at);
            word.store(u64::from_ne_bytes(head), Ordering::Release);
            self.receiver.pushed();
            return Ok(());
        }
        if !self.link.has_entries(1) {
            // Completions of RECEIVEs are not lost where there are any: those designs poll in `notified` before they read.
            if self.design.tail_sync == TailSync::CompletionQueue {
                return Ok(());
            }
            if self.link.poll().is_err() || !self.link.has_entries(1) {
                return Ok(());
            }
        }
        let write = Operation::Write {
            remote: self.peer_head,
            immediate: None,
        };
        let request = SendRequest::new(0, write, Payload::Inline(&head), SendFlags::empty());
        if self.link.post(&mut [request], false, 0).is_ok() {
            self.receiver.pushed();
        }
        // A connection that failed is told when there is nothing left to read.
        Ok(())
    }

    #[cold]
    fn violation(&mut self, violation: Violation) -> RingError {
        self.link.fail(violation.into())
    }
}

#[cfg(all(test, not(loom)))]
impl<D: Device> Consumer<D> {
    /// All that the producer may write.
    pub(crate) fn inlet_for_tests(&self) -> D::Region {
        self.inlet.clone()
    }

    pub(crate) fn units_for_tests(&self) -> u64 {
        self.geometry.units
    }
}

/// A message that has arrived, read in place. Its slots are given back when it is dropped.
#[derive(Debug)]
pub struct Arrived<'a, D: Device> {
    consumer: &'a mut Consumer<D>,
    arrival: Arrival,
}

impl<D: Device> Arrived<'_, D> {
    /// The message.
    #[inline]
    pub fn message(&self) -> Message<'_> {
        let Arrival { offset, length, .. } = self.arrival;
        self.consumer.array.message(offset, length)
    }

    /// Leaves the message in the ring; it is the next one again.
    pub fn leave(mut self) {
        self.arrival.units = 0;
    }

    /// Gives the slots back now.
    ///
    /// # Errors
    /// When the connection has failed.
    pub fn give_back(mut self) -> Result<(), RingError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), RingError> {
        let Arrival {
            offset,
            length,
            units,
        } = self.arrival;
        self.arrival.units = 0;
        if units == 0 {
            return Ok(());
        }
        self.consumer.give_back(offset, length, units)
    }
}

impl<D: Device> Drop for Arrived<'_, D> {
    fn drop(&mut self) {
        // A connection that failed is told by the next call.
        let _ = self.end();
    }
}
