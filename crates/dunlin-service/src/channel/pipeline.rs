//! A lane for a loop that keeps many typed calls outstanding: the fastest interface for one thread.

use std::any::TypeId;

use dunlin::HandlerId;

use super::callee::ByType;
use super::{Channel, Routes};
use crate::codec::{Codec, DecodeError, FormOf, Views};
use crate::method::{Messages, Method};
use crate::wire::{self, Answered};
use crate::{Response, Status};

/// Keeps many unary calls of any methods outstanding, each with a tag chosen by the caller; they are answered by
/// callback in any order. Like [`dunlin::Pipeline`], it ends with its connection. Requests have no metadata, and no
/// deadline other than the client's.
#[derive(Debug)]
pub struct Pipeline {
    channel: Channel,
    pipeline: dunlin::Pipeline,
    /// Methods that were called, and their numbers; programs call few methods through one pipeline.
    numbers: Vec<(TypeId, HandlerId)>,
}

impl Channel {
    /// Creates a lane for a loop that keeps about `window` calls outstanding.
    ///
    /// # Errors
    /// If no connection can be made.
    pub fn pipeline(&self, window: usize) -> Result<Pipeline, Status> {
        Ok(Pipeline {
            channel: self.clone(),
            pipeline: self.client().pipeline_of(window)?,
            numbers: Vec::new(),
        })
    }
}

/// An answer that has not been decoded yet.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a>(&'a [u8]);

/// The view of responses in a method's codec.
type ViewOf<'a, M> = <<M as Method>::Codec as Views<<M as Method>::Response>>::View<'a>;

impl<'a> Answer<'a> {
    /// A view of the message, in place.
    ///
    /// # Errors
    /// As for [`Answer::with`].
    #[inline]
    pub fn view<M: Method>(self) -> Result<ViewOf<'a, M>, Status>
    where
        M::Codec: Views<M::Response>,
    {
        M::Codec::view(self.message_bytes()?).map_err(malformed::<M>)
    }

    /// Decodes the message and lends it, in memory that the next answer reuses.
    ///
    /// # Errors
    /// The status with which the call ended; `Internal` if the bytes are not a message of the method.
    #[inline(always)]
    pub fn with<M: Method, T>(self, take: impl FnOnce(&M::Response) -> T) -> Result<T, Status> {
        let message = self.message_bytes()?;
        let mut messages = Messages::<M>::take();
        let place = messages.response.get_mut();
        let decoded = M::Codec::decode_into(place, message);
        let taken = decoded.map(|()| take(place));
        messages.keep();
        taken.map_err(malformed::<M>)
    }

    /// Decodes the response into memory of its own.
    ///
    /// # Errors
    /// As for [`Answer::with`].
    pub fn response<M: Method>(self) -> Result<Response<M::Response>, Status> {
        let mut message = M::Response::default();
        M::Codec::decode_into(&mut message, self.message_bytes()?).map_err(malformed::<M>)?;
        Ok(Response::new(message))
    }

    #[inline]
    fn message_bytes(&self) -> Result<&'a [u8], Status> {
        match self.0 {
            [wire::MESSAGE, message @ ..] => Ok(message),
            _ => self.other_bytes(),
        }
    }

    #[cold]
    fn other_bytes(&self) -> Result<&'a [u8], Status> {
        match wire::read_answer(self.0)? {
            Answered::Message(message) | Answered::With(_, message) => Ok(message),
            Answered::Status(status) => Err(status),
            Answered::OtherMethod => Err(Status::unavailable("the server's methods have changed")),
        }
    }
}

/// Out of line, to keep callbacks short.
#[cold]
#[inline(never)]
fn failed(error: dunlin::CallError) -> Status {
    error.into()
}

#[cold]
fn malformed<M: Method>(error: DecodeError) -> Status {
    Status::internal(format!("invalid response of {}: {error}", M::PATH))
}

impl Pipeline {
    /// Number of outstanding calls.
    pub fn outstanding(&self) -> usize {
        self.pipeline.outstanding()
    }

    /// Adds a call, with a message or a view of one, to the batch, which is sent by the next poll, or earlier when it
    /// is full. Returns `false` if there is no room: poll first.
    ///
    /// # Errors
    /// If the call cannot be sent at all.
    #[inline]
    pub fn submit<M: Method>(
        &mut self,
        message: &(impl FormOf<M::Request, M::Codec> + ?Sized),
        tag: u64,
    ) -> Result<bool, Status> {
        let number = match self
            .numbers
            .iter()
            .find(|(method, _)| *method == TypeId::of::<M>())
        {
            Some((_, number)) => *number,
            None => self.find::<M>()?,
        };
        let length = wire::WORD_BYTES + message.encoded_len();
        let submitted = self.pipeline.submit_with(number, length, tag, |target| {
            message.encode(wire::begin_bare(target, M::CHECK));
        });
        // Matched by reference, so that a result that was just written is not moved immediately.
        match &submitted {
            Ok(submitted) => Ok(*submitted),
            Err(_) => Ok(submitted?),
        }
    }

    #[cold]
    fn find<M: Method>(&mut self) -> Result<HandlerId, Status> {
        let routes = Routes::new(0);
        let callee = ByType::<M>::new(&routes);
        let number = self.channel.find_blocking(&callee, false, None)?;
        self.numbers.push((TypeId::of::<M>(), number));
        Ok(number)
    }

    /// Sends the batch and takes the answers that have arrived, without waiting; returns the number of messages.
    ///
    /// # Errors
    /// As for [`dunlin::Pipeline::poll`].
    #[inline]
    pub fn poll(
        &mut self,
        mut answer: impl FnMut(u64, Result<Answer<'_>, Status>),
    ) -> Result<usize, Status> {
        let taken = self.pipeline.poll(|tag, result| {
            answer(tag, result.map(Answer).map_err(failed));
        });
        Ok(taken?)
    }

    /// Sends the batch and waits until at least one answer has been taken or no call is outstanding.
    ///
    /// # Errors
    /// As for [`dunlin::Pipeline::wait`].
    #[inline]
    pub fn wait(
        &mut self,
        mut answer: impl FnMut(u64, Result<Answer<'_>, Status>),
    ) -> Result<usize, Status> {
        let taken = self.pipeline.wait(|tag, result| {
            answer(tag, result.map(Answer).map_err(failed));
        });
        Ok(taken?)
    }
}
