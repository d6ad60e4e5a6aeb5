//! Where the bytes of a receive go: into the buffer of a request, or into one that the running call has borrowed.
//!
//! Without unsafe code a borrowed buffer cannot outlive the call that it was passed to. So nonblocking operations own
//! their buffers and give them back, and a blocking call lends its own to the engine for as long as it runs ([`Lent`]).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::MpiError;
use crate::selection::Status;
use crate::wire::Context;

/// A nonblocking operation that has completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completed {
    /// What was received; `None` for a send.
    pub status: Option<Status>,
    /// The buffer that was handed over; that of a receive is shortened to the message.
    pub buffer: Vec<u8>,
}

/// The outcome of a nonblocking operation, shared by its request and the engine.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome(Arc<Mutex<Option<Result<Completed, MpiError>>>>);

impl Outcome {
    fn lock(&self) -> MutexGuard<'_, Option<Result<Completed, MpiError>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set(&self, outcome: Result<Completed, MpiError>) {
        *self.lock() = Some(outcome);
    }

    pub(crate) fn take(&self) -> Option<Result<Completed, MpiError>> {
        self.lock().take()
    }

    /// Whether both are of the same operation.
    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// A message that a blocking call sends.
#[derive(Debug)]
pub(crate) struct LentSend<'a> {
    pub(crate) dest: usize,
    pub(crate) context: Context,
    pub(crate) tag: u32,
    pub(crate) bytes: &'a [u8],
    /// Bytes that are in the ring.
    pub(crate) sent: usize,
    pub(crate) is_done: bool,
}

/// What a blocking call lends to the engine: a message to send, and a buffer.
#[derive(Debug, Default)]
pub(crate) struct Lent<'a> {
    pub(crate) send: Option<LentSend<'a>>,
    pub(crate) buffer: &'a mut [u8],
    /// The outcome of the receive into that buffer.
    pub(crate) received: Option<Result<Status, MpiError>>,
}

/// Where the bytes of a receive go.
#[derive(Debug)]
pub(crate) enum Target {
    /// Into the buffer that the running call has lent.
    Lent,
    /// Into the buffer of a request.
    Owned {
        /// The buffer.
        buffer: Vec<u8>,
        /// Where to report the end.
        outcome: Outcome,
    },
}

impl Target {
    /// Whether it is the receive of a request with this outcome.
    pub(crate) fn reports_to(&self, request: &Outcome) -> bool {
        matches!(self, Self::Owned { outcome, .. } if outcome.is(request))
    }

    /// The buffer.
    pub(crate) fn bytes_mut<'b>(&'b mut self, lent: &'b mut Lent<'_>) -> &'b mut [u8] {
        match self {
            Self::Lent => lent.buffer,
            Self::Owned { buffer, .. } => buffer,
        }
    }

    /// Checks that a message fits; otherwise ends the receive with an error.
    pub(crate) fn checked(mut self, status: &Status, lent: &mut Lent<'_>) -> Option<Self> {
        let capacity = self.bytes_mut(lent).len();
        if status.bytes <= capacity {
            return Some(self);
        }
        let error = MpiError::Truncated {
            source_rank: status.source,
            tag: status.tag,
            bytes: status.bytes,
            capacity,
        };
        self.end(Err(error), lent);
        None
    }

    /// Ends the receive.
    pub(crate) fn end(self, result: Result<Status, MpiError>, lent: &mut Lent<'_>) {
        match self {
            Self::Lent => lent.received = Some(result),
            Self::Owned {
                mut buffer,
                outcome,
            } => outcome.set(result.map(|status| {
                buffer.truncate(status.bytes);
                Completed {
                    status: Some(status),
                    buffer,
                }
            })),
        }
    }
}
