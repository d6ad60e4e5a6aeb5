//! Polling for messages, by the tail, by completions, or by the next message itself; if there are none, also for the
//! end of the ring.

use std::sync::atomic::Ordering;

use dunlin_verbs::progress::progress;
use dunlin_verbs::{Device, Region, Work};

use super::{Arrival, ConsumerCore, Received};
use crate::design::TailSync;
use crate::effort;
use crate::error::{RingError, Violation};
use crate::framing::{self, Header};
use crate::link::RingLink;

/// Empty polls between two checks of the end of the ring and of the connection.
const LOOKS: u32 = 16;
/// With this many RECEIVEs owed they are posted again even while messages wait to be read. Far more than this remain
/// posted.
const OWED: usize = 16;
/// Number of bytes prefetched ahead of reading.
pub(super) const AHEAD_BYTES: usize = 16 * crate::LINE_BYTES;

impl<D: Device> ConsumerCore<D> {
    /// Polls for what the producer has written since.
    #[inline(always)]
    pub(super) fn look(&mut self, link: &mut impl RingLink<D>) -> Result<bool, RingError> {
        let tail = match self.design.tail_sync {
            TailSync::WriteTwice => {
                let at = self.geometry.words.tail;
                let word = self.inlet.memory().atomic_u64(at);
                u64::from_le(word.load(Ordering::Acquire))
            }
            TailSync::CompletionQueue => self.notified(link)?,
            TailSync::PollMessage | TailSync::PollLength => self.polled(),
        };
        if tail == self.receiver.local_tail() {
            return Ok(false);
        }
        if let Err(violation) = self.receiver.heard_tail(tail) {
            return Err(self.violation(link, violation));
        }
        self.prefetch();
        D::charge(effort::FOUND);
        Ok(true)
    }

    /// Prefetches the first lines of what has arrived, all at once: reading would fetch them one after the other.
    #[inline(always)]
    pub(super) fn prefetch(&self) {
        let offset = self.geometry.offset(self.receiver.head());
        let there = self.receiver.available() as usize * self.geometry.unit_bytes;
        let most = there
            .min(AHEAD_BYTES)
            .min(self.geometry.array_bytes() - offset);
        for line in (0..most).step_by(crate::LINE_BYTES) {
            self.array.prefetch(offset + line);
        }
    }

    /// While reading goes on, prefetches one more line of those that have arrived; the producer may be writing the
    /// others. Lines behind the wrap are left to the next poll.
    #[inline(always)]
    pub(super) fn prefetch_behind(&self, offset: usize) {
        let ahead = offset + AHEAD_BYTES;
        let there = self.receiver.available() as usize * self.geometry.unit_bytes;
        if there > AHEAD_BYTES && ahead < self.geometry.array_bytes() {
            self.array.prefetch(ahead);
        }
    }

    /// Derives the tail from completions of WRITEs with immediate data; their RECEIVEs are posted again.
    pub(super) fn notified(&mut self, link: &mut impl RingLink<D>) -> Result<u64, RingError> {
        let tail = self.receiver.local_tail();
        let polled = match link.poll() {
            Ok(polled) => polled,
            // Reported by `nothing`, after it has checked for the end.
            Err(_) => return Ok(tail),
        };
        self.owed += polled.received;
        // RECEIVEs are not posted before the message is read and answered, unless many are owed: posting is not part of
        // a message's path.
        let idle = polled.received == 0 && self.looked_in_vain;
        self.looked_in_vain = polled.received == 0;
        if self.owed > 0 && (idle || self.owed >= OWED) {
            self.post_owed(link);
        }
        if polled.received > 0 && polled.immediate == 0 {
            return Err(self.violation(link, Violation::Immediate));
        }
        Ok(tail.wrapping_add(polled.immediate))
    }

    /// Posts again the RECEIVEs that messages have consumed.
    fn post_owed(&mut self, link: &mut impl RingLink<D>) {
        link.expect_immediates(std::mem::take(&mut self.owed));
    }

    /// Derives the tail from the next message itself: the position behind it, once it is complete.
    #[inline]
    pub(super) fn polled(&self) -> u64 {
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
        // An impossible length is detected when the message is parsed.
        head + units
    }

    /// Nothing has arrived: from time to time, checks for the end and the connection.
    #[inline(always)]
    pub(super) fn nothing(
        &mut self,
        link: &mut impl RingLink<D>,
    ) -> Result<Received<Arrival>, RingError> {
        D::charge(Work::Poll);
        progress();
        self.looks = self.looks.wrapping_add(1);
        if self.looks % LOOKS != 0 && !self.over {
            return Ok(Received::Empty);
        }
        let found = self.look_around(link);
        self.over = matches!(found, Ok(Received::End) | Err(_));
        found
    }

    #[inline(never)]
    pub(super) fn look_around(
        &mut self,
        link: &mut impl RingLink<D>,
    ) -> Result<Received<Arrival>, RingError> {
        let connection = link.check();
        // What arrived before the connection ended is returned before the end is reported.
        if self.look(link)? {
            self.looks = self.looks.wrapping_sub(1);
            return self.next(link);
        }
        let at = self.geometry.words.end;
        let word = self.inlet.memory().atomic_u64(at).load(Ordering::Acquire);
        if let Some(end) = u64::from_le(word).checked_sub(1) {
            let ahead = end.wrapping_sub(self.receiver.head());
            if ahead == 0 {
                return Ok(Received::End);
            }
            if ahead >= self.geometry.units {
                return Err(self.violation(link, Violation::End));
            }
        }
        connection?;
        if self.receiver.push_is_due() {
            self.push_head(link)?;
        }
        Ok(Received::Empty)
    }
}
