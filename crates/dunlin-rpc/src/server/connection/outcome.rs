//! How a handler ended, and what is sent to its caller.

use std::panic::{catch_unwind, AssertUnwindSafe};

use crate::channel::buffers::BytesMut;
use crate::error::{FailureReason, WireFailure};
use crate::server::handler::{Elsewhere, HandlerError, HandlerFunction, Request, Responder};

/// A response that is ready to be sent.
pub(in crate::server) enum Outcome {
    Short(Vec<u8>),
    Long(Box<dyn BytesMut>),
    Failure(WireFailure),
}

/// How a handler ended: its own error, or a panic.
pub(in crate::server) type Ended = Result<Result<(), HandlerError>, Box<dyn std::any::Any + Send>>;

impl Outcome {
    /// Makes the outcome of a handler that failed, or whose response is not in the batch.
    pub(in crate::server) fn new(ended: Ended, elsewhere: Elsewhere) -> Self {
        match ended {
            Ok(Ok(())) => match elsewhere {
                Elsewhere::Heap(bytes) => Self::Short(bytes),
                Elsewhere::Exported(buffer) => Self::Long(buffer),
            },
            Ok(Err(error)) => Self::Failure(error.into_failure()),
            Err(_) => Self::panicked(),
        }
    }

    /// Length of a response that the client fetches by READ; 0 for one that goes through its ring, and for an error.
    pub(super) fn long_bytes(&self, eager_bytes: usize) -> usize {
        match self {
            Self::Short(bytes) if bytes.len() > eager_bytes => bytes.len(),
            Self::Long(buffer) => buffer.bytes_ref().len().max(1),
            Self::Short(_) | Self::Failure(_) => 0,
        }
    }

    /// Makes the outcome of a handler that panicked.
    pub(in crate::server) fn panicked() -> Self {
        Self::Failure(WireFailure::new(FailureReason::Panicked, 0, ""))
    }
}

/// Runs a handler, and catches its panic.
#[inline]
pub(in crate::server) fn execute(
    function: &HandlerFunction,
    request: &Request<'_>,
    responder: &mut Responder<'_>,
) -> Ended {
    catch_unwind(AssertUnwindSafe(|| function(request, responder)))
}
