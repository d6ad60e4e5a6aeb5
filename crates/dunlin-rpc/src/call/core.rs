//! The client core: handles the messages of a server, on any channel, and for calls in any table.
//!
//! It is between a [`Channel`] below and the outstanding calls above ([`Outstanding`]): a lane of one thread keeps them
//! in a table of its own, those of a shared lane belong to many threads. It has no threads and no clocks and never
//! waits.

use super::lane::{Answer, CallId};
use crate::channel::buffers::Landed;
use crate::channel::call_id::MOST_SLOTS;
use crate::channel::carrier::Finished;
use crate::channel::message::{Header, Kind};
use crate::channel::{Channel, ChannelError};
use crate::error::{CallError, WireFailure};

/// Maximum number of messages taken in one poll: bounds the duration of a poll.
const POLL_BUDGET: usize = 64;

/// The outstanding calls of a channel.
///
/// A server sends messages at any time, so no message may complete a one-sided operation: that is outstanding until the
/// device has completed it, and its result has the requested length.
pub(crate) trait Outstanding {
    /// A call has ended successfully with a short response, by far the most frequent case.
    ///
    /// # Errors
    /// When it is not outstanding, or is a one-sided operation.
    fn answer(&mut self, call: CallId, response: &[u8]) -> Result<(), ChannelError>;
    /// The device has completed a one-sided operation with a short result.
    ///
    /// # Errors
    /// When it is not outstanding.
    fn operated(&mut self, call: CallId, result: &[u8]) -> Result<(), ChannelError>;
    /// A message has arrived that ends a call in another way.
    ///
    /// # Errors
    /// As for [`Outstanding::answer`].
    fn expect_answer(&mut self, call: CallId) -> Result<(), ChannelError>;
    /// A call has ended in another way.
    ///
    /// # Errors
    /// When it is not outstanding.
    fn complete(
        &mut self,
        call: CallId,
        result: Result<Answer<'_>, CallError>,
    ) -> Result<(), ChannelError>;
    /// The long response of a call is about to be fetched, which may happen once per call.
    ///
    /// # Errors
    /// As for [`Outstanding::answer`], or when it is being fetched.
    fn begin_fetch(&mut self, call: CallId) -> Result<(), ChannelError>;
    /// The server takes no more calls; responses still arrive.
    fn leave(&mut self);
}

/// The error for a response to a call that is not outstanding, or to a one-sided operation.
#[cold]
pub(crate) fn no_such_call() -> ChannelError {
    ChannelError::violation("an answer to an unknown call")
}

/// The error for a second response to a call: otherwise a server could make us fetch any number of times for one call.
#[cold]
pub(crate) fn two_answers() -> ChannelError {
    ChannelError::violation("a second answer to the same call")
}

/// A channel, and the messages that are still to be sent on it.
#[derive(Debug)]
pub(crate) struct ClientCore<C: Channel> {
    pub(crate) channel: C,
    /// Long responses that were read, but not yet released at the server.
    releases: Vec<CallId>,
    /// The server has sent a goodbye.
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

    /// Whether there is nothing to take, as far as one poll can tell.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.channel.is_idle() && self.releases.is_empty()
    }

    /// Takes what has arrived; returns the number of messages.
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

    /// Takes what the server sent before it went away, which may include responses, when the channel is about to be
    /// given up. The number of messages is limited to the possible number of responses.
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
            // Otherwise a server could keep waiting callers busy with goodbyes.
            Kind::Goodbye if std::mem::replace(&mut self.is_left, true) => {
                Err(ChannelError::violation("a second goodbye message"))
            }
            Kind::Goodbye => {
                calls.leave();
                Ok(())
            }
            Kind::Request | Kind::LongRequest | Kind::Release | Kind::Cancel | Kind::Attach => Err(
                ChannelError::violation("a call from the server to its client"),
            ),
            _ => Err(ChannelError::violation(
                "a message of a different kind of channel",
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

    /// Checks for completions and failures, which arriving messages do not show, and takes what has been fetched.
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
