//! Unary calls: as futures, and blocking.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use dunlin::{thread, CallError, HandlerId, Reply};

use super::{Channel, Routes};
use crate::codec::Codec;
use crate::context::Inherited;
use crate::method::Method;
use crate::wire::{self, Answered, Header};
use crate::{MetadataMap, Request, Response, Status};

thread_local! {
    /// Where requests are put together.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}
/// More of it is given back after a call.
const KEPT_BYTES: usize = 64 << 10;

/// A request that is to be sent, once or, if the server's numbers are others by now, twice.
pub(crate) struct Outgoing<'a, M: Method> {
    message: &'a M::Request,
    pub(crate) header: Option<Header>,
    until: Option<Instant>,
    again: bool,
}

/// What an answer means.
enum Step<T> {
    Done(T),
    /// Its number is another method's: ask for it, and call again.
    Again,
}

/// What travels with a request beside its message, and until when it has to be answered.
///
/// # Errors
/// When the time is over, or the metadata too long.
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
            "the deadline had passed before the call was made",
        ));
    }
    metadata
        .check_length()
        .map_err(|error| Status::resource_exhausted(error.to_string()))?;
    let until = timeout.and_then(|timeout| now.checked_add(timeout));
    Ok((Some(Header { timeout, metadata }), until))
}

impl<'a, M: Method> Outgoing<'a, M> {
    fn new(request: &'a mut Request<M::Request>) -> Result<Self, Status> {
        let (header, until) = outgoing_header(request)?;
        Ok(Self {
            message: request.get_ref(),
            header,
            until,
            again: false,
        })
    }

    /// Lends the bytes of the request.
    fn with_bytes<T>(&mut self, send: impl FnOnce(Option<Duration>, &[u8]) -> T) -> T {
        if let (Some(until), Some(header)) = (self.until, &mut self.header) {
            header.timeout = Some(until.saturating_duration_since(thread::now()));
        }
        BUFFER.with(|place| {
            // A codec that calls this while it encodes has a buffer of its own.
            let mut buffer = place.take();
            buffer.clear();
            wire::begin_request(&mut buffer, M::CHECK, self.header.as_ref());
            M::Codec::append(self.message, &mut buffer);
            let sent = send(
                self.header.as_ref().and_then(|header| header.timeout),
                &buffer,
            );
            if buffer.capacity() <= KEPT_BYTES {
                place.replace(buffer);
            }
            sent
        })
    }

    fn take(
        &mut self,
        answer: Result<Reply, CallError>,
    ) -> Result<Step<Response<M::Response>>, Status> {
        let answer = match answer {
            Ok(answer) => answer,
            Err(CallError::UnknownHandler(_)) if !self.again => return Ok(self.once_more()),
            Err(error) => return Err(error.into()),
        };
        match wire::read_answer(&answer)? {
            Answered::Message(message) => read_message::<M>(message, MetadataMap::new()),
            Answered::With(metadata, message) => read_message::<M>(message, metadata),
            Answered::Status(status) => return Err(status),
            Answered::OtherMethod if !self.again => return Ok(self.once_more()),
            Answered::OtherMethod => {
                return Err(Status::internal(
                    "the server's directory does not fit its methods",
                ))
            }
        }
        .map(Step::Done)
    }

    fn once_more<T>(&mut self) -> Step<T> {
        self.again = true;
        Step::Again
    }
}

fn read_message<M: Method>(
    bytes: &[u8],
    metadata: MetadataMap,
) -> Result<Response<M::Response>, Status> {
    let mut message = M::Response::default();
    M::Codec::decode_into(&mut message, bytes)
        .map_err(|error| Status::internal(format!("the answer of {}: {error}", M::PATH)))?;
    Ok(Response::with_metadata(message, metadata))
}

impl Channel {
    /// A unary call. Dropping the future gives it up, and stops its handler.
    ///
    /// # Errors
    /// The status with which it ended.
    pub async fn unary<M: Method>(
        &self,
        routes: &Routes,
        mut request: Request<M::Request>,
    ) -> Result<Response<M::Response>, Status> {
        let mut outgoing = Outgoing::<M>::new(&mut request)?;
        loop {
            let number = match routes.get(M::INDEX) {
                Some(number) if !outgoing.again => number,
                _ => self.find::<M>(routes, outgoing.again).await?,
            };
            let answer = match self.send(number, &mut outgoing).await {
                // There is no place: wait for one.
                Err(CallError::TooManyOutstanding { .. }) => {
                    let permit = self.client().ready().await?;
                    let call = outgoing.with_bytes(|_, bytes| permit.call(number, bytes));
                    call.await
                }
                answer => answer,
            };
            if let Step::Done(response) = outgoing.take(answer)? {
                return Ok(response);
            }
        }
    }

    fn send<M: Method>(
        &self,
        number: HandlerId,
        outgoing: &mut Outgoing<'_, M>,
    ) -> dunlin::CallFuture {
        let client = self.client();
        outgoing.with_bytes(|timeout, bytes| match timeout {
            Some(timeout) => client.within(timeout).call_async(number, bytes),
            None => client.call_async(number, bytes),
        })
    }

    /// As [`Channel::unary`]; blocks.
    ///
    /// # Errors
    /// As for [`Channel::unary`].
    pub fn unary_blocking<M: Method>(
        &self,
        routes: &Routes,
        mut request: Request<M::Request>,
    ) -> Result<Response<M::Response>, Status> {
        let mut outgoing = Outgoing::<M>::new(&mut request)?;
        let client = self.client();
        loop {
            let number = match routes.get(M::INDEX) {
                Some(number) if !outgoing.again => number,
                _ => self.find_blocking::<M>(routes, outgoing.again)?,
            };
            let answer = outgoing.with_bytes(|timeout, bytes| match timeout {
                Some(timeout) => client.call_within(timeout, number, bytes),
                None => client.call(number, bytes),
            });
            if let Step::Done(response) = outgoing.take(answer)? {
                return Ok(response);
            }
        }
    }
}
