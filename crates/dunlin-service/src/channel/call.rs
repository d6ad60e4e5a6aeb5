//! Unary calls, as futures and blocking, of methods by type or by name.

use std::cell::RefCell;
use std::future::Future;
use std::ops::Deref;
use std::time::{Duration, Instant};

use dunlin::{thread, CallError};

use super::callee::{ByType, Callee};
use super::caller::Caller;
use super::{Channel, Routes};
use crate::codec::{Codec, Encode};
use crate::context::Inherited;
use crate::method::Method;
use crate::wire::{self, Answered, Header};
use crate::{MetadataMap, Request, Response, Status};

thread_local! {
    /// The buffer in which requests are encoded.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}
/// A buffer larger than this is freed after a call.
const KEPT_BYTES: usize = 64 << 10;

/// A request to be sent: once, or twice if the server's method numbers have changed.
struct Outgoing<'a, T> {
    check: u32,
    message: &'a T,
    header: Option<Header>,
    until: Option<Instant>,
    again: bool,
}

/// The result of an answer.
enum Step<T> {
    Done(T),
    /// The number now belongs to another method: look it up and call again.
    Again,
}

/// The header to send with a request, and the time by which it has to be answered.
///
/// # Errors
/// If the deadline has passed, or the metadata is too long.
pub(crate) fn outgoing_header<T>(
    request: &mut Request<T>,
) -> Result<(Option<Header>, Option<Instant>), Status> {
    let inherited = Inherited::current();
    if inherited.is_none() && !request.has_header() {
        return Ok((None, None));
    }
    let now = thread::now();
    let mut timeout = request.time_left(now);
    let mut metadata = std::mem::take(request.metadata_mut());
    if let Some(inherited) = inherited {
        let left = inherited
            .deadline
            .map(|deadline| deadline.saturating_duration_since(now));
        timeout = match (timeout, left) {
            (Some(timeout), Some(left)) => Some(timeout.min(left)),
            (timeout, left) => timeout.or(left),
        };
        match inherited.trace {
            Some(trace) if metadata.get(crate::TRACEPARENT).is_none() => {
                metadata.set_trace_context(&trace);
            }
            _ => {}
        }
    }
    if timeout.is_some_and(|timeout| timeout.is_zero()) {
        return Err(Status::deadline_exceeded(
            "the deadline expired before the call was made",
        ));
    }
    metadata.check_sendable()?;
    let until = timeout.and_then(|timeout| now.checked_add(timeout));
    Ok((Some(Header { timeout, metadata }), until))
}

impl<'a, T> Outgoing<'a, T> {
    fn new(check: u32, request: &'a mut Request<T>) -> Result<Self, Status> {
        let (header, until) = outgoing_header(request)?;
        Ok(Self {
            check,
            message: request.get_ref(),
            header,
            until,
            again: false,
        })
    }

    /// Time left of the timeout that was set for the call.
    fn time_left(&self) -> Option<Duration> {
        match self.until {
            Some(until) => Some(until.saturating_duration_since(thread::now())),
            // The timeout exceeds the range of the clock.
            None => self.header.as_ref()?.timeout,
        }
    }

    /// Encodes the request and passes its bytes to `send`.
    fn with_bytes<C: Encode<T>, R>(
        &mut self,
        send: impl FnOnce(Option<Duration>, &[u8]) -> R,
    ) -> R {
        let left = self.time_left();
        if let (Some(left), Some(header)) = (left, &mut self.header) {
            header.timeout = Some(left);
        }
        BUFFER.with(|place| {
            // A codec that makes a call while it encodes uses a buffer of its own.
            let mut buffer = place.take();
            buffer.clear();
            wire::begin_request(&mut buffer, self.check, self.header.as_ref());
            C::append(self.message, &mut buffer);
            let sent = send(left, &buffer);
            if buffer.capacity() <= KEPT_BYTES {
                place.replace(buffer);
            }
            sent
        })
    }

    fn take<A: Default, C: Codec<A>>(
        &mut self,
        callee: &impl Callee,
        answer: Result<impl Deref<Target = [u8]>, CallError>,
    ) -> Result<Step<Response<A>>, Status> {
        let answer = match answer {
            Ok(answer) => answer,
            Err(CallError::UnknownHandler(_)) if !self.again => return Ok(self.once_more()),
            Err(error) => return Err(error.into()),
        };
        let (metadata, bytes) = match wire::read_answer(&answer)? {
            Answered::Message(bytes) => (MetadataMap::new(), bytes),
            Answered::With(metadata, bytes) => (metadata, bytes),
            Answered::Status(status) => return Err(status),
            Answered::OtherMethod if !self.again => return Ok(self.once_more()),
            Answered::OtherMethod => {
                return Err(Status::internal(
                    "the server's directory does not match its methods",
                ))
            }
        };
        let mut message = A::default();
        C::decode_into(&mut message, bytes).map_err(|error| {
            Status::internal(format!("invalid response of {}: {error}", callee.path()))
        })?;
        Ok(Step::Done(Response::with_metadata(message, metadata)))
    }

