//! The consumer's three pointers and the lazy push (`READMSG` of RB² Algorithm 1).

use super::Line;
use crate::error::Violation;

/// The pointers and thresholds of the consumer.
#[derive(Debug)]
pub(crate) struct Receiver {
    /// The next unit to be read.
    head: Line<u64>,
    /// The head that was last pushed to the producer.
    synced_head: Line<u64>,
    /// The producer's tail, as far as this side knows.
    local_tail: Line<u64>,
    /// N.
    units: u64,
    /// γ in units.
    push: u64,
}

impl Receiver {
    pub(crate) fn new(units: u64, push: u64) -> Self {
        Self {
            head: Line(0),
            synced_head: Line(0),
            local_tail: Line(0),
            units,
            push,
        }
    }

    /// The next unit to be read.
    #[inline(always)]
    pub(crate) fn head(&self) -> u64 {
        self.head.0
    }

    /// The first unit that is not known to be written.
    #[inline(always)]
    pub(crate) fn local_tail(&self) -> u64 {
        self.local_tail.0
    }

    /// Number of units that can be read (line 18: none when head is local_tail).
    #[inline(always)]
    pub(crate) fn available(&self) -> u64 {
        self.local_tail.0 - self.head.0
    }

    /// Records that the producer has written up to `tail`.
    ///
    /// # Errors
    /// When that is impossible: the tail moves backwards, or over units that were not read.
    #[inline(always)]
    pub(crate) fn heard_tail(&mut self, tail: u64) -> Result<(), Violation> {
        let by = tail.wrapping_sub(self.local_tail.0);
        // The producer may fill up to one unit less than what it has been told is free.
        let room = self.synced_head.0 + self.units - 1 - self.local_tail.0;
        if by > room {
            return Err(Violation::Tail { by, room });
        }
        self.local_tail.0 = tail;
        Ok(())
    }

    /// Records that units have been read (line 21); returns whether the head is to be pushed now (line 22).
    #[inline(always)]
    pub(crate) fn read(&mut self, units: u64) -> bool {
        debug_assert!(units <= self.available());
        self.head.0 += units;
        self.push_is_due()
    }

    /// Number of units that can be read until a push is due; at least one if any can be read at all, because a push
    /// that is due may have been deferred.
    #[inline(always)]
    pub(crate) fn until_push(&self) -> u64 {
        let unpushed = self.head.0 - self.synced_head.0;
        let until = self.push.saturating_sub(unpushed).max(1);
        until.min(self.available())
    }

    /// Whether enough has been read since the last push.
    #[inline(always)]
    pub(crate) fn push_is_due(&self) -> bool {
        self.head.0 - self.synced_head.0 >= self.push
    }

    /// Records that the head has been passed to the device (line 24).
    #[inline(always)]
    pub(crate) fn pushed(&mut self) {
        self.synced_head.0 = self.head.0;
    }
}
