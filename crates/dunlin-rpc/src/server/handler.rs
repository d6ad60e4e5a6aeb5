//! Handlers, and what a handler receives: the request and the responder.

mod table;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dunlin_bootstrap::Peer;
use dunlin_verbs::thread;

use super::away::Fate;
use super::callbacks::CallableClient;
use super::caller::{Caller, Presence};
use super::deadlines::Deadline;
use super::deferred::{OwnedRequest, OwnedResponder};
use crate::channel::buffers::BytesMut;
use crate::channel::short_copy::copy;
use crate::channel::upcoming::Upcoming;
use crate::error::{FailureReason, WireFailure};
use crate::{memory, HandlerId};
pub(super) use table::HandlerTable;

/// A request, as a handler receives it.
#[derive(Debug)]
pub struct Request<'a> {
    pub(super) handler: HandlerId,
    pub(super) payload: &'a [u8],
    pub(super) connection: u64,
    pub(super) caller: &'a Caller,
    pub(super) deadline: Deadline,
    /// Whether the caller still waits; present if that may change while the handler runs.
    pub(super) fate: Option<&'a Fate>,
}

impl Request<'_> {
    /// The bytes that the caller sent. They are private to this process: the caller can no longer change them.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        self.payload
    }

    /// The handler id that the caller asked for.
    pub fn handler(&self) -> HandlerId {
        self.handler
    }

    /// The number of the connection on which the request arrived. It is unique among all connections of this server,
    /// over all devices.
    pub fn connection(&self) -> u64 {
        self.connection
    }

    /// A handle that tells whether the request's connection still exists, also after the request has been answered.
    pub fn presence(&self) -> Presence {
        self.caller.presence()
    }

    /// The caller's identity, as far as the handshake established it. It is the same for all requests of a connection.
    #[inline]
    pub fn peer(&self) -> &Arc<Peer> {
        self.caller.peer()
    }

    /// The client that sent this request, for calling it, if it has registered to be called
    /// ([`crate::ServerBuilder::serve_to`]) and is still connected. The server must have a list of such clients
    /// ([`crate::ServerBuilder::callable_clients`]).
    pub fn caller(&self) -> Option<CallableClient> {
        self.caller.callable()
    }

    /// Whether the caller may call the handler `id`; for handlers that serve several ids
    /// ([`crate::ServerBuilder::checks_rights_itself`]). Always `true` without [`crate::Rights`].
    #[inline]
    pub fn may_call(&self, id: HandlerId) -> bool {
        self.caller.may_call(id)
    }

    /// When the caller gives up, by this machine's clock; `None` if the caller did not say. Callers send how much time
    /// they have left. Of the time that a request was under way only the part by which it exceeds that of the
    /// connection's other requests is subtracted, so this is never before the caller's own deadline. For a call with
    /// its client's default deadline ([`crate::ClientBuilder::deadline`], if that is a second or longer) the time
    /// counts from when the server took the request; in a handler on the polling thread, from the call of this
    /// function.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline.instant()
    }

    /// How long the caller will go on waiting; see [`Request::deadline`].
    pub fn remaining(&self) -> Option<Duration> {
        remaining(self.deadline())
    }

    /// Whether the answer is no longer wanted: the caller has given up, its deadline has passed, or its connection has
    /// ended. A handler on the polling thread only notices that the deadline has passed: nothing is polled while it
    /// runs.
    pub fn is_cancelled(&self) -> bool {
        match self.fate {
            Some(fate) => fate.is_over(),
            None => self.remaining().is_some_and(|left| left.is_zero()),
        }
    }
}

/// The time left until `deadline`.
pub(super) fn remaining(deadline: Option<Instant>) -> Option<Duration> {
    deadline.map(|deadline| deadline.saturating_duration_since(thread::now()))
}

/// An error returned by a handler. The caller gets the code and the message as [`crate::CallError::Handler`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {}", .0.code, .0.message)]
pub struct HandlerError(Box<Refusal>);

