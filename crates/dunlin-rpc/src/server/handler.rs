//! Handlers: what a server does for a request, and what it is given for it.

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

/// A request in a handler's hands.
#[derive(Debug)]
pub struct Request<'a> {
    pub(super) handler: HandlerId,
    pub(super) payload: &'a [u8],
    pub(super) connection: u64,
    pub(super) caller: &'a Caller,
    pub(super) deadline: Deadline,
    /// Whether somebody still waits, where that may change while the handler runs.
    pub(super) fate: Option<&'a Fate>,
}

impl Request<'_> {
    /// The bytes that the caller sent. They are private to this process: the caller cannot change them any more.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        self.payload
    }

    /// The id that the caller asked for.
    pub fn handler(&self) -> HandlerId {
        self.handler
    }

    /// Which connection of this server it came by: no other has this number, whatever device it is over.
    pub fn connection(&self) -> u64 {
        self.connection
    }

    /// Tells, also when this request has long been answered, whether its connection is still there.
    pub fn presence(&self) -> Presence {
        self.caller.presence()
    }

    /// Who the caller is, as far as the handshake has shown it. All requests of a connection have the same.
    #[inline]
    pub fn peer(&self) -> &Arc<Peer> {
        self.caller.peer()
    }

    /// The way back to the client that has sent this, if it has registered for being called
    /// ([`crate::ServerBuilder::serve_to`]) and has not gone. A server calls clients where it was told to
    /// ([`crate::ServerBuilder::callable_clients`]).
    pub fn caller(&self) -> Option<CallableClient> {
        self.caller.callable()
    }

    /// Whether the caller may call this handler, too; for handlers that stand for others
    /// ([`crate::ServerBuilder::checks_rights_itself`]). Always so without [`crate::Rights`].
    #[inline]
    pub fn may_call(&self, id: HandlerId) -> bool {
        self.caller.may_call(id)
    }

    /// When the caller gives up, by this machine's clock; `None`: it did not say. Callers say how much time they have
    /// left, and how long a request was on its way is counted as far as it took longer than others of the connection;
    /// so this is never before the caller's own deadline. Of a call that may take as long as all of its client do
    /// ([`crate::ClientBuilder::deadline`], a second or longer) it is counted from when the request was taken; by a
    /// handler on the polling thread, from when it asks.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline.instant()
    }

    /// How long the caller goes on waiting; see [`Request::deadline`].
    pub fn remaining(&self) -> Option<Duration> {
        remaining(self.deadline())
    }

    /// Whether nobody waits for the answer any more: the caller has given up, its deadline has passed, or its
    /// connection has ended. What callers say does not reach handlers on the polling thread: they run between two looks
    /// at it.
    pub fn is_cancelled(&self) -> bool {
        match self.fate {
            Some(fate) => fate.is_over(),
            None => self.remaining().is_some_and(|left| left.is_zero()),
        }
    }
}

/// How long it is until then.
pub(super) fn remaining(deadline: Option<Instant>) -> Option<Duration> {
    deadline.map(|deadline| deadline.saturating_duration_since(thread::now()))
}

/// A handler says no. The caller gets both parts as [`crate::CallError::Handler`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {}", .0.code, .0.message)]
pub struct HandlerError(Box<Refusal>);

/// In a box: what nearly all handlers return is one word then.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Refusal {
    code: u32,
    message: String,
    /// Whose error it is.
    reason: FailureReason,
}

impl HandlerError {
    /// An error with a number for programs and words for people; at most 1000 bytes of words travel.
    pub fn new(code: u32, message: impl Into<String>) -> Self {
        Self(Box::new(Refusal {
            code,
            message: message.into(),
            reason: FailureReason::Handler,
        }))
    }

    /// The number for programs.
    pub fn code(&self) -> u32 {
        self.0.code
    }

    /// The words for people.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// There is no memory for the response: the caller gets [`crate::CallError::Overloaded`].
    pub(super) fn no_memory(error: impl fmt::Display) -> Self {
        Self(Box::new(Refusal {
            code: 0,
            message: format!("no memory for the response: {error}"),
            reason: FailureReason::Overloaded,
        }))
    }

    pub(super) fn into_failure(self) -> WireFailure {
        WireFailure::new(self.0.reason, self.0.code, self.0.message)
    }
}

