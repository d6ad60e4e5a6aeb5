//! Handlers that are captured: wrappers for each kind, which record the request and the answer.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use dunlin_bootstrap::Peer;
use dunlin_verbs::thread;

use super::Tap;
use crate::call::captured::{CallEnd, CapturedCall};
use crate::error::FailureReason;
use crate::server::connection::Outcome;
use crate::server::handler::{Execution, HandlerError, HandlerFunction, HandlerFuture};
use crate::HandlerId;

/// A handler that does what `execution` does, and whose calls are captured.
pub(in crate::server) fn observe(execution: Execution, tap: &Arc<Tap>, name: &str) -> Execution {
    let (tap, name): (_, Arc<str>) = (Arc::clone(tap), name.into());
    match execution {
        Execution::Inline(function) => Execution::Inline(borrowing(function, tap, name)),
        Execution::Worker(function) => Execution::Worker(borrowing(function, tap, name)),
        Execution::Deferred(function) => {
            Execution::Deferred(Arc::new(move |request, responder| {
                let of = (request.connection(), request.handler(), request.peer());
                let seen = Seen::begin(&tap, &name, of, request.payload());
                let responder = match seen {
                    Some(seen) => responder.watched(move |outcome| seen.ended(outcome)),
                    None => responder,
                };
                function(request, responder);
            }))
        }
        Execution::Async(function) => Execution::Async(Arc::new(move |request| -> HandlerFuture {
            let of = (request.connection(), request.handler(), request.peer());
            let seen = Seen::begin(&tap, &name, of, request.payload());
            let future = function(request);
            Box::pin(async move {
                let answer = future.await;
                if let Some(seen) = seen {
                    let written = answer.as_deref().unwrap_or_default();
                    seen.returned(answer.as_ref().err(), written);
                }
                answer
            })
        })),
    }
}

fn borrowing(
    function: Arc<HandlerFunction>,
    tap: Arc<Tap>,
    name: Arc<str>,
) -> Arc<HandlerFunction> {
    Arc::new(move |request, responder| {
        let of = (request.connection(), request.handler(), request.peer());
        let Some(seen) = Seen::begin(&tap, &name, of, request.payload()) else {
            return function(request, responder);
        };
        let ended = function(request, responder);
        seen.returned(ended.as_ref().err(), responder.written());
        ended
    })
}

/// A call that has begun. If it is dropped without an end, its handler panicked, or its answer was no longer wanted.
struct Seen {
    tap: Arc<Tap>,
    call: Option<CapturedCall>,
    began: Instant,
    snap: usize,
}

impl Seen {
    /// `None` if no client captures.
    fn begin(
        tap: &Arc<Tap>,
        name: &str,
        (connection, handler, peer): (u64, HandlerId, &Arc<Peer>),
        request: &[u8],
    ) -> Option<Self> {
        let snap = tap.captures()?;
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Some(Self {
            tap: Arc::clone(tap),
            call: Some(CapturedCall {
                began: since_1970.unwrap_or(Duration::ZERO),
                connection,
                peer: peer.to_string(),
                handler,
                name: name.to_owned(),
                request_bytes: request.len() as u64,
                request: beginning(request, snap),
                ..CapturedCall::default()
            }),
            began: thread::now(),
            snap,
        })
    }

    /// Records that the handler returned.
    fn returned(self, error: Option<&HandlerError>, written: &[u8]) {
        match error {
            Some(error) => self.end(CallEnd::Failed(error.code()), error.message().as_bytes()),
            None => self.end(CallEnd::Answered, written),
        }
    }

    /// Records how a call that was answered later ended.
    fn ended(self, outcome: &Outcome) {
        match outcome {
            Outcome::Short(bytes) => self.end(CallEnd::Answered, bytes),
            Outcome::Long(buffer) => self.end(CallEnd::Answered, buffer.bytes_ref()),
            Outcome::Failure(failure) => {
                let end = match failure.reason {
                    FailureReason::Panicked => CallEnd::Panicked,
                    FailureReason::Expired => CallEnd::Cancelled,
                    _ => CallEnd::Failed(failure.number),
                };
                self.end(end, failure.message.as_bytes());
            }
        }
    }

    fn end(mut self, end: CallEnd, answer: &[u8]) {
        let snap = self.snap;
        self.keep(|call| {
            call.end = end;
            call.answer_bytes = answer.len() as u64;
            call.answer = beginning(answer, snap);
        });
    }

    fn keep(&mut self, end: impl FnOnce(&mut CapturedCall)) {
        if let Some(mut call) = self.call.take() {
            call.took = thread::now().duration_since(self.began);
            end(&mut call);
            self.tap.kept().push(call);
        }
    }
}

impl Drop for Seen {
    fn drop(&mut self) {
        self.keep(|call| {
            call.end = match std::thread::panicking() {
                true => CallEnd::Panicked,
                false => CallEnd::Cancelled,
            };
        });
    }
}

fn beginning(bytes: &[u8], most: usize) -> Vec<u8> {
    bytes[..bytes.len().min(most)].to_vec()
}