/// Boxed, so that a handler's `Result` is one word.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Refusal {
    code: u32,
    message: String,
    /// What the error is reported as to the caller.
    reason: FailureReason,
}

impl HandlerError {
    /// Makes an error with a code for programs and a message for people, of which at most 1000 bytes are sent.
    pub fn new(code: u32, message: impl Into<String>) -> Self {
        Self(Box::new(Refusal {
            code,
            message: message.into(),
            reason: FailureReason::Handler,
        }))
    }

    /// The code for programs.
    pub fn code(&self) -> u32 {
        self.0.code
    }

    /// The message for people.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The error for lack of memory for the response: the caller gets [`crate::CallError::Overloaded`].
    pub(super) fn no_memory(error: impl fmt::Display) -> Self {
        Self(Box::new(Refusal {
            code: 0,
            message: format!("out of memory for the response: {error}"),
            reason: FailureReason::Overloaded,
        }))
    }

    pub(super) fn into_failure(self) -> WireFailure {
        WireFailure::new(self.0.reason, self.0.code, self.0.message)
    }
}

/// Errors of the server itself, in one of its built-in handlers.
impl From<WireFailure> for HandlerError {
    fn from(failure: WireFailure) -> Self {
        Self(Box::new(Refusal {
            code: failure.number,
            message: failure.message,
            reason: failure.reason,
        }))
    }
}

/// Allocates memory for long responses, independent of the device.
pub(super) trait Exporter: Send + Sync {
    fn export(&self, length: usize) -> Result<Box<dyn BytesMut>, HandlerError>;
}

/// Receives a handler's response.
pub struct Responder<'a> {
    /// The space in the batch, and how much of it is written. Given up when the response is put elsewhere.
    place: &'a mut [u8],
    length: usize,
    elsewhere: Option<Box<Elsewhere>>,
    limits: &'a Limits,
    exporter: &'a dyn Exporter,
}

/// Maximum lengths of responses, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Inside their message.
    pub(super) eager: usize,
    /// In any case.
    pub(super) longest: usize,
}

/// A response that is not in its space in the batch: it is longer, or there was no room.
pub(super) enum Elsewhere {
    Heap(Vec<u8>),
    /// The response was filled in registered memory.
    Exported(Box<dyn BytesMut>),
}

impl Elsewhere {
    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Heap(bytes) => bytes,
            Self::Exported(buffer) => buffer.bytes_mut(),
        }
    }
}

impl fmt::Debug for Responder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Responder")
            .field("longest", &self.limits.longest)
            .finish_non_exhaustive()
    }
}

impl<'a> Responder<'a> {
    /// Makes a responder for a client with these limits. `place` is empty or has room for a response inside its
    /// message.
    #[inline]
    pub(super) fn new(place: &'a mut [u8], limits: &'a Limits, exporter: &'a dyn Exporter) -> Self {
        Self {
            place,
            length: 0,
            elsewhere: None,
            limits,
            exporter,
        }
    }

    /// Length of the response, if it is in its space in the batch.
    #[inline]
    pub(super) fn written_in_place(&self) -> Option<usize> {
        // Without space in the batch the response is always elsewhere, even if it is empty.
        (self.elsewhere.is_none() && !self.place.is_empty()).then_some(self.length)
    }

    /// The response that is not in its space in the batch.
    pub(super) fn elsewhere(self) -> Elsewhere {
        self.elsewhere
            .map_or(Elsewhere::Heap(Vec::new()), |elsewhere| *elsewhere)
    }

