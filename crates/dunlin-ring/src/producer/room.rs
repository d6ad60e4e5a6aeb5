//! Free space in the ring: what the consumer has read, what the device has completed, and the end of the array.

use std::sync::atomic::Ordering;

use dunlin_verbs::{Device, Operation, Payload, Region, Segment, SendFlags, SendRequest};

use super::end::Close;
use super::{ProducerCore, LIST};
use crate::design::HeadSync;
use crate::error::{RingError, SendError};
use crate::framing;
use crate::framing::HEADER_BYTES;
use crate::link::{write_inline, RingLink};

impl<D: Device> ProducerCore<D> {
    /// Whether a message of this length may find room, as far as one poll can tell. Only where the head is pushed.
    pub fn may_have_room(&self, link: &impl RingLink<D>, length: usize) -> bool {
        let units = self.geometry.units_of(length);
        let units = units + self.geometry.skip(self.sender.tail(), units);
        let head = self.inlet.memory().atomic_u64(self.geometry.words.head);
        self.sender.has_room(units)
            || u64::from_le(head.load(Ordering::Acquire)) != self.sender.told_head()
            || link.in_flight() > 0
    }

    /// Claims space for a message: checks the length, skips the end of the array if necessary, and returns where the
    /// message begins.
    #[inline(always)]
    ///
    /// # Errors
    /// As for [`Producer::try_send`](super::Producer::try_send).
    pub(crate) fn claim(
        &mut self,
        link: &mut impl RingLink<D>,
        length: usize,
    ) -> Result<usize, SendError> {
        // The conditions of the run no longer hold.
        self.local.end_run();
        if !self.geometry.carries(length) {
            return Err(self.wrong_length(length));
        }
        let units = self.geometry.units_of(length);
        let skip = self.geometry.skip(self.sender.tail(), units);
        if !self.sender.has_room(skip + units) || !self.is_ready(link) {
            self.look_for_room(link, skip + units)?;
        }
        if skip > 0 {
            self.skip_to_start(link, skip)?;
        }
        Ok(self.place())
    }

    /// Whether a message may be made now, apart from space in the ring. A message that is its own tail is posted by the
    /// call that makes it, so it needs entries of the send queue immediately; others can wait in the array.
    #[inline(always)]
    pub(super) fn is_ready(&self, link: &impl RingLink<D>) -> bool {
        self.close == Close::Open
            && !self.staged
            && (!self.design.polls_messages() || link.has_entries(LIST))
    }

    /// Offset in the producer's array at which the next message begins, once room for it was claimed.
    #[inline(always)]
    pub(crate) fn place(&self) -> usize {
        if self.design.mirrored {
            self.geometry.offset(self.sender.tail())
        } else {
            0
        }
    }

    #[cold]
    pub(super) fn wrong_length(&self, bytes: usize) -> SendError {
        SendError::Length {
            bytes,
            limit: self.geometry.limit(),
        }
    }

    /// Checks how far the consumer has read, and flushes if the consumer may have read everything that was published.
    #[inline(never)]
    pub(super) fn look_for_room(
        &mut self,
        link: &mut impl RingLink<D>,
        units: u64,
    ) -> Result<(), SendError> {
        if self.close != Close::Open {
            return Err(SendError::Closed);
        }
        link.check()?;
        if link.in_flight() > 0 {
            self.take_completions(link)?;
        }
        if self.staged && link.in_flight() == 0 {
            self.staged = false;
        }
        self.hear_head(link)?;
        if self.sender.has_room(units) && self.is_ready(link) {
            return Ok(());
        }
        if self.may_run_dry() {
            self.flush(link)?;
        }
        if self.design.head_sync == HeadSync::LazyPull && self.pulling.is_none() {
            self.pull_head(link)?;
        }
        Err(SendError::Full)
    }

    /// Whether the consumer may read everything that was published before it reports its head. With more than γ to read
    /// it will report the head in any case.
    #[inline]
    pub(super) fn may_run_dry(&self) -> bool {
        self.sender.synced_tail() - self.sender.told_head() < self.geometry.units / 4
    }

