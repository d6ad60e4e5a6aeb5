//! A lane for a loop that keeps many typed calls out: the fastest way for one thread.

use std::any::TypeId;

use dunlin::HandlerId;

use super::callee::ByType;
use super::{Channel, Routes};
use crate::codec::{Codec, DecodeError, FormOf, Views};
use crate::method::{Messages, Method};
use crate::wire::{self, Answered};
use crate::{Response, Status};

/// Many unary calls out at once, of whatever methods, each with a tag of the caller's, answered by callback in any
/// order; as [`dunlin::Pipeline`], and like it it ends with its connection. Requests have no metadata and no deadline
/// but the client's.
#[derive(Debug)]
pub struct Pipeline {
    channel: Channel,
    pipeline: dunlin::Pipeline,
    /// Methods that were called, and their numbers; programs call few by one pipeline.
    numbers: Vec<(TypeId, HandlerId)>,
}

impl Channel {
    /// A lane for a loop that keeps `window` calls out, about.
    ///
    /// # Errors
    /// When no connection can be made.
    pub fn pipeline(&self, window: usize) -> Result<Pipeline, Status> {
        Ok(Pipeline {
            channel: self.clone(),
            pipeline: self.client().pipeline_of(window)?,
            numbers: Vec::new(),
        })
    }
}

/// An answer, not decoded yet.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a>(&'a [u8]);

/// What a view of responses is for a codec.
type ViewOf<'a, M> = <<M as Method>::Codec as Views<<M as Method>::Response>>::View<'a>;

impl<'a> Answer<'a> {
    /// The message as it stands there.
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

    /// Lends the message, which stands in memory that the next answer uses again.
    ///
    /// # Errors
    /// The status with which the call ended; `Internal` when the bytes are no message of the method.
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

    /// The response, in memory of its own.
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
            Answered::OtherMethod => {
                Err(Status::unavailable("the server's methods are others now"))
            }
        }
    }
}

/// Out of line, so that callbacks stay short.
#[cold]
#[inline(never)]
fn failed(error: dunlin::CallError) -> Status {
    error.into()
}

#[cold]
fn malformed<M: Method>(error: DecodeError) -> Status {
    Status::internal(format!("the answer of {}: {error}", M::PATH))
}

impl Pipeline {
    /// Calls that are out.
    pub fn outstanding(&self) -> usize {
        self.pipeline.outstanding()
    }

    /// Puts a call, of a message or a view of one, into the batch; it leaves with the next poll, or earlier when the
    /// batch is full. `false`: there is no room, poll first.
    ///
    /// # Errors
    /// When the call cannot be sent at all.
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
        // By reference: a result that was just written is not to be moved at once.
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

    /// Sends the batch and takes the answers that have arrived, without waiting; says how many messages that were.
    ///
    /// # Errors
    /// As of [`dunlin::Pipeline::poll`].
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

    /// Sends the batch and waits until at least one answer has been taken or nothing is out.
    ///
    /// # Errors
    /// As of [`dunlin::Pipeline::wait`].
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