    /// Appends to the response.
    ///
    /// # Errors
    /// If the response would be longer than the caller accepts, or there is no memory for it. Return the error, and the
    /// caller gets [`crate::CallError::TooLong`] or [`crate::CallError::Overloaded`].
    #[inline]
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), HandlerError> {
        if let Some(target) = self.place.get_mut(self.length..self.length + bytes.len()) {
            copy(target, bytes);
            self.length += bytes.len();
            return Ok(());
        }
        self.write_elsewhere(bytes)
    }

    /// Maximum length of the response that the caller accepts, in bytes.
    pub fn max_reply_bytes(&self) -> usize {
        self.limits.longest
    }

    /// The bytes written so far.
    pub(super) fn written(&self) -> &[u8] {
        match self.elsewhere.as_deref() {
            Some(Elsewhere::Heap(heap)) => heap,
            Some(Elsewhere::Exported(buffer)) => buffer.bytes_ref(),
            None => &self.place[..self.length],
        }
    }

    #[cold]
    fn write_elsewhere(&mut self, bytes: &[u8]) -> Result<(), HandlerError> {
        let before = self.written().len();
        let length = before.saturating_add(bytes.len());
        if length > self.limits.longest {
            return Err(self.too_long(length));
        }
        let grown = match self.elsewhere.as_deref_mut() {
            Some(Elsewhere::Heap(heap)) if length <= self.limits.eager => {
                memory::reserve(heap, bytes.len()).map_err(HandlerError::no_memory)?;
                heap.resize(length, 0);
                true
            }
            Some(Elsewhere::Exported(buffer)) => buffer.resize(length),
            _ => false,
        };
        if !grown {
            let mut next = self.room_elsewhere(length)?;
            next.bytes_mut()[..before].copy_from_slice(self.written());
            self.length = 0;
            self.place = &mut [];
            self.elsewhere = Some(Box::new(next));
        }
        if let Some(elsewhere) = &mut self.elsewhere {
            elsewhere.bytes_mut()[before..].copy_from_slice(bytes);
        }
        Ok(())
    }

    /// Allocates room for a response of `length` bytes outside of the batch: in registered memory, from where the peer
    /// reads it, if it is too long for its message.
    fn room_elsewhere(&self, length: usize) -> Result<Elsewhere, HandlerError> {
        Ok(if length <= self.limits.eager {
            Elsewhere::Heap(memory::zeros(length).map_err(HandlerError::no_memory)?)
        } else {
            Elsewhere::Exported(self.exporter.export(length)?)
        })
    }

    /// Returns a response of exactly `length` bytes to be filled in place; a long one is not copied. Replaces what was
    /// written before. The bytes are not cleared: they may be those of earlier responses to the same client.
    ///
    /// # Errors
    /// If it is longer than the caller accepts, or the device has no memory for it.
    #[inline]
    pub fn in_place(&mut self, length: usize) -> Result<&mut [u8], HandlerError> {
        if self.elsewhere.is_none() && length <= self.place.len().min(self.limits.longest) {
            self.length = length;
            return Ok(&mut self.place[..length]);
        }
        self.in_other_place(length)
    }

    #[cold]
    fn in_other_place(&mut self, length: usize) -> Result<&mut [u8], HandlerError> {
        if length > self.limits.longest {
            return Err(self.too_long(length));
        }
        if length <= self.place.len() {
            // An empty response fits even if there is no space in the batch.
            self.elsewhere = None;
            self.length = length;
            return Ok(&mut self.place[..length]);
        }
        self.place = &mut [];
        self.length = 0;
        let elsewhere = self.room_elsewhere(length)?;
        Ok(self.elsewhere.insert(Box::new(elsewhere)).bytes_mut())
    }

    #[cold]
    fn too_long(&self, bytes: usize) -> HandlerError {
        let message = format!(
            "a response of {bytes} bytes is too long; the caller accepts {}",
            self.limits.longest
        );
        HandlerError(Box::new(Refusal {
            code: self.limits.longest as u32,
            message,
            reason: FailureReason::TooLong,
        }))
    }
}

/// The function of a handler that answers before it returns.
pub(super) type HandlerFunction =
    dyn Fn(&Request<'_>, &mut Responder<'_>) -> Result<(), HandlerError> + Send + Sync;

/// The function of a handler that answers later.
pub(super) type DeferredFunction = dyn Fn(OwnedRequest, OwnedResponder) + Send + Sync;

/// The future that an async handler returns.
pub(super) type HandlerFuture = Pin<Box<dyn Future<Output = Result<Vec<u8>, HandlerError>> + Send>>;

/// The function of an async handler.
pub(super) type AsyncFunction = dyn Fn(OwnedRequest) -> HandlerFuture + Send + Sync;

