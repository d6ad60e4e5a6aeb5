//! The outstanding calls of a lane over one channel, and how they end.

use dunlin_verbs::Device;

use crate::call::core::{no_such_call, two_answers, Outstanding};
use crate::call::lane::{Answer, CallId, Sink};
use crate::call::slots::Slots;
use crate::channel::buffers::Buffer;
use crate::channel::ChannelError;
use crate::effort;
use crate::error::CallError;

/// Marks of a call: its response is being fetched, it has an entry in `exports`, it is a one-sided operation.
const FETCHING: u8 = 1;
pub(super) const EXPORTS: u8 = 2;
const ONE_SIDED: u8 = 4;

/// The calls of one lane.
#[derive(Debug)]
pub(super) struct Calls<D: Device> {
    pub(super) slots: Slots<()>,
    /// Payloads of long requests while the server may still read them.
    pub(super) exports: Vec<(CallId, Buffer<D>)>,
    /// Calls are accepted: the server has not sent a goodbye (`leaving`), and the channel is not lost.
    pub(super) open: bool,
    /// The server has sent a goodbye: responses still arrive.
    pub(super) leaving: bool,
}

impl<D: Device> Calls<D> {
    /// Names a one-sided operation, unless the maximum number of calls is outstanding.
    pub(super) fn begin_operation(&mut self, tag: u64) -> Option<CallId> {
        let call = self.slots.begin(tag, ())?;
        self.slots.mark(call, ONE_SIDED);
        Some(call)
    }

    /// The marks of a call that a message may end.
    fn awaiting_message(&mut self, call: CallId) -> Result<u8, ChannelError> {
        let marks = self.slots.mark(call, 0);
        let marks = marks.filter(|marks| marks & ONE_SIDED == 0);
        marks.ok_or_else(no_such_call)
    }

    /// A message has ended a call that is marked, or no longer wanted: as [`Calls::finish`].
    #[cold]
    fn finish_awaiting(&mut self, call: CallId) -> Result<Option<u64>, ChannelError> {
        self.awaiting_message(call)?;
        self.finish(call)
    }

    /// The call has ended: returns its tag, unless its response is no longer wanted.
    fn finish(&mut self, call: CallId) -> Result<Option<u64>, ChannelError> {
        let ended = self.slots.finish(call).ok_or_else(no_such_call)?;
        if ended.marks & EXPORTS != 0 {
            self.exports.retain(|(owner, _)| *owner != call);
        }
        Ok(ended.tag)
    }
}

/// The calls, and the receiver of their responses.
pub(super) struct Answered<'a, D: Device> {
    pub(super) calls: &'a mut Calls<D>,
    pub(super) sink: &'a mut dyn Sink,
}

impl<D: Device> Outstanding for Answered<'_, D> {
    #[inline]
    fn answer(&mut self, call: CallId, response: &[u8]) -> Result<(), ChannelError> {
        D::charge(effort::TOOK);
        let waiting = self.calls.slots.finish_waiting(call);
        let tag = match waiting {
            Some(_) => waiting,
            None => self.calls.finish_awaiting(call)?,
        };
        if let Some(tag) = tag {
            self.sink.answer(tag, response);
        }
        Ok(())
    }

    fn operated(&mut self, call: CallId, result: &[u8]) -> Result<(), ChannelError> {
        D::charge(effort::TOOK);
        if let Some(tag) = self.calls.finish(call)? {
            self.sink.answer(tag, result);
        }
        Ok(())
    }

    fn expect_answer(&mut self, call: CallId) -> Result<(), ChannelError> {
        self.calls.awaiting_message(call).map(drop)
    }

    fn complete(
        &mut self,
        call: CallId,
        result: Result<Answer<'_>, CallError>,
    ) -> Result<(), ChannelError> {
        if let Some(tag) = self.calls.finish(call)? {
            self.sink.complete(tag, result);
        }
        Ok(())
    }

    fn begin_fetch(&mut self, call: CallId) -> Result<(), ChannelError> {
        if self.calls.awaiting_message(call)? & FETCHING != 0 {
            return Err(two_answers());
        }
        self.calls.slots.mark(call, FETCHING);
        Ok(())
    }

    fn leave(&mut self) {
        self.calls.leaving = true;
        self.calls.open = false;
    }
}
