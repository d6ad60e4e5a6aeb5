//! The producer, which puts messages into the ring (RB² `WRITEMSG`).
//!
//! It is a state machine that does what can be done now: it neither waits nor reads a clock. Its owner either calls
//! [`Producer::poll`] repeatedly, as pollers do, or [`Producer::flush`] after the last message; otherwise a message may
//! wait for a later one.
//!
//! A [`ProducerCore`] is the producer without its queue pair, which is passed to each call ([`RingLink`]): channels of
//! the RPC have one queue pair for both directions and more. A [`Producer`] is the two together.

mod end;
mod owned;
mod polled;
mod reservation;
mod room;
mod sleep;
mod transmission;

use dunlin_link::Ticket;
use dunlin_verbs::progress::progress;
use dunlin_verbs::{Device, RemoteAddress, Work};

use crate::design::Design;
use crate::effort;
use crate::error::{LengthLimit, RingError, SendError};
use crate::framing;
use crate::framing::HEADER_BYTES;
use crate::geometry::Geometry;
use crate::link::RingLink;
use crate::memory::Mirror;
use crate::policy::{Due, Sender};

pub use owned::Producer;
pub use reservation::Reservation;

use end::Close;

/// Maximum number of requests posted together: two pieces of the array, the tail, and a wake-up.
const LIST: usize = 4;

/// Number of polls of a full ring after which messages that wait for a whole batch are published anyway: about a round
/// trip.
const FULL_POLLS: u32 = 64;

/// The locations at the consumer that a producer writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConsumerPlaces {
    pub(crate) array: RemoteAddress,
    pub(crate) tail: RemoteAddress,
    pub(crate) end: RemoteAddress,
    pub(crate) published_head: RemoteAddress,
}

/// A producer without its queue pair, which is passed to each call and must always be the same.
#[derive(Debug)]
pub struct ProducerCore<D: Device> {
    sender: Sender,
    geometry: Geometry,
    design: Design,
    /// The producer's array, or space for one message if the design has no array at the producer.
    local: Mirror<D::Region>,
    /// Buffer in which messages are made when the design has no zero copy.
    scratch: Vec<u8>,
    /// The memory that the consumer writes.
    inlet: D::Region,
    places: ConsumerPlaces,
    inline_bytes: usize,
    /// The tail at the last signaled request: slots are freed by completions, so they must not be too far apart.
    signaled_tail: u64,
    /// The position up to which the device has been told that slots will be WRITTEN.
    expected: u64,
    /// The tail at the last poll; if unchanged, the sender is idle.
    polled_tail: u64,
    /// Number of consecutive polls that found that tail.
    idle_polls: u32,
    /// The READ of the head that is in flight.
    pulling: Option<Ticket>,
    /// The tail at which the head is READ again, full or not.
    pull_at: u64,
    /// Whether a message is being WRITTEN from the only buffer that there is.
    staged: bool,
    /// The length for which [`ProducerCore::make_room`] has claimed room behind the last message.
    claimed: Option<usize>,
    /// Whether a flush or a close is pending because the send queue was full.
    flush_wanted: bool,
    close: Close,
}

/// Arguments of [`ProducerCore::new`].
pub(crate) struct Parts<D: Device> {
    pub(crate) sender: Sender,
    pub(crate) geometry: Geometry,
    pub(crate) design: Design,
    pub(crate) local: Mirror<D::Region>,
    pub(crate) inlet: D::Region,
    pub(crate) places: ConsumerPlaces,
    pub(crate) inline_bytes: usize,
}