/// The function that prefetches for the requests of a batch.
pub(super) type PrefetchFunction = dyn Fn(Upcoming<'_>) + Send + Sync;

/// Where a handler runs.
#[derive(Clone)]
pub(super) enum Execution {
    /// On the polling thread: for handlers of a few microseconds.
    Inline(Arc<HandlerFunction>),
    /// On the worker pool.
    Worker(Arc<HandlerFunction>),
    /// Starts on the polling thread, and may answer on any thread.
    Deferred(Arc<DeferredFunction>),
    /// On the user's executor, or on the worker pool.
    Async(Arc<AsyncFunction>),
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    struct NoExports;

    impl Exporter for NoExports {
        fn export(&self, _length: usize) -> Result<Box<dyn BytesMut>, HandlerError> {
            unreachable!("nothing here is long")
        }
    }

    const BOTH: Limits = Limits {
        eager: 64,
        longest: 64,
    };

    /// Exports buffers whose lengths are multiples of 100 bytes.
    struct Hundreds;

    #[derive(Debug)]
    struct Hundred(Vec<u8>, usize);

    impl BytesMut for Hundred {
        fn bytes_ref(&self) -> &[u8] {
            &self.0[..self.1]
        }

        fn bytes_mut(&mut self) -> &mut [u8] {
            &mut self.0[..self.1]
        }

        fn resize(&mut self, length: usize) -> bool {
            let fits = length <= self.0.len();
            if fits {
                self.1 = length;
            }
            fits
        }

        fn into_any(self: Box<Self>) -> Box<dyn std::any::Any + Send> {
            self
        }

        fn as_any(&self) -> &dyn std::any::Any {
            self
        }
    }

    impl Exporter for Hundreds {
        fn export(&self, length: usize) -> Result<Box<dyn BytesMut>, HandlerError> {
            let bytes = vec![0xaa; length.next_multiple_of(100)];
            Ok(Box::new(Hundred(bytes, length)))
        }
    }

    /// The response moves from the batch to the heap, to registered memory and to a larger piece of it; what was filled
    /// in place is kept.
    #[test]
    fn what_is_written_is_appended_wherever_it_stands() {
        let limits = Limits {
            eager: 64,
            longest: 1000,
        };
        for (room, filled) in [(0, 0), (0, 5), (0, 300), (16, 5), (64, 64), (64, 0)] {
            let mut place = [0; 64];
            let mut responder = Responder::new(&mut place[..room], &limits, &Hundreds);
            let mut wanted: Vec<u8> = (0..filled).map(|i| i as u8).collect();
            if filled > 0 {
                responder.in_place(filled).unwrap().copy_from_slice(&wanted);
            }
            for length in [3, 20, 40, 100, 7, 250] {
                let more: Vec<u8> = (0..length).map(|i| (i + wanted.len()) as u8).collect();
                wanted.extend_from_slice(&more);
                responder.write(&more).unwrap();
                assert_eq!(responder.written(), wanted, "{room} {filled} {length}");
            }
            let too_long = responder.write(&[0; 1000]).unwrap_err();
            assert_eq!(too_long.0.reason, FailureReason::TooLong);
            let Elsewhere::Exported(buffer) = responder.elsewhere() else {
                panic!("a long response is exported");
            };
            assert_eq!(buffer.bytes_ref(), wanted);
        }
    }

    #[test]
    fn an_empty_response_in_place_replaces_what_was_written() {
        for has_place in [false, true] {
            let mut place = [0; 8];
            let place = if has_place { &mut place[..] } else { &mut [] };
            let mut responder = Responder::new(place, &BOTH, &NoExports);
            responder.write(b"longer than the place").unwrap();
            assert!(responder.in_place(0).unwrap().is_empty());
            assert_eq!(responder.written_in_place().unwrap_or(0), 0);
            let elsewhere = responder.elsewhere();
            assert!(matches!(elsewhere, Elsewhere::Heap(bytes) if bytes.is_empty()));
        }
    }
}