    fn once_more<R>(&mut self) -> Step<R> {
        self.again = true;
        Step::Again
    }
}

impl Channel {
    /// A unary call. Dropping the future cancels the call and stops its handler.
    ///
    /// # Errors
    /// The status with which the call ended.
    pub fn unary<'a, M: Method>(
        &'a self,
        routes: &'a Routes,
        request: Request<M::Request>,
    ) -> impl Future<Output = Result<Response<M::Response>, Status>> + Send + 'a {
        self.call::<_, _, M::Codec>(ByType::<M>::new(routes), request)
    }

    /// Like [`Channel::unary`], but blocks.
    ///
    /// # Errors
    /// As for [`Channel::unary`].
    pub fn unary_blocking<M: Method>(
        &self,
        routes: &Routes,
        request: Request<M::Request>,
    ) -> Result<Response<M::Response>, Status> {
        self.call_blocking::<_, _, M::Codec>(&ByType::<M>::new(routes), request)
    }

    /// A unary call whose messages are encoded by `C`.
    pub(super) async fn call<Q, A: Default, C: Encode<Q> + Codec<A>>(
        &self,
        callee: impl Callee,
        request: Request<Q>,
    ) -> Result<Response<A>, Status> {
        let client = self.client();
        self.call_by::<_, _, _, C>(client, callee, request).await
    }

    /// Like [`Channel::call`], made by another client of the same server.
    pub(super) async fn call_by<K: Caller, Q, A: Default, C: Encode<Q> + Codec<A>>(
        &self,
        caller: &K,
        callee: impl Callee,
        mut request: Request<Q>,
    ) -> Result<Response<A>, Status> {
        let mut observed = self.1.client(callee.path(), &mut request);
        let call = self.call_once::<K, Q, A, C>(caller, &callee, &mut request);
        let ended = call.await;
        observed.end(ended.as_ref().err());
        ended
    }

    async fn call_once<K: Caller, Q, A: Default, C: Encode<Q> + Codec<A>>(
        &self,
        caller: &K,
        callee: &impl Callee,
        request: &mut Request<Q>,
    ) -> Result<Response<A>, Status> {
        let mut outgoing = Outgoing::new(callee.check(), request)?;
        loop {
            let number = match callee.number() {
                Some(number) if !outgoing.again => number,
                _ => {
                    let left = outgoing.time_left();
                    self.find(callee, outgoing.again, left).await?
                }
            };
            let call =
                outgoing.with_bytes::<C, _>(|timeout, bytes| caller.send(timeout, number, bytes));
            let answer = match call.await {
                // All slots are in use: wait for one.
                Err(CallError::TooManyOutstanding { .. }) => {
                    let permit = caller.ready(outgoing.time_left()).await?;
                    let call =
                        outgoing.with_bytes::<C, _>(|_, bytes| K::send_in(permit, number, bytes));
                    call.await
                }
                answer => answer,
            };
            if let Step::Done(response) = outgoing.take::<A, C>(callee, answer)? {
                return Ok(response);
            }
        }
    }

    /// Like [`Channel::call`], but blocks.
    pub(super) fn call_blocking<Q, A: Default, C: Encode<Q> + Codec<A>>(
        &self,
        callee: &impl Callee,
        mut request: Request<Q>,
    ) -> Result<Response<A>, Status> {
        let mut observed = self.1.client(callee.path(), &mut request);
        let ended = self.call_once_blocking::<Q, A, C>(callee, &mut request);
        observed.end(ended.as_ref().err());
        ended
    }

    #[inline]
    fn call_once_blocking<Q, A: Default, C: Encode<Q> + Codec<A>>(
        &self,
        callee: &impl Callee,
        request: &mut Request<Q>,
    ) -> Result<Response<A>, Status> {
        let mut outgoing = Outgoing::new(callee.check(), request)?;
        let client = self.client();
        loop {
            let number = match callee.number() {
                Some(number) if !outgoing.again => number,
                _ => self.find_blocking(callee, outgoing.again, outgoing.time_left())?,
            };
            let answer = outgoing.with_bytes::<C, _>(|timeout, bytes| match timeout {
                Some(timeout) => client.call_within(timeout, number, bytes),
                None => client.call(number, bytes),
            });
            if let Step::Done(response) = outgoing.take::<A, C>(callee, answer)? {
                return Ok(response);
            }
        }
    }
}