impl<D: Device> ProducerCore<D> {
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
            local: parts.local,
            scratch,
            inlet: parts.inlet,
            places: parts.places,
            inline_bytes: parts.inline_bytes,
            signaled_tail: 0,
            expected: 0,
            polled_tail: 0,
            idle_polls: 0,
            pulling: None,
            pull_at: parts.geometry.pull,
            staged: false,
            claimed: None,
            flush_wanted: false,
            close: Close::Open,
        }
    }

    /// The message lengths that the ring carries.
    pub fn limit(&self) -> LengthLimit {
        self.geometry.limit()
    }

    /// As [`Producer::try_send`].
    #[inline]
    pub(crate) fn try_send(
        &mut self,
        link: &mut impl RingLink<D>,
        message: &[u8],
    ) -> Result<(), SendError> {
        link.check_process()?;
        if self.has_next(message.len()) {
            self.send_quietly(message.len(), |place| place.copy_from_slice(message));
            D::charge(Work::Copy(message.len()));
            return Ok(());
        }
        let offset = self.claim(link, message.len())?;
        let prefix = self.geometry.prefix;
        let place = self.local.bytes_mut(offset + prefix, message.len());
        place.copy_from_slice(message);
        D::charge(Work::Copy(message.len()));
        self.publish(link, offset, message.len())?;
        self.begin_run();
        Ok(())
    }

    /// As [`Producer::try_send_with`].
    #[inline]
    pub fn try_send_with(
        &mut self,
        link: &mut impl RingLink<D>,
        length: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), SendError> {
        link.check_process()?;
        if self.has_next(length) {
            self.send_quietly(length, fill);
            return Ok(());
        }
        let offset = self.claim(link, length)?;
        fill(self.room(offset, length));
        self.commit(link, offset, length)?;
        self.begin_run();
        Ok(())
    }

    /// Whether a message of `length` bytes can go to the next place of the run.
    #[inline(always)]
    fn has_next(&self, length: usize) -> bool {
        self.local.is_running() && self.geometry.is_single(length)
    }

    /// Sends a message of one unit that is known to fit and to reach no threshold, as most do.
    #[inline(always)]
    fn send_quietly(&mut self, length: usize, fill: impl FnOnce(&mut [u8])) {
        let prefix = self.geometry.prefix;
        if let Some(place) = self.local.next_of_run(prefix + length) {
            let (header, payload) = place.split_at_mut(prefix);
            if let Some(header) = header.first_chunk_mut() {
                *header = framing::encode(length);
            }
            fill(payload);
            self.local.filled();
            self.sender.wrote(1);
            D::charge(effort::MADE_QUIETLY);
        }
    }

    /// Begins a run of the places that may be filled without further checks; an empty one if each message requires more
    /// than being made.
    #[inline(always)]
    fn begin_run(&mut self) {
        let plain = self.design.zero_copy && self.design.mirrored && self.close == Close::Open;
        if !plain || self.design.polls_messages() || !self.geometry.spans {
            return;
        }
        let tail = self.sender.tail();
        let index = self.geometry.index(tail);
        let quiet = self.sender.quiet_until().min(self.pull_at - 1);
        let quiet = quiet.saturating_sub(tail);
        let count = quiet.min(self.geometry.units - index);
        let offset = self.geometry.offset(tail);
        self.local
            .begin_run(offset, self.geometry.unit_bytes, count);
    }

    /// As [`Producer::flush`].
    #[inline]
    pub fn flush(&mut self, link: &mut impl RingLink<D>) -> Result<(), RingError> {
        link.check_process()?;
        self.flush_wanted = self.sender.is_behind() && !self.hand_over(link, true)?;
        Ok(())
    }

    /// Whether everything has been published to the consumer.
    #[inline]
    pub fn is_flushed(&self) -> bool {
        !self.sender.is_behind()
    }

    /// As [`Producer::poll`].
    #[inline]
    pub(crate) fn poll(&mut self, link: &mut impl RingLink<D>) -> Result<(), RingError> {
        D::charge(Work::Poll);
        progress();
        link.check()?;
        if link.in_flight() > 0 {
            self.take_completions(link)?;
        }
        self.idle_polls = match self.sender.tail() == self.polled_tail {
            true => self.idle_polls.saturating_add(1),
            false => 0,
        };
        if self.flush_wanted {
            self.flush(link)?;
        } else if self.sender.is_behind() {
            if self.idle_polls == 0 || self.sender.due() != Due::Nothing {
                self.after_write(link)?;
            } else if self.sender.may_advance(link.in_flight()) && self.is_idle() {
                self.hand_over(link, true)?;
            }
        }
        self.polled_tail = self.sender.tail();
        if self.close == Close::Wanted {
            self.tell_end(link)?;
        }
        Ok(())
    }

    /// Whether a sender that has sent nothing since the last poll is really idle. A sender that finds the ring full is
    /// waiting for space, and the batch waits for the messages that will then be added to it (Algorithm 1, line 3, does
    /// nothing else), but not for long, and not while the consumer may have nothing to read.
    fn is_idle(&self) -> bool {
        self.sender.has_room(1) || self.may_run_dry() || self.idle_polls >= FULL_POLLS
    }

    /// Whether a message of this length can be sent at all.
    pub(crate) fn carries(&self, length: usize) -> bool {
        self.geometry.carries(length)
    }

    /// The bytes in which the message of this reservation is made.
    #[inline(always)]
    pub(crate) fn room(&mut self, offset: usize, length: usize) -> &mut [u8] {
        if self.design.zero_copy {
            self.local.bytes_mut(offset + self.geometry.prefix, length)
        } else {
            &mut self.scratch[..length]
        }
    }

    /// Sends the message that was made in the bytes returned by [`ProducerCore::room`].
    #[inline(always)]
    pub(crate) fn commit(
        &mut self,
        link: &mut impl RingLink<D>,
        offset: usize,
        length: usize,
    ) -> Result<(), RingError> {
        link.check_process()?;
        if !self.design.zero_copy {
            let place = self.local.bytes_mut(offset + self.geometry.prefix, length);
            place.copy_from_slice(&self.scratch[..length]);
            D::charge(Work::Copy(length));
        }
        self.publish(link, offset, length)
    }

    /// Makes room for the next message, of at most `length` bytes.
    ///
    /// # Errors
    /// As for [`Producer::try_send`].
    #[inline]
    pub fn make_room(
        &mut self,
        link: &mut impl RingLink<D>,
        length: usize,
    ) -> Result<(), SendError> {
        self.claim(link, length)?;
        self.claimed = Some(length);
        Ok(())
    }

    /// The place in the ring of the next message, or its first `length` bytes: initially the remains of an earlier one.
    ///
    /// # Panics
    /// When [`ProducerCore::make_room`] was not called for it, or for less.
    #[inline]
    pub fn next(&mut self, length: usize) -> &mut [u8] {
        self.check_claim(length);
        let place = self.place();
        self.room(place, length)
    }

    /// Sends the first `length` bytes of [`ProducerCore::next`] as the message.
    ///
    /// # Errors
    /// When the ring has ended.
    ///
    /// # Panics
    /// As for [`ProducerCore::next`].
    #[inline]
    pub fn send_next(
        &mut self,
        link: &mut impl RingLink<D>,
        length: usize,
    ) -> Result<(), RingError> {
        self.check_claim(length);
        let place = self.place();
        self.commit(link, place, length)
    }

    #[inline(always)]
    fn check_claim(&self, length: usize) {
        assert!(
            self.claimed.is_some_and(|claimed| length <= claimed),
            "room must be made for a message first"
        );
    }

    /// Frames a message that is in the producer's array and does what is due.
    #[inline(always)]
    fn publish(
        &mut self,
        link: &mut impl RingLink<D>,
        offset: usize,
        length: usize,
    ) -> Result<(), RingError> {
        D::charge(effort::MADE);
        self.claimed = None;
        let units = self.geometry.units_of(length);
        if self.geometry.has_header() {
            let header = framing::encode(length);
            let place = self.local.bytes_mut(offset, HEADER_BYTES);
            place.copy_from_slice(&header);
            if !self.geometry.spans {
                let next = self.geometry.index(self.sender.tail() + units);
                let next = framing::encode(next as usize);
                let place = self.local.bytes_mut(offset + HEADER_BYTES, HEADER_BYTES);
                place.copy_from_slice(&next);
            }
        }
        if self.geometry.suffix > 0 {
            let end = offset + self.geometry.prefix + length;
            self.local.bytes_mut(end, 1)[0] = framing::VALID;
        }
        if self.design.polls_messages() {
            return self.write_message(link, offset, units, length);
        }
        self.sender.wrote(units);
        self.after_write(link)
    }
}
