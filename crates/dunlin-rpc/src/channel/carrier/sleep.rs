//! Sleep and wake-ups of a channel, with the words of [`dunlin_link::SleepWord`].

use dunlin_link::Ticket;
use dunlin_verbs::{CompletionQueue, Device, Notify, Payload, Region, SendFlags};

use super::{Carrier, QUIET};
use crate::bugs::{is_planted, Bug};
use crate::channel::ChannelError;

/// Number of entries for an announcement and a wake-up of the peer.
const ANNOUNCED: usize = 2;

impl<D: Device> Carrier<D> {
    /// Wakes the peer if it announced a sleep that was not answered yet.
    #[inline]
    pub(in crate::channel) fn wake_if_asleep(&mut self) -> Result<(), ChannelError> {
        match self.sleep.unanswered(self.inlet.memory()) {
            Some(number) if is_planted(Bug::LostWakeUp) => {
                self.sleep.answer(number);
                Ok(())
            }
            Some(number) => self.wake_peer(number),
            None => Ok(()),
        }
    }

    #[cold]
    pub(in crate::channel) fn wake_peer(&mut self, number: u64) -> Result<(), ChannelError> {
        let flags = SendFlags::SIGNALED | SendFlags::SOLICITED;
        // If there is no entry for it, the next flush tries again.
        if self.post_write(self.sleep.wake_up(), Payload::Inline(&[]), flags)? {
            self.sleep.answer(number);
        }
        Ok(())
    }

    /// Announces that this side is going to sleep: from now on the peer's next message comes with a wake-up. Returns
    /// `true` when the announcement is known to have reached the peer; until then this side may not sleep, because the
    /// peer would not wake it. Then the caller keeps polling for messages, for longer than a store takes to become
    /// visible, and only then sleeps on [`Carrier::wake`].
    ///
    /// A side that receives messages by completions in a shared queue needs no wake-up: there is nothing to announce,
    /// and the poller of that queue requests an event of it. What it has sent must be known to have arrived all the
    /// same, except where both sides receive messages in this way.
    pub(crate) fn prepare_sleep(&mut self) -> Result<bool, ChannelError> {
        // The wake-up for the last announcement may have arrived; one that arrives later wakes us needlessly, once.
        self.progress()?;
        if self.is_short() || !self.reserve(ANNOUNCED)? {
            // A thread with something to post does not sleep.
            return Ok(false);
        }
        if !self.met {
            // The peer's first message arrives as a wake-up.
            self.ask_for_event()?;
            return Ok(true);
        }
        if self.hears_sends() {
            // The same holds for the peer: messages in flight wake a sleeping side on arrival.
            self.ask_for_event()?;
            self.progress()?;
            return Ok(true);
        }
        let announces = self.receive_id == QUIET;
        self.confirm(announces)?;
        self.progress()?;
        if !self.is_confirmed(announces) {
            return Ok(false);
        }
        if self.unconfirmed.take().is_some() {
            // A message may have arrived later than it was posted, after the peer announced its sleep and polled
            // without success.
            self.wake_if_asleep()?;
        }
        self.ask_for_event()?;
        // A wake-up that arrived before raises no event, and there is no second one for the same sleep.
        self.progress()?;
        Ok(self.is_confirmed(announces))
    }

    /// Posts a request that shows that all that was sent has arrived, unless one is in flight: the announcement, if
    /// this side `announces` its sleep.
    fn confirm(&mut self, announces: bool) -> Result<(), ChannelError> {
        if !announces {
            return self.fence().map(drop);
        }
        let last = self.sleep.announcement();
        let unconfirmed = self.unconfirmed.is_some_and(|sent| sent > last);
        if unconfirmed || !self.sleep.is_unanswered() {
            let (write, number) = self.sleep.announce();
            // After all messages: when it is completed, they have arrived.
            self.post_write(write, Payload::Inline(&number), SendFlags::SIGNALED)?;
            self.sleep.announced(self.sends.last());
        }
        Ok(())
    }

    /// Posts a request after all that has transferred something to the peer, unless there is one already or all of it
    /// is known to have arrived. `false`: there is no entry for it.
    pub(crate) fn fence(&mut self) -> Result<bool, ChannelError> {
        let is_behind = |sent| sent > self.fence && !self.is_done(sent);
        if !self.unconfirmed.is_some_and(is_behind) {
            return Ok(true);
        }
        let posted = self.post_nothing(None, SendFlags::empty())?;
        if posted {
            self.fence = self.sends.last();
        }
        Ok(posted)
    }

    /// Whether what was sent before [`Carrier::fence`] is known to have arrived.
    pub(crate) fn is_fence_done(&self) -> bool {
        self.is_done(self.fence)
    }

    /// The last request that has transferred something to the peer and is not known to have arrived.
    pub(crate) fn unconfirmed(&self) -> Option<Ticket> {
        self.unconfirmed
    }

    /// Whether all that was sent has arrived, including the announcement if there is one.
    fn is_confirmed(&self, announces: bool) -> bool {
        if announces {
            self.sleep.is_heard(&self.sends)
        } else {
            self.is_fence_done()
        }
    }

    fn ask_for_event(&mut self) -> Result<(), ChannelError> {
        self.completions
            .request_notify(Notify::Next)
            .map_err(|e| self.fail(ChannelError::queue_pair(e.to_string())))
    }
}