    pub(super) fn take_completions(
        &mut self,
        link: &mut impl RingLink<D>,
    ) -> Result<(), RingError> {
        if let Some(name) = link.poll()?.completed {
            self.completed(name);
        }
        Ok(())
    }

    /// Records that the request with this name is complete. The name of the end is beyond everything that was passed to
    /// the device.
    pub(super) fn completed(&mut self, name: u64) {
        if self.design.mirrored {
            self.sender.completed(name.min(self.sender.esc_tail()));
        }
    }

    /// Reads the head that the consumer has written and checks it before use.
    pub(super) fn hear_head(&mut self, link: &mut impl RingLink<D>) -> Result<(), RingError> {
        let at = match self.design.head_sync {
            HeadSync::LazyPull => {
                match self.pulling {
                    Some(read) if link.is_finished(read) => self.pulling = None,
                    _ => return Ok(()),
                }
                self.geometry.words.pulled_head
            }
            HeadSync::LazyPush | HeadSync::ActivePush => self.geometry.words.head,
        };
        let head = self.inlet.memory().atomic_u64(at).load(Ordering::Acquire);
        let head = u64::from_le(head);
        if head != self.sender.told_head() {
            if let Err(violation) = self.sender.heard_head(head) {
                return Err(link.fail(violation.into()));
            }
        }
        Ok(())
    }

    /// READs the head of the consumer.
    pub(super) fn pull_head(&mut self, link: &mut impl RingLink<D>) -> Result<(), RingError> {
        if !link.has_entries(1) {
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
        let name = self.sender.esc_tail();
        let payload = Payload::Segments(&segment);
        let request = SendRequest::new(name, read, payload, SendFlags::empty());
        link.post(&mut [request], true)?;
        self.pulling = Some(link.last());
        self.pull_at = self.sender.tail() + self.geometry.pull;
        Ok(())
    }

    /// Lazy pull: takes the head that was requested γ slots ago, and requests it again. It does not wait: if the READ
    /// has not completed yet, it is checked again after γ more slots.
    #[cold]
    pub(super) fn pull_in_time(&mut self, link: &mut impl RingLink<D>) -> Result<(), RingError> {
        if self.pulling.is_some() {
            self.take_completions(link)?;
            self.hear_head(link)?;
        }
        if self.pulling.is_none() {
            self.pull_head(link)?;
        }
        self.pull_at = self.sender.tail() + self.geometry.pull;
        Ok(())
    }

    /// Skips the end of the array, because the next message does not fit there.
    #[cold]
    pub(super) fn skip_to_start(
        &mut self,
        link: &mut impl RingLink<D>,
        skip: u64,
    ) -> Result<(), SendError> {
        let offset = self.place();
        if self.geometry.has_header() {
            let place = self.local.bytes_mut(offset, HEADER_BYTES);
            place.copy_from_slice(&framing::SKIP);
        }
        if self.design.polls_messages() {
            let offset = self.geometry.offset(self.sender.tail());
            let remote = self.places.array.plus(offset as u64);
            let name = self.sender.esc_tail();
            write_inline(link, remote, &framing::SKIP, (name, false))?;
            self.sender.wrote(skip);
            self.told(self.sender.tail());
            return Ok(());
        }
        // Only the unit with the mark is transmitted, not the remains of an earlier message behind it.
        self.sender.wrote(1);
        if !self.hand_over(link, false)? {
            // The mark is then transmitted together with the remains in these units.
            self.sender.wrote(skip - 1);
            return Ok(());
        }
        self.sender.wrote(skip - 1);
        self.sender.transmitted();
        Ok(())
    }

    /// Whether the consumer has read everything that was sent, as far as it has reported.
    pub(crate) fn is_drained(&mut self, link: &mut impl RingLink<D>) -> Result<bool, RingError> {
        self.hear_head(link)?;
        Ok(self.sender.told_head() == self.sender.tail())
    }
}
