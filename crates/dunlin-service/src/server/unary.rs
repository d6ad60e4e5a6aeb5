//! Unary calls at the server: decoding the request, running the handler, encoding the answer.

use std::future::{poll_fn, Future};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;
use std::task::Poll;

use dunlin::{thread, HandlerError, OwnedRequest, OwnedResponder, Responder};

use crate::codec::{Codec, FormOf};
use crate::context::Inherited;
use crate::method::{Messages, Method};
use crate::observer::Observer;
use crate::wire::{self, Asked, Header};
use crate::{Code, MetadataMap, Request, Response, Status};

/// Header and message of a request.
type Parts<'a> = (Option<Box<Header>>, &'a [u8]);

/// Decodes a request.
///
/// # Errors
/// The answer to send if it is not a request for this method.
#[inline]
pub(super) fn read<M: Method>(payload: &[u8]) -> Result<Parts<'_>, Vec<u8>> {
    match wire::read_request(payload, M::CHECK) {
        Asked::Bare(message) => Ok((None, message)),
        Asked::With(header, message) => Ok((Some(header), message)),
        Asked::OtherMethod => Err(wire::other_method_answer()),
        Asked::Malformed => {
            let status = malformed::<M>("unknown header");
            Err(wire::status_answer(&status))
        }
    }
}

/// Runs a handler that is not a future.
///
/// # Errors
/// An error of the responder.
#[inline]
pub(super) fn serve<M: Method>(
    request: &dunlin::Request<'_>,
    reply: &mut Responder<'_>,
    observer: &Observer,
    handler: &impl Fn(&mut Request<M::Request>, &mut Response<M::Response>) -> Result<(), Status>,
) -> Result<(), HandlerError> {
    let (header, bytes) = match read::<M>(request.payload()) {
        Ok(read) => read,
        Err(answer) => return reply.write(&answer),
    };
    // Lost if the handler panics.
    let mut messages = Messages::<M>::take();
    let asked = &mut messages.request;
    if let Err(error) =
        M::Codec::decode_into(asked.receive(request.connection(), request.peer()), bytes)
    {
        return refuse(reply, &malformed::<M>(&error.to_string()));
    }
    let answer = &mut messages.response;
    M::Codec::clear(answer.get_mut());
    answer.metadata_mut().clear();
    let mut inherited = header.map(|header| take_header(asked, *header));
    let mut observed = observer.server(M::PATH, asked.metadata(), &mut inherited);
    let ended = {
        let _current = observed.enter();
        match inherited {
            None => handler(asked, answer),
            Some(inherited) => {
                let _entered = inherited.enter();
                handler(asked, answer)
            }
        }
    };
    observed.end(ended.as_ref().err());
    let written = match ended {
        Ok(()) => write::<M>(reply, answer),
        Err(status) => refuse(reply, &status),
    };
    messages.keep();
    written
}

/// Stores the header in the request; returns what the handler's own calls inherit.
fn take_header<T>(request: &mut Request<T>, header: Header) -> Inherited {
    let deadline = header.deadline();
    let inherited = Inherited::of(&header.metadata, deadline);
    request.set_header(header.metadata, deadline);
    inherited
}

#[cold]
pub(super) fn malformed<M: Method>(why: &str) -> Status {
    Status::invalid_argument(format!("malformed request of {}: {why}", M::PATH))
}

/// Answers with a message.
#[inline]
fn write<M: Method>(
    reply: &mut Responder<'_>,
    response: &Response<M::Response>,
) -> Result<(), HandlerError> {
    write_message::<M>(reply, response.get_ref(), response.metadata())
}

/// Answers with a message, in any form that the codec accepts.
#[inline]
pub(super) fn write_message<M: Method>(
    reply: &mut (impl Room + ?Sized),
    message: &(impl FormOf<M::Response, M::Codec> + ?Sized),
    metadata: &MetadataMap,
) -> Result<(), HandlerError> {
    if !metadata.is_empty() {
        return write_with_metadata::<M>(reply, message, metadata);
    }
    let target = reply.room(1 + message.encoded_len())?;
    let (kind, target) = target
        .split_first_mut()
        .expect("the target has room for it");
    *kind = wire::MESSAGE;
    message.encode(target);
    Ok(())
}

