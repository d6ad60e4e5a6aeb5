//! Requests and responders that outlive the call of their handler, for handlers that answer later, from any thread.
//!
//! Worker threads and async handlers are built on the same two types: a worker answers with what a closure returns, an
//! async handler when its future is ready.

use std::fmt;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use dunlin_bootstrap::Peer;

use super::away::Fate;
use super::callbacks::CallableClient;
use super::caller::{Caller, Presence};
use super::connection::Outcome;
use super::deadlines::{expired, Deadline};
use super::dispatch::{Deliver, Finished, Held};
use super::handler::{remaining, Exporter, HandlerError, Limits, Request, Responder};
use crate::channel::buffers::Bytes;
use crate::HandlerId;

/// The message for a caller whose call will not be answered.
const UNANSWERED: &str = "the handler dropped its responder without an answer";

/// A request that its handler may keep for as long as it needs.
///
/// What such handlers hold is bounded: 256 MiB of requests for each kind of client (rings, pools, datagrams), 4096
/// calls for each connection. Beyond that, callers get [`crate::CallError::Overloaded`].
#[derive(Debug)]
pub struct OwnedRequest {
    pub(super) handler: HandlerId,
    pub(super) connection: u64,
    pub(super) caller: Caller,
    pub(super) payload: Box<dyn Bytes>,
    pub(super) held: Option<Held>,
    pub(super) fate: Arc<Fate>,
}

impl OwnedRequest {
    /// As [`Request::payload`].
    pub fn payload(&self) -> &[u8] {
        self.payload.bytes()
    }

    /// As [`Request::handler`].
    pub fn handler(&self) -> HandlerId {
        self.handler
    }

    /// As [`Request::connection`].
    pub fn connection(&self) -> u64 {
        self.connection
    }

    /// As [`Request::presence`].
    pub fn presence(&self) -> Presence {
        self.caller.presence()
    }

    /// As [`Request::peer`].
    pub fn peer(&self) -> &Arc<Peer> {
        self.caller.peer()
    }

    /// As [`Request::caller`].
    pub fn caller(&self) -> Option<CallableClient> {
        self.caller.callable()
    }

    /// The connection on which the request arrived.
    pub(crate) fn connected(&self) -> &Caller {
        &self.caller
    }

    /// As [`Request::may_call`].
    pub fn may_call(&self, id: HandlerId) -> bool {
        self.caller.may_call(id)
    }

    /// As [`Request::deadline`].
    pub fn deadline(&self) -> Option<Instant> {
        self.fate.deadline()
    }

    /// As [`Request::remaining`].
    pub fn remaining(&self) -> Option<Duration> {
        remaining(self.deadline())
    }

    /// As [`Request::is_cancelled`].
    pub fn is_cancelled(&self) -> bool {
        self.fate.is_over()
    }

    /// No longer counts the request towards the limit of what handlers hold.
    pub(super) fn release(&mut self) {
        self.held = None;
    }

    pub(super) fn lend(&self) -> Request<'_> {
        Request {
            handler: self.handler,
            payload: self.payload.bytes(),
            connection: self.connection,
            caller: &self.caller,
            deadline: self.deadline().map_or(Deadline::Unsaid, Deadline::At),
            fate: Some(&self.fate),
        }
    }
}

/// Answers one call, once, later and from any thread.
///
/// If it is dropped without an answer, the caller gets an error that says so ([`crate::CallError::Handler`] with code
/// 0), or that the handler panicked if the thread is panicking. An answer whose caller has gone is discarded silently.
pub struct OwnedResponder(Option<Way>);

/// The way back to the caller.
pub(super) struct Way {
    pub(super) poller: usize,
    pub(super) connection: u64,
    pub(super) call: u64,
    pub(super) exporter: Box<dyn Exporter>,
    pub(super) limits: Limits,
    pub(super) fate: Arc<Fate>,
    pub(super) deliver: Arc<Deliver>,
}

impl Way {
    fn take(&self, outcome: Outcome) {
        let finished = Finished {
            connection: self.connection,
            call: self.call,
            outcome,
        };
        (self.deliver)(self.poller, finished);
    }
}

