//! The calls that are out on a lane of one channel, and how they end.

use dunlin_verbs::Device;

use crate::call::core::{no_such_call, two_answers, Outstanding};
use crate::call::lane::{Answer, CallId, Sink};
use crate::call::slots::Slots;
use crate::channel::buffers::Buffer;
use crate::channel::ChannelError;
use crate::effort;
use crate::error::CallError;

/// Marks of a call: its response is being fetched, an entry of `exports` is its.
const FETCHING: u8 = 1;
pub(super) const EXPORTS: u8 = 2;

/// The calls of one lane.
#[derive(Debug)]
pub(super) struct Calls<D: Device> {
    pub(super) slots: Slots<()>,
    /// Payloads of long requests while the server may still read them.
    pub(super) exports: Vec<(CallId, Buffer<D>)>,
    /// Calls are taken: neither has the server said goodbye (`leaving`), nor is the channel lost.
    pub(super) open: bool,
    /// The server said goodbye: answers still come.
    pub(super) leaving: bool,
}

impl<D: Device> Calls<D> {
    /// The call has ended: says whose it was, unless nobody wants the answer.
    fn finish(&mut self, call: CallId) -> Result<Option<u64>, ChannelError> {
        let ended = self.slots.finish(call).ok_or_else(no_such_call)?;
        if ended.marks & EXPORTS != 0 {
            self.exports.retain(|(owner, _)| *owner != call);
        }
        Ok(ended.tag)
    }
}

/// They, and who wants the answers.
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
            None => self.calls.finish(call)?,
        };
        if let Some(tag) = tag {
            self.sink.answer(tag, response);
        }
        Ok(())
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
        match self.calls.slots.mark(call, FETCHING) {
            None => Err(no_such_call()),
            Some(had) if had & FETCHING != 0 => Err(two_answers()),
            Some(_) => Ok(()),
        }
    }

    fn leave(&mut self) {
        self.calls.leaving = true;
        self.calls.open = false;
    }
}
