//! What admission needs of a channel: a request for credits is sent by WRITE with immediate (FLOCK §5.1), a grant by a
//! WRITE of one word. And what sharing needs: room for runs of messages that others encode.

use std::sync::atomic::Ordering;

use dunlin_verbs::{Device, Region, SendFlags};

use super::{RingChannel, GRANT_AT};
use crate::channel::carrier::{ASKS, REPORTS};
use crate::channel::ChannelError;

impl<D: Device> RingChannel<D> {
    /// Number of bytes that runs of whole messages may take now; reads the peer's count if that is less than `wanted`.
    #[inline]
    pub(crate) fn run_room(&mut self, wanted: usize) -> Result<usize, ChannelError> {
        let room = self.outbox.run_room();
        if room >= wanted {
            return Ok(room);
        }
        self.look_for_room()?;
        Ok(self.outbox.run_room())
    }

    /// See [`crate::channel::outbox::Outbox::run_space`].
    #[inline]
    pub(crate) fn run_space(&mut self, bytes: usize) -> &mut [u8] {
        self.outbox.run_space(bytes)
    }

    /// See [`crate::channel::outbox::Outbox::commit_run`].
    #[inline]
    pub(crate) fn commit_run(&mut self, bytes: usize, messages: u32) {
        self.outbox.commit_run(bytes, messages);
    }

    /// The peer's last grant: the word of [`RingChannel::grant`], or zero if there was none.
    #[inline]
    pub(crate) fn granted(&self) -> u64 {
        self.inlet
            .memory()
            .atomic_u64(GRANT_AT)
            .load(Ordering::Relaxed)
    }

    /// Sends the peer a new word, and wakes it if it sleeps: it may be waiting for this only. `false`: not now.
    pub(crate) fn grant(&mut self, word: u64) -> Result<bool, ChannelError> {
        if !self.write_word(GRANT_AT, &word.to_le_bytes())? {
            return Ok(false);
        }
        self.unconfirmed = Some(self.last_posted());
        self.wake_if_asleep()?;
        Ok(true)
    }

    /// Requests credits of the peer with a word of 30 bits, in the immediate of the last WRITE of the batch being made,
    /// so that it costs no request of its own.
    #[inline]
    pub(crate) fn ask_for_credits(&mut self, word: u32) {
        self.asks = Some(ASKS | word);
    }

    /// What a sender without room or credits waits for: the peer's grant, and its count of consumed lines.
    pub(crate) fn news(&self) -> (u64, u64) {
        let consumed = self.inlet.memory().atomic_u64(super::CONSUMED_AT);
        let known = self.outbox.known_consumed();
        (self.granted(), known.max(consumed.load(Ordering::Relaxed)))
    }

    /// Reports the median degree of one-sided operations, which the peer's processor does not observe.
    pub(crate) fn report(&mut self, degree: u32) -> Result<(), ChannelError> {
        let posted = self.post_nothing(Some(REPORTS | degree), SendFlags::empty())?;
        // The peer has at most one report pending, so there is no other.
        self.unreported = (!posted).then_some(degree);
        Ok(())
    }

    /// Takes the degree that the peer reported last.
    pub(crate) fn take_reported(&mut self) -> Option<u32> {
        self.reported.take()
    }

    /// Takes the word of the peer's last request for credits.
    #[inline]
    pub(crate) fn take_asked(&mut self) -> Option<u32> {
        self.asked.take()
    }
}
