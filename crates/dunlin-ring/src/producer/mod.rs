//! The producer, which puts messages into the ring (RB² `WRITEMSG`).
//!
//! It is a state machine that does what can be done now: it neither waits nor reads a clock. Its owner either calls
//! [`Producer::poll`] repeatedly, as pollers do, or [`Producer::flush`] after the last message; otherwise a message may
//! wait for a later one.

mod end;
mod polled;
mod reservation;
mod room;
mod sleep;
mod transmission;

use dunlin_link::Ticket;
use dunlin_verbs::progress::progress;
use dunlin_verbs::{Device, Region, RemoteAddress, Work};

use crate::design::Design;
use crate::effort;
use crate::error::{LengthLimit, RingError, SendError};
use crate::framing;
use crate::framing::HEADER_BYTES;
use crate::geometry::Geometry;
use crate::link::Link;
use crate::memory::Mirror;
use crate::policy::{Due, Sender};

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

/// The writing end of a ring.
#[derive(Debug)]
pub struct Producer<D: Device> {
    sender: Sender,
    geometry: Geometry,
    design: Design,
    link: Link<D>,
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
    /// Whether a flush or a close is pending because the send queue was full.
    flush_wanted: bool,
    close: Close,
}

/// Arguments of [`Producer::new`].
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
            expected: 0,
            polled_tail: 0,
            idle_polls: 0,
            pulling: None,
            pull_at: parts.geometry.pull,
            staged: false,
            flush_wanted: false,
            close: Close::Open,
        }
    }

    /// The point in the design space.
    pub fn design(&self) -> &Design {
        &self.design
    }

    /// The message lengths that the ring carries.
    pub fn limit(&self) -> LengthLimit {
        self.geometry.limit()
    }

    /// The kind of pages that back the array.
    pub fn page_kind(&self) -> dunlin_verbs::PageKind {
        self.local.place(0).0.page_kind()
    }

    /// Sends a copy of `message`.
    ///
    /// # Errors
    /// [`SendError::Full`] when the consumer has not read enough: poll and try again, and if that takes long, call
    /// [`Producer::probe`]. Also when the ring does not carry messages of this length, or has ended.
    #[inline]
    pub fn try_send(&mut self, message: &[u8]) -> Result<(), SendError> {
        self.link.check_process()?;
        if self.has_next(message.len()) {
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
        self.begin_run();
        Ok(())
    }

    /// Sends a message of `length` bytes that `fill` writes directly into the ring (RB² §IV-C, zero copy at the
    /// sender). The bytes initially hold the remains of an earlier message.
    ///
    /// # Errors
    /// As for [`Producer::try_send`]; `fill` is then not called.
    #[inline]
    pub fn try_send_with(
        &mut self,
        length: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), SendError> {
        self.link.check_process()?;
        if self.has_next(length) {
            self.send_quietly(length, fill);
            return Ok(());
        }
        let offset = self.claim(length)?;
        fill(self.room(offset, length));
        self.commit(offset, length)?;
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

    /// Reserves space in the ring for a message of at most `length` bytes, to be filled and committed.
    ///
    /// # Errors
    /// As for [`Producer::try_send`].
    #[inline]
    pub fn reserve(&mut self, length: usize) -> Result<Reservation<'_, D>, SendError> {
        self.link.check_process()?;
        let offset = self.claim(length)?;
        Ok(Reservation::new(self, offset, length))
    }

    /// Publishes everything that was sent to the consumer, without waiting for the thresholds. If the send queue is
    /// full, [`Producer::poll`] does it later.
    ///
    /// # Errors
    /// When the ring has ended.
    #[inline]
    pub fn flush(&mut self) -> Result<(), RingError> {
        self.link.check_process()?;
        self.flush_wanted = self.sender.is_behind() && !self.hand_over(true)?;
        Ok(())
    }

    /// As [`Link::check_process`].
    pub(crate) fn check_process(&self) -> Result<(), RingError> {
        self.link.check_process()
    }

    /// Checks whether the consumer is still alive, for a caller that waits for space: see
    /// [`probe`](crate::Consumer::probe) of the other end.
    ///
    /// # Errors
    /// When the ring has ended.
    pub fn probe(&mut self) -> Result<(), RingError> {
        self.link.check()?;
        self.take_completions()?;
        self.link.probe(self.places.tail, self.sender.esc_tail())
    }

    /// Whether everything has been published to the consumer.
    pub fn is_flushed(&self) -> bool {
        !self.sender.is_behind()
    }

    /// Does what is due: takes completions, retries deferred steps, and flushes a partial batch if nothing was sent
    /// since the last call, which shows that the sender is idle (design §5). If the ring is full and the consumer has
    /// enough to read, the flush waits for 64 calls.
    ///
    /// # Errors
    /// When the ring has ended.
    #[inline]
    pub fn poll(&mut self) -> Result<(), RingError> {
        D::charge(Work::Poll);
        progress();
        self.link.check()?;
        if self.link.in_flight() > 0 {
            self.take_completions()?;
        }
        self.idle_polls = match self.sender.tail() == self.polled_tail {
            true => self.idle_polls.saturating_add(1),
            false => 0,
        };
        if self.flush_wanted {
            self.flush()?;
        } else if self.sender.is_behind() {
            if self.idle_polls == 0 || self.sender.due() != Due::Nothing {
                self.after_write()?;
            } else if self.sender.may_advance(self.link.in_flight()) && self.is_idle() {
                self.hand_over(true)?;
            }
        }
        self.polled_tail = self.sender.tail();
        if self.close == Close::Wanted {
            self.tell_end()?;
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

    /// Sends the message that was made in the bytes returned by [`Producer::room`].
    #[inline(always)]
    pub(crate) fn commit(&mut self, offset: usize, length: usize) -> Result<(), RingError> {
        self.link.check_process()?;
        if !self.design.zero_copy {
            let place = self.local.bytes_mut(offset + self.geometry.prefix, length);
            place.copy_from_slice(&self.scratch[..length]);
            D::charge(Work::Copy(length));
        }
        self.publish(offset, length)
    }

    /// Frames a message that is in the producer's array and does what is due.
    #[inline(always)]
    fn publish(&mut self, offset: usize, length: usize) -> Result<(), RingError> {
        D::charge(effort::MADE);
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
}

#[cfg(any(all(test, not(loom)), feature = "fuzzing"))]
impl<D: Device> Producer<D> {
    /// All memory that the consumer may write.
    pub(crate) fn inlet_for_tests(&self) -> D::Region {
        self.inlet.clone()
    }
}