#[cold]
#[inline(never)]
fn write_with_metadata<M: Method>(
    reply: &mut (impl Room + ?Sized),
    message: &(impl FormOf<M::Response, M::Codec> + ?Sized),
    metadata: &MetadataMap,
) -> Result<(), HandlerError> {
    if let Err(status) = metadata.check_sendable() {
        return refuse(reply, &status);
    }
    let before = wire::begin_answer(metadata);
    let target = reply.room(before.len() + message.encoded_len())?;
    let (first, rest) = target.split_at_mut(before.len());
    first.copy_from_slice(&before);
    message.encode(rest);
    Ok(())
}

/// Answers with a status, replacing anything that has been written.
#[cold]
pub(super) fn refuse(
    reply: &mut (impl Room + ?Sized),
    status: &Status,
) -> Result<(), HandlerError> {
    let answer = wire::status_answer(&travelling(status));
    reply.room(answer.len())?.copy_from_slice(&answer);
    Ok(())
}

/// A destination for an answer.
pub(crate) trait Room {
    /// Provides room for `length` bytes, replacing anything that has been written.
    fn room(&mut self, length: usize) -> Result<&mut [u8], HandlerError>;
}

impl Room for Responder<'_> {
    #[inline]
    fn room(&mut self, length: usize) -> Result<&mut [u8], HandlerError> {
        self.in_place(length)
    }
}

/// The status as it is sent: an end without a message is an error, and metadata is limited.
pub(crate) fn travelling(status: &Status) -> Status {
    if status.code() == Code::Ok {
        return Status::internal("the handler returned an error with the code OK");
    }
    match status.metadata().check_length() {
        Ok(()) => status.clone(),
        Err(error) => {
            let words = format!("{} ({error})", status.message());
            Status::with_details(status.code(), words, status.details())
        }
    }
}

/// Runs a handler that is a future, and answers.
pub(super) async fn answer<M, F>(
    asked: OwnedRequest,
    responder: OwnedResponder,
    observer: Observer,
    handler: Arc<impl Fn(Request<M::Request>) -> F + Send + Sync>,
) where
    M: Method,
    F: Future<Output = Result<Response<M::Response>, Status>> + Send,
{
    let (header, bytes) = match read::<M>(asked.payload()) {
        Ok(read) => read,
        Err(answer) => return responder.reply(answer),
    };
    let mut request = Request::new(M::Request::default());
    if let Err(error) =
        M::Codec::decode_into(request.receive(asked.connection(), asked.peer()), bytes)
    {
        return responder.reply(wire::status_answer(&malformed::<M>(&error.to_string())));
    }
    let mut inherited = header.map(|header| take_header(&mut request, *header));
    let mut observed = observer.server(M::PATH, request.metadata(), &mut inherited);
    let until = asked.deadline();
    // The request's bytes count as held until here.
    drop(asked);
    let ended = {
        let mut running = std::pin::pin!(handler(request));
        poll_fn(|context| {
            if responder.poll_cancelled(context).is_ready() {
                return Poll::Ready(None);
            }
            let _entered = inherited.map(Inherited::enter);
            let _current = observed.enter();
            match catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(context))) {
                Ok(polled) => polled.map(Some),
                Err(_) => Poll::Ready(Some(Err(panicked()))),
            }
        })
        .await
    };
    match ended {
        // The caller may notice a little later that its time is over.
        None if until.is_some_and(|until| until <= thread::now()) => {
            let late = late();
            observed.end(Some(&late));
            responder.reply(wire::status_answer(&late));
        }
        // Nobody is waiting for the answer, so it does not matter that there is none.
        None => drop(responder),
        Some(Ok(response)) => {
            observed.end(None);
            responder.answer(|reply| write::<M>(reply, &response));
        }
        Some(Err(status)) => {
            let status = travelling(&status);
            observed.end(Some(&status));
            responder.reply(wire::status_answer(&status));
        }
    }
}

/// The status of a call whose deadline passed at the server.
#[cold]
pub(super) fn late() -> Status {
    Status::deadline_exceeded("the deadline expired while the handler was running")
}

#[cold]
pub(crate) fn panicked() -> Status {
    Status::internal("the handler panicked")
}