/// What the server itself says no to, in one of its own handlers.
impl From<WireFailure> for HandlerError {
    fn from(failure: WireFailure) -> Self {
        Self(Box::new(Refusal {
            code: failure.number,
            message: failure.message,
            reason: failure.reason,
        }))
    }
}

/// Memory for long responses, whatever the device.
pub(super) trait Exporter: Send + Sync {
    fn export(&self, length: usize) -> Result<Box<dyn BytesMut>, HandlerError>;
}

/// Where a handler puts its response.
pub struct Responder<'a> {
    /// The place in the batch, and how much of it is written. It is given up when the response goes elsewhere.
    place: &'a mut [u8],
    length: usize,
    elsewhere: Option<Box<Elsewhere>>,
    limits: &'a Limits,
    exporter: &'a dyn Exporter,
}

/// How long responses may be, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// With their message.
    pub(super) eager: usize,
    /// At all.
    pub(super) longest: usize,
}

/// A response that does not stand in its place: it is longer, or there was no room.
pub(super) enum Elsewhere {
    Heap(Vec<u8>),
    /// It was filled in registered memory.
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
    /// For a client with these limits; `place` is empty or has room for a response that crosses with its message.
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

    /// Bytes of the response, if it stands in its place.
    #[inline]
    pub(super) fn written_in_place(&self) -> Option<usize> {
        // Without a place there must be bytes elsewhere, be they none.
        (self.elsewhere.is_none() && !self.place.is_empty()).then_some(self.length)
    }

    /// The response that does not stand in its place.
    pub(super) fn elsewhere(self) -> Elsewhere {
        self.elsewhere
            .map_or(Elsewhere::Heap(Vec::new()), |elsewhere| *elsewhere)
    }

    /// Appends to the response.
    ///
    /// # Errors
    /// When the response would be longer than the caller takes, or there is no memory for it: return the error and the
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

    /// Bytes that the answer may have: what the caller takes.
    pub fn max_reply_bytes(&self) -> usize {
        self.limits.longest
    }

    /// What is written so far.
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

    /// Room for a response of `length` bytes out of its place: in registered memory, where the peer fetches it from, if
    /// it is too long to cross with its message.
    fn room_elsewhere(&self, length: usize) -> Result<Elsewhere, HandlerError> {
        Ok(if length <= self.limits.eager {
            Elsewhere::Heap(memory::zeros(length).map_err(HandlerError::no_memory)?)
        } else {
            Elsewhere::Exported(self.exporter.export(length)?)
        })
    }

    /// A response of exactly `length` bytes to fill in place: no copy is made of a long one. Replaces what was written
    /// before. The bytes are not cleared: they may be those of earlier responses to the same client.
    ///
    /// # Errors
    /// When it is longer than the caller takes, or the device has no memory for it.
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
            // An empty response fits into no place at all, too.
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
            "a response of {bytes} bytes; the caller takes {}",
            self.limits.longest
        );
        HandlerError(Box::new(Refusal {
            code: self.limits.longest as u32,
            message,
            reason: FailureReason::TooLong,
        }))
    }
}

/// What a handler is.
pub(super) type HandlerFunction =
    dyn Fn(&Request<'_>, &mut Responder<'_>) -> Result<(), HandlerError> + Send + Sync;

/// A handler that answers later.
pub(super) type DeferredFunction = dyn Fn(OwnedRequest, OwnedResponder) + Send + Sync;

/// What an async handler makes of a request.
pub(super) type HandlerFuture = Pin<Box<dyn Future<Output = Result<Vec<u8>, HandlerError>> + Send>>;

/// An async handler.
pub(super) type AsyncFunction = dyn Fn(OwnedRequest) -> HandlerFuture + Send + Sync;

/// What looks ahead at the requests of a batch.
pub(super) type PrefetchFunction = dyn Fn(Upcoming<'_>) + Send + Sync;

/// Where a handler runs.
#[derive(Clone)]
pub(super) enum Execution {
    /// On the thread that polls: for handlers of a few microseconds.
    Inline(Arc<HandlerFunction>),
    /// On the worker pool.
    Worker(Arc<HandlerFunction>),
    /// It begins on the thread that polls, and ends wherever it likes.
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

    /// Buffers of whole hundreds of bytes.
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

    /// From its place to the heap to registered memory to more of it, and what was filled in place is kept.
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
