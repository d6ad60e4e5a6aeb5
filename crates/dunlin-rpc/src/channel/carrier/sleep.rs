//! Sleep and wake-ups of a channel, by the words of [`dunlin_link::SleepWord`].

use dunlin_link::Ticket;
use dunlin_verbs::{CompletionQueue, Device, Notify, Payload, Region, SendFlags};

use super::{Carrier, QUIET};
use crate::bugs::{is_planted, Bug};
use crate::channel::ChannelError;

/// Entries that an announcement takes, with a wake-up for the peer.
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
        // Without an entry for it the next flush tries again.
        if self.post_write(self.sleep.wake_up(), Payload::Inline(&[]), flags)? {
            self.sleep.answer(number);
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
    /// same, but where both sides hear of messages so.
    pub(crate) fn prepare_sleep(&mut self) -> Result<bool, ChannelError> {
        // The wake-up for the last announcement may have come; one that comes later wakes us for nothing, once.
        self.progress()?;
        if self.is_short() || !self.reserve(ANNOUNCED)? {
            // Who has something to post does not sleep.
            return Ok(false);
        }
        if !self.met {
            // Its first word comes as a wake-up.
            self.ask_for_event()?;
            return Ok(true);
        }
        if self.hears_sends() {
            // So does the peer: whatever is on its way wakes whoever sleeps when it comes.
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
            // A message may have arrived later than it was posted, after the peer announced its sleep and looked in
            // vain.
            self.wake_if_asleep()?;
        }
        self.ask_for_event()?;
        // A wake-up that came before raises no event, and there is no second one for the same sleep.
        self.progress()?;
        Ok(self.is_confirmed(announces))
    }

    /// Posts what shows that all that was sent has arrived, if that is not on its way: the announcement, where this
    /// side `announces` its sleep.
    fn confirm(&mut self, announces: bool) -> Result<(), ChannelError> {
        if !announces {
            return self.fence().map(drop);
        }
        let last = self.sleep.announcement();
        let unconfirmed = self.unconfirmed.is_some_and(|sent| sent > last);
        if unconfirmed || !self.sleep.is_unanswered() {
            let (write, number) = self.sleep.announce();
            // Behind all messages: when it is done, they have arrived.
            self.post_write(write, Payload::Inline(&number), SendFlags::SIGNALED)?;
            self.sleep.announced(self.sends.last());
        }
        Ok(())
    }

    /// Posts a request behind all that has brought the peer something, unless there is one or all of it is known to
    /// have arrived. `false`: there is no entry for it.
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

    /// The last request that has brought the peer something and is not known to have arrived.
    pub(crate) fn unconfirmed(&self) -> Option<Ticket> {
        self.unconfirmed
    }

    /// Whether all that was sent has arrived, with the announcement if there is one.
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
