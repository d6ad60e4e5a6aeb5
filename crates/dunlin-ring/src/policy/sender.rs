//! The producer's four pointers and adaptive batching (RB² §IV-B, `WRITEMSG` of Algorithm 1).

use super::Line;
use crate::error::Violation;

/// When to pass slots and the tail to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pacing {
    /// By α and β, with or without the elastic threshold.
    Thresholds { elastic: bool },
    /// Immediately while fewer than `most` WRITEs are in flight.
    InFlight { most: u32 },
}

/// The action that the state of the pointers requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Nothing.
    Nothing,
    /// Slot transmission.
    Transmit,
    /// Pointer advancement, if the device has completed the previous one; otherwise slot transmission, once that is due
    /// too.
    Advance,
}

/// The pointers and thresholds of the producer.
#[derive(Debug)]
pub(crate) struct Sender {
    /// The next unit to be written.
    tail: Line<u64>,
    /// The tail that was last sent to the consumer.
    synced_tail: Line<u64>,
    /// The position up to which slots have been transmitted: the escaped tail.
    esc_tail: Line<u64>,
    /// The position up to which units may be reused, as far as this side knows: the consumer's head, but no further
    /// than WRITEs are known to be complete, so that no unit is reused that the device may still read.
    local_head: Line<u64>,
    /// The position up to which WRITEs are known to be complete, and the head that the consumer last reported.
    completed: u64,
    told_head: u64,
    /// N.
    units: u64,
    /// α and β in units.
    advance: u64,
    transmit: u64,
    pacing: Pacing,
}

impl Sender {
    pub(crate) fn new(units: u64, advance: u64, transmit: u64, pacing: Pacing) -> Self {
        Self {
            tail: Line(0),
            synced_tail: Line(0),
            esc_tail: Line(0),
            local_head: Line(0),
            completed: 0,
            told_head: 0,
            units,
            advance,
            transmit,
            pacing,
        }
    }

    /// The next unit to be written.
    #[inline(always)]
    pub(crate) fn tail(&self) -> u64 {
        self.tail.0
    }

    /// The first unit that has not been transmitted.
    #[inline(always)]
    pub(crate) fn esc_tail(&self) -> u64 {
        self.esc_tail.0
    }

    /// The first unit that has not been published to the consumer.
    #[inline(always)]
    pub(crate) fn synced_tail(&self) -> u64 {
        self.synced_tail.0
    }

    /// The first unit that must not be reused, as far as is known.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn local_head(&self) -> u64 {
        self.local_head.0
    }

    /// Whether `units` more can be written (line 2 of Algorithm 1, against local_head). One unit is never used.
    #[inline(always)]
    pub(crate) fn has_room(&self, units: u64) -> bool {
        self.tail.0 - self.local_head.0 + units < self.units
    }

    /// Records that units have been written (line 5).
    #[inline(always)]
    pub(crate) fn wrote(&mut self, units: u64) {
        self.tail.0 += units;
    }

    /// Returns what is to be done now (lines 6 and 13).
    #[inline(always)]
    pub(crate) fn due(&self) -> Due {
        if self.tail.0 - self.synced_tail.0 >= self.advance {
            Due::Advance
        } else if self.transmission_is_due() {
            Due::Transmit
        } else {
            Due::Nothing
        }
    }

    /// While the tail is below this, one more unit fits and triggers nothing: neither line 2 nor lines 6 and 13 have to
    /// be evaluated. It never decreases.
    #[inline(always)]
    pub(crate) fn quiet_until(&self) -> u64 {
        let room = self.local_head.0 + self.units - 1;
        let advance = self.synced_tail.0.saturating_add(self.advance - 1);
        let transmit = self.esc_tail.0.saturating_add(self.transmit - 1);
        room.min(advance).min(transmit)
    }

    /// Whether enough units wait for a slot transmission.
    #[inline(always)]
    pub(crate) fn transmission_is_due(&self) -> bool {
        self.tail.0 - self.esc_tail.0 >= self.transmit
    }

    /// Whether the tail may be synchronised now (line 11): with the elastic threshold, when the WRITE of the last tail
    /// is complete; otherwise depending on the number of signaled WRITEs in flight.
    #[inline(always)]
    pub(crate) fn may_advance(&self, in_flight: usize) -> bool {
        match self.pacing {
            Pacing::Thresholds { elastic } => !elastic || self.completed >= self.synced_tail.0,
            Pacing::InFlight { most } => in_flight < most as usize,
        }
    }

    /// Whether there are units that have not been published to the consumer.
    #[inline(always)]
    pub(crate) fn is_behind(&self) -> bool {
        self.tail.0 != self.synced_tail.0
    }

    /// Records that all units up to the tail have been passed to the device (lines 8 and 15).
    #[inline(always)]
    pub(crate) fn transmitted(&mut self) {
        self.esc_tail.0 = self.tail.0;
    }

    /// Records that the tail has been passed to the device (line 9, once line 12 is certain).
    #[inline(always)]
    pub(crate) fn advanced(&mut self) {
        debug_assert_eq!(self.esc_tail.0, self.tail.0);
        self.synced_tail.0 = self.tail.0;
    }

    /// Records that WRITEs up to this position are complete.
    #[inline(always)]
    pub(crate) fn completed(&mut self, position: u64) {
        debug_assert!(position >= self.completed && position <= self.esc_tail.0);
        self.completed = position;
        self.local_head.0 = self.told_head.min(self.completed);
    }

    /// Whether the WRITEs of all units are complete.
    pub(crate) fn is_complete(&self) -> bool {
        self.completed == self.tail.0
    }

    /// Records that the consumer has read up to `head`.
    ///
    /// # Errors
    /// When that is impossible: the head moves backwards, or beyond what was published.
    #[inline]
    pub(crate) fn heard_head(&mut self, head: u64) -> Result<(), Violation> {
        let by = head.wrapping_sub(self.told_head);
        let sent = self.synced_tail.0 - self.told_head;
        if by > sent {
            return Err(Violation::Head { by, sent });
        }
        self.told_head = head;
        self.local_head.0 = head.min(self.completed);
        Ok(())
    }

    /// The head that the consumer last reported.
    #[inline(always)]
    pub(crate) fn told_head(&self) -> u64 {
        self.told_head
    }
}
