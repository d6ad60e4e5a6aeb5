//! The client core: what a server's messages mean, on any channel, and for calls in any table.
//!
//! It stands between a [`Channel`] below and the calls that are out above ([`Outstanding`]): a lane of one thread has
//! them in a table of its own, those of a shared lane belong to many threads. No threads, no clocks, no waiting.

use super::lane::{Answer, CallId};
use crate::channel::buffers::Landed;
use crate::channel::call_id::MOST_SLOTS;
use crate::channel::carrier::Finished;
use crate::channel::message::{Header, Kind};
use crate::channel::{Channel, ChannelError};
use crate::error::{CallError, WireFailure};

/// Messages taken in one poll: bounds the time that a poll holds its caller.
const POLL_BUDGET: usize = 64;

/// The calls that are out on a channel.
///
/// A server sends its messages when it likes, so none may end a one-sided operation: that is out until the device has
/// done it, and its result is as long as was asked for.
pub(crate) trait Outstanding {
    /// A message has come: one has ended well and its response is short, by far the most frequent end.
    ///
    /// # Errors
    /// When it is not out, or is a one-sided operation.
    fn answer(&mut self, call: CallId, response: &[u8]) -> Result<(), ChannelError>;
    /// The device has done a one-sided operation, whose result is short.
    ///
    /// # Errors
    /// When it is not out.
    fn operated(&mut self, call: CallId, result: &[u8]) -> Result<(), ChannelError>;
    /// A message has come that ends one otherwise.
    ///
    /// # Errors
    /// As for [`Outstanding::answer`].
    fn expect_answer(&mut self, call: CallId) -> Result<(), ChannelError>;
    /// One has ended otherwise.
    ///
    /// # Errors
    /// When it is not out.
    fn complete(
        &mut self,
        call: CallId,
        result: Result<Answer<'_>, CallError>,
    ) -> Result<(), ChannelError>;
    /// The long response of a call is about to be fetched, which may be once.
    ///
    /// # Errors
    /// As for [`Outstanding::answer`], or when it is being fetched.
    fn begin_fetch(&mut self, call: CallId) -> Result<(), ChannelError>;
    /// The server takes no more calls; answers still come.
    fn leave(&mut self);
}

/// An answer to a call that is not out, or to what is no call but a one-sided operation.
#[cold]
pub(crate) fn no_such_call() -> ChannelError {
    ChannelError::violation("an answer to no call of ours")
}

/// A second answer to a call: else one call of ours could make us fetch any number of times.
#[cold]
pub(crate) fn two_answers() -> ChannelError {
    ChannelError::violation("two answers to one call")
}

/// A channel, and what is still to be said on it.
#[derive(Debug)]
pub(crate) struct ClientCore<C: Channel> {
    pub(crate) channel: C,
    /// Long responses that were read, and whose server is still to be told.
    releases: Vec<CallId>,
    /// The server has said goodbye.
    is_left: bool,
}

impl<C: Channel> ClientCore<C> {
    pub(crate) fn new(channel: C) -> Self {
        Self {
            channel,
            releases: Vec::new(),
            is_left: false,
        }
    }

    /// Whether there is nothing to take, as far as one look can tell.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.channel.is_idle() && self.releases.is_empty()
    }

    /// Takes what has arrived; says how many messages that were.
    #[inline]
    pub(crate) fn take(&mut self, calls: &mut impl Outstanding) -> Result<usize, ChannelError> {
        let mut taken = 0;
        while taken < POLL_BUDGET {
            let most = POLL_BUDGET - taken;
            let mut answer = |call, response: &[u8]| calls.answer(call, response);
            let (messages, other) = self.channel.take_answers(most, &mut answer)?;
            taken += messages;
            let Some(header) = other else { break };
            self.dispatch(header, calls)?;
        }
        if self.channel.is_fetching() || self.channel.has_one_sided() || !self.releases.is_empty() {
            taken += self.progress(calls)?;
        }
        if taken > 0 {
            self.channel.tell_consumed()?;
        }
        Ok(taken)
    }

    /// Takes what the server sent before it went, which is still an answer: the channel is about to be given up. As
    /// many messages as there may be answers, and not without end.
    #[cold]
    pub(crate) fn take_last(&mut self, calls: &mut impl Outstanding) {
        for _ in 0..MOST_SLOTS {
            let Ok(Some(header)) = self.channel.receive() else {
                break;
            };
            if self.dispatch(header, calls).is_err() {
                break;
            }
        }
    }

    #[cold]
    fn dispatch(
        &mut self,
        header: Header,
        calls: &mut impl Outstanding,
    ) -> Result<(), ChannelError> {
        match header.kind {
            Kind::Response => calls.answer(header.call, self.channel.payload(header)),
            Kind::Failure => {
                let failure = WireFailure::decode(self.channel.payload(header))
                    .ok_or_else(|| ChannelError::violation("a failure without a reason"))?;
                calls.expect_answer(header.call)?;
                calls.complete(header.call, Err(failure.into_call_error()))
            }
            Kind::LongResponse => self.fetch(header, calls),
            // Else a server could keep those who wait busy with nothing else.
            Kind::Goodbye if std::mem::replace(&mut self.is_left, true) => {
                Err(ChannelError::violation("a second goodbye"))
            }
            Kind::Goodbye => {
                calls.leave();
                Ok(())
            }
            Kind::Request | Kind::LongRequest | Kind::Release | Kind::Cancel | Kind::Attach => {
                Err(ChannelError::violation("a server that calls its client"))
            }
            _ => Err(ChannelError::violation(
                "a message of another kind of channel",
            )),
        }
    }

    fn fetch(&mut self, header: Header, calls: &mut impl Outstanding) -> Result<(), ChannelError> {
        calls.begin_fetch(header.call)?;
        let descriptor = self.channel.descriptor(header)?;
        match self.channel.fetch(header.call, &descriptor) {
            Err(error) if error.is_memory() => {
                // The server need not keep it.
                self.releases.push(header.call);
                let error = CallError::no_memory_for_response(&error);
                calls.complete(header.call, Err(error))
            }
            fetched => fetched,
        }
    }

    /// Looks for completions and failures, which arriving messages do not show, and takes what has been fetched.
    pub(crate) fn progress(&mut self, calls: &mut impl Outstanding) -> Result<usize, ChannelError> {
        self.channel.progress()?;
        let mut taken = 0;
        while let Some(finished) = self.channel.take_one_sided() {
            taken += 1;
            match finished {
                Finished::Short(call, length) => {
                    calls.operated(call, self.channel.result(length))?;
                }
                Finished::Long(call, buffer) => {
                    let landed = Landed::new(buffer);
                    calls.complete(call, Ok(Answer::Long(Box::new(landed))))?;
                }
                Finished::Refused(call, error) => calls.complete(call, Err(error.into()))?,
            }
        }
        while let Some((call, buffer)) = self.channel.take_fetched() {
            taken += 1;
            self.releases.push(call);
            let landed = Landed::new(buffer);
            calls.complete(call, Ok(Answer::Long(Box::new(landed))))?;
        }
        self.release()?;
        Ok(taken)
    }

    /// Tells the server which long responses were read, as far as there is room.
    fn release(&mut self) -> Result<(), ChannelError> {
        if self.releases.is_empty() {
            return Ok(());
        }
        while let Some(&call) = self.releases.last() {
            if !self.channel.make_room(0)? {
                break;
            }
            self.channel.push(Kind::Release, 0, call, &[]);
            self.releases.pop();
        }
        self.channel.flush()
    }
}
