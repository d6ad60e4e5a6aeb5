//! Sleep and wake-ups: a side that announces its sleep is woken by the next message.

use std::sync::atomic::Ordering;

use dunlin_verbs::{CompletionQueue, Device, Notify, Region, SendFlags};

use super::{Carrier, QUIET, SLEEP_AT};
use crate::channel::ChannelError;

/// Entries that an announcement takes, with a wake-up for the peer.
const ANNOUNCED: usize = 2;

impl<D: Device> Carrier<D> {
    /// Wakes the peer if it announced a sleep that was not answered yet.
    #[inline]
    pub(in crate::channel) fn wake_if_asleep(&mut self) -> Result<(), ChannelError> {
        let sleep = self
            .inlet
            .memory()
            .atomic_u64(self.inlet_at + SLEEP_AT)
            .load(Ordering::Relaxed);
        if sleep != self.woken {
            self.wake_peer(sleep)?;
        }
        Ok(())
    }

    #[cold]
    pub(in crate::channel) fn wake_peer(&mut self, sleep: u64) -> Result<(), ChannelError> {
        // Without an entry for it the next flush tries again.
        if self.post_nothing(Some(0), SendFlags::SOLICITED)? {
            self.woken = sleep;
        }
        Ok(())
    }

    /// Announces that this side is going to sleep: from now on the peer's next message comes with a wake-up. `true`
    /// when the announcement is known to have reached the peer; until then this side may not sleep, because a peer that
    /// has not heard of it wakes nobody. Then the caller looks once more for messages, for longer than a store takes to
    /// become visible, and only then sleeps on [`Carrier::wake`].
    ///
    /// A side that hears of messages by completions in a queue that others share needs no wake-up: there is nothing to
    /// announce, and who polls that queue asks it for an event. What it has sent must be known to have arrived all the
    /// same.
    pub(crate) fn prepare_sleep(&mut self) -> Result<bool, ChannelError> {
        // The wake-up for the last announcement may have come; one that comes later wakes us for nothing, once.
        self.progress()?;
        if self.is_short() || !self.reserve(ANNOUNCED)? {
            // Who has something to post does not sleep.
            return Ok(false);
        }
        if !self.met {
            // Its first word comes as a wake-up.
            self.completions
                .request_notify(Notify::Next)
                .map_err(|e| self.fail(ChannelError::queue_pair(e.to_string())))?;
            return Ok(true);
        }
        let unconfirmed = self
            .unconfirmed
            .is_some_and(|sent| sent > self.announcement);
        if self.receive_id != QUIET {
            if unconfirmed {
                self.post_nothing(None, SendFlags::empty())?;
                self.announcement = self.sends.last();
                self.progress()?;
            }
        } else if !self.asleep || unconfirmed {
            if !self.asleep {
                self.sleep += 1;
                self.asleep = true;
            }
            // Signaled, and behind all messages: when it is done, they have arrived.
            let word = self.sleep.to_le_bytes();
            self.write_word(SLEEP_AT, &word, true)?;
            self.announcement = self.sends.last();
            self.progress()?;
        }
        let known = self.sends.is_finished(self.announcement);
        if known && self.unconfirmed.take().is_some() {
            // A message may have arrived later than it was posted, after the peer announced its sleep and looked in
            // vain.
            self.wake_if_asleep()?;
        }
        self.completions
            .request_notify(Notify::Next)
            .map_err(|e| self.fail(ChannelError::queue_pair(e.to_string())))?;
        Ok(known)
    }
}