impl fmt::Debug for OwnedResponder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedResponder")
            .field("call", &self.0.as_ref().map(|way| way.call))
            .finish_non_exhaustive()
    }
}

impl OwnedResponder {
    pub(super) fn new(way: Way) -> Self {
        Self(Some(way))
    }

    /// Maximum length of the answer that the caller accepts, in bytes.
    pub fn max_reply_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |way| way.limits.longest)
    }

    /// Answers with these bytes. If they are more than the caller accepts, it gets [`crate::CallError::TooLong`].
    pub fn reply(mut self, bytes: impl Into<Vec<u8>>) {
        let bytes = bytes.into();
        match self.0.take() {
            Some(way) if bytes.len() <= way.limits.eager => way.take(Outcome::Short(bytes)),
            way => {
                self.0 = way;
                self.answer(|reply| reply.write(&bytes));
            }
        }
    }

    /// Answers with an error: the caller gets [`crate::CallError::Handler`].
    pub fn fail(mut self, error: HandlerError) {
        if let Some(way) = self.0.take() {
            way.take(Outcome::Failure(error.into_failure()));
        }
    }

    /// Answers as a handler does: with what `respond` puts into the responder, or with its error. A long response
    /// filled by [`Responder::in_place`] is not copied again. A panic of `respond` is caught, as that of a handler is.
    pub fn answer(mut self, respond: impl FnOnce(&mut Responder<'_>) -> Result<(), HandlerError>) {
        let Some(way) = self.0.take() else { return };
        let mut responder = Responder::new(&mut [], &way.limits, way.exporter.as_ref());
        let ended = catch_unwind(AssertUnwindSafe(|| respond(&mut responder)));
        let outcome = Outcome::new(ended, responder.elsewhere());
        way.take(outcome);
    }

    /// Returns a responder that calls `watch` with the call's outcome before the outcome goes to the caller.
    pub(super) fn watched(mut self, watch: impl FnOnce(&Outcome) + Send + Sync + 'static) -> Self {
        let Some(mut way) = self.0.take() else {
            return self;
        };
        let (deliver, watch) = (way.deliver, Mutex::new(Some(watch)));
        way.deliver = Arc::new(move |poller, finished| {
            let watch = watch.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(watch) = watch {
                watch(&finished.outcome);
            }
            deliver(poller, finished);
        });
        Self(Some(way))
    }

    /// Whether the answer is no longer wanted: the caller has given up, its deadline has passed, or its connection has
    /// ended.
    pub fn is_cancelled(&self) -> bool {
        self.0.as_ref().is_none_or(|way| way.fate.is_over())
    }

    /// Ends the call as expired: the handler was not run, or is not run any further. The caller is told, since by its
    /// own clock it may still be waiting.
    pub(super) fn expire(mut self, begun: bool) {
        if let Some(way) = self.0.take() {
            way.take(Outcome::Failure(expired(begun)));
        }
    }

    /// Ready once the answer is no longer wanted; otherwise wakes the task of `context` when that happens. Only the
    /// task that asked last is woken.
    pub fn poll_cancelled(&self, context: &Context<'_>) -> Poll<()> {
        match &self.0 {
            Some(way) => way.fate.poll_cancelled(context),
            None => Poll::Ready(()),
        }
    }

    /// Ready once the caller has given up or its connection has ended, regardless of its deadline; otherwise the task
    /// of `context` is woken when that happens, and perhaps earlier.
    pub(crate) fn poll_ended(&self, context: &Context<'_>) -> Poll<()> {
        match &self.0 {
            Some(way) => way.fate.poll_ended(context),
            None => Poll::Ready(()),
        }
    }

    /// Ends the call with the error that its handler panicked.
    pub(super) fn panicked(mut self) {
        if let Some(way) = self.0.take() {
            way.take(Outcome::panicked());
        }
    }

    /// Discards the responder without an answer: the call never left the poller, which answers it.
    pub(super) fn discard(mut self) {
        self.0 = None;
    }
}

impl Drop for OwnedResponder {
    fn drop(&mut self) {
        let Some(way) = self.0.take() else { return };
        way.take(match std::thread::panicking() {
            true => Outcome::panicked(),
            false => Outcome::Failure(HandlerError::new(0, UNANSWERED).into_failure()),
        });
    }
}
