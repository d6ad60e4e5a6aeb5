//! Slot transmission and pointer advancement (RB² §IV-B): passes messages to the device, and publishes them to the
//! consumer.

use dunlin_verbs::{Device, Operation, Payload, Segment, SendFlags, SendRequest};

use super::{ProducerCore, LIST};
use crate::design::{Batching, TailSync};
use crate::effort;
use crate::error::RingError;
use crate::link::{Request, RingLink};
use crate::policy::Due;

/// How far ahead of the tail the device is told where WRITEs will go: as many lines as can be in transit from one core
/// to another.
const EXPECTED_BYTES: usize = 64 * crate::LINE_BYTES;

/// The tail is one word.
const TAIL_BYTES: usize = 8;

impl<D: Device> ProducerCore<D> {
    /// Slot transmission and pointer advancement, if they are due (Algorithm 1, lines 6 to 15).
    #[inline(always)]
    pub(super) fn after_write(&mut self, link: &mut impl RingLink<D>) -> Result<(), RingError> {
        match self.sender.due() {
            Due::Nothing => {}
            Due::Transmit => _ = self.hand_over(link, false)?,
            Due::Advance => self.advance(link)?,
        }
        self.pull_if_due(link)
    }

    /// Lazy pull, if γ slots have been written since the last one.
    #[inline(always)]
    pub(super) fn pull_if_due(&mut self, link: &mut impl RingLink<D>) -> Result<(), RingError> {
        if self.sender.tail() >= self.pull_at {
            self.pull_in_time(link)?;
        }
        Ok(())
    }

    #[inline(never)]
    pub(super) fn advance(&mut self, link: &mut impl RingLink<D>) -> Result<(), RingError> {
        if link.in_flight() > 0 {
            self.take_completions(link)?;
        }
        if self.sender.may_advance(link.in_flight()) {
            self.hand_over(link, true)?;
        } else if self.sender.transmission_is_due() {
            self.hand_over(link, false)?;
        }
        Ok(())
    }

    /// Passes everything up to the tail to the device, and the tail itself if `advance` is set. Returns `false` if the
    /// send queue has too few free entries.
    #[inline(never)]
    pub(super) fn hand_over(
        &mut self,
        link: &mut impl RingLink<D>,
        advance: bool,
    ) -> Result<bool, RingError> {
        if !link.has_entries(LIST) {
            self.take_completions(link)?;
            if !link.has_entries(LIST) {
                return Ok(false);
            }
        }
        let (from, to) = (self.sender.esc_tail(), self.sender.tail());
        let unit = self.geometry.unit_bytes;
        let count = (to - from) as usize;
        if count == 0 && !advance {
            return Ok(true);
        }
        D::charge(effort::HANDED_OVER);
        let signal = self.signals_at(to, advance && self.signals_advancement());
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
        // Behind a batch, the line of the tail is fetched while the slots are copied. For a single message a prefetch
        // would only take the line from the consumer that polls it.
        if advance && count > 1 {
            link.expect_write(self.places.tail, TAIL_BYTES);
        }
        let tail = to.to_le_bytes();
        let immediate = (advance && self.design.tail_sync == TailSync::CompletionQueue)
            .then_some((to - self.sender.synced_tail()) as u32);
        let none = SendFlags::empty();
        // With immediate data, the last piece carries the notification, or an empty WRITE if there is no piece.
        let alone = immediate.is_none() || count == 0;
        let word = || {
            let (remote, payload) = match immediate {
                Some(_) => (self.places.array, &[][..]),
                None => (self.places.tail, &tail[..]),
            };
            let write = Operation::Write { remote, immediate };
            SendRequest::new(to, write, Payload::Inline(payload), none)
        };
        // `until`: the position behind the piece. The device may still read the next piece.
        let piece = |which: usize, last: bool, until: u64| {
            let (offset, length) = pieces[which];
            let write = Operation::Write {
                remote: self.places.array.plus(offset as u64),
                immediate: immediate.filter(|_| last),
            };
            let payload = if length <= self.inline_bytes {
                Payload::Inline(self.local.bytes(offset, length))
            } else {
                Payload::Segments(&segments[which])
            };
            SendRequest::new(until, write, payload, none)
        };
        // Slots and tail are posted separately (Algorithm 1, lines 7 and 12): a NIC takes a short request with its
        // doorbell, but fetches those of a list from memory, which costs another round trip over PCIe. A WRITE that
        // merely wraps around is posted as a list.
        let apart = self.design.batching == Batching::Off || immediate.is_none();
        let wrap = from + until_end as u64;
        let mut post = |requests: &mut [Request<'_, D>]| {
            if !apart {
                return link.post(requests, signal);
            }
            let last = requests.len() - 1;
            let mut each = requests.chunks_mut(1).enumerate();
            each.try_for_each(|(place, request)| link.post(request, signal && place == last))
        };
        match (count > 0, count > until_end, advance && alone) {
            (false, ..) => post(&mut [word()]),
            (true, false, false) => post(&mut [piece(0, true, to)]),
            (true, false, true) => post(&mut [piece(0, true, to), word()]),
            (true, true, false) => post(&mut [piece(0, false, wrap), piece(1, true, to)]),
            (true, true, true) => post(&mut [piece(0, false, wrap), piece(1, true, to), word()]),
        }?;
        self.sender.transmitted();
        if advance {
            self.sender.advanced();
            link.wake_if_asleep(to)?;
        }
        if count > 1 {
            self.expect_slots(link, to, count)?;
        }
        Ok(true)
    }

    /// Tells the device of the next slots that will be WRITTEN, if the consumer has freed them. The head is checked in
    /// time for this, not only when the ring is full.
    #[inline(always)]
    fn expect_slots(
        &mut self,
        link: &mut impl RingLink<D>,
        next: u64,
        count: usize,
    ) -> Result<(), RingError> {
        let ahead = (EXPECTED_BYTES / self.geometry.unit_bytes)
            .min(self.geometry.units as usize / 2)
            .max(count) as u64;
        if !self.sender.has_room(ahead) {
            self.hear_head(link)?;
        }
        let (from, until) = (self.expected.max(next), next + ahead);
        if until <= from || !self.sender.has_room(ahead) {
            return Ok(());
        }
        self.expected = until;
        let offset = self.geometry.offset(from);
        let length = ((until - from) as usize * self.geometry.unit_bytes)
            .min(self.geometry.array_bytes() - offset);
        let remote = self.places.array.plus(offset as u64);
        link.expect_write(remote, length);
        Ok(())
    }

    /// Whether the request that ends at `to` is signaled: if `wanted`, or to learn in time which slots are free again.
    #[inline(always)]
    pub(super) fn signals_at(&mut self, to: u64, wanted: bool) -> bool {
        let signal = wanted || to - self.signaled_tail >= self.geometry.units / 4;
        if signal {
            self.signaled_tail = to;
        }
        signal
    }

    /// Whether pointer advancements are signaled: for the elastic threshold, and where WRITEs in flight are counted.
    #[inline(always)]
    pub(super) fn signals_advancement(&self) -> bool {
        match self.design.batching {
            Batching::Off => false,
            Batching::Adaptive { elastic, .. } => elastic,
            Batching::InFlight { .. } => true,
        }
    }
}
