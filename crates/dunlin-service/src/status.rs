//! The status of a call that ended without an answer: a code, a message, details.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use dunlin::{CallError, ConnectError, Execution, HandlerError};

use crate::{Code, MetadataMap};

/// The status of a call: a [`Code`], a human-readable message, and details for programs (bytes whose format the two
/// sides agree on; by gRPC's conventions a `google.rpc.Status`).
#[derive(Clone)]
pub struct Status(Box<Content>);

/// Boxed, which keeps the result type of nearly all calls small.
#[derive(Clone)]
struct Content {
    code: Code,
    message: String,
    details: Vec<u8>,
    metadata: MetadataMap,
    /// The status was received from the server.
    answered: bool,
    /// The transport's error, on the side where it occurred.
    source: Option<Arc<dyn Error + Send + Sync>>,
}

macro_rules! constructors {
    ($($name:ident: $code:ident;)*) => {
        impl Status {
            $(
                #[doc = concat!("A status with [`Code::", stringify!($code), "`].")]
                pub fn $name(message: impl Into<String>) -> Self {
                    Self::new(Code::$code, message)
                }
            )*
        }
    };
}

constructors! {
    ok: Ok;
    cancelled: Cancelled;
    unknown: Unknown;
    invalid_argument: InvalidArgument;
    deadline_exceeded: DeadlineExceeded;
    not_found: NotFound;
    already_exists: AlreadyExists;
    permission_denied: PermissionDenied;
    resource_exhausted: ResourceExhausted;
    failed_precondition: FailedPrecondition;
    aborted: Aborted;
    out_of_range: OutOfRange;
    unimplemented: Unimplemented;
    internal: Internal;
    unavailable: Unavailable;
    data_loss: DataLoss;
    unauthenticated: Unauthenticated;
}

impl Status {
    /// Creates a status with any code.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self::with_details_and_metadata(code, message, Vec::new(), MetadataMap::new())
    }

    /// Creates a status with details for programs.
    pub fn with_details(
        code: Code,
        message: impl Into<String>,
        details: impl Into<Vec<u8>>,
    ) -> Self {
        Self::with_details_and_metadata(code, message, details, MetadataMap::new())
    }

    /// Creates a status with metadata, which is sent with the end of the call (gRPC's trailers).
    pub fn with_metadata(code: Code, message: impl Into<String>, metadata: MetadataMap) -> Self {
        Self::with_details_and_metadata(code, message, Vec::new(), metadata)
    }

    /// Creates a status with details and metadata.
    pub fn with_details_and_metadata(
        code: Code,
        message: impl Into<String>,
        details: impl Into<Vec<u8>>,
        metadata: MetadataMap,
    ) -> Self {
        Self(Box::new(Content {
            code,
            message: message.into(),
            details: details.into(),
            metadata,
            answered: false,
            source: None,
        }))
    }

    /// The code.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// The human-readable message.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Details for programs; empty if there are none.
    pub fn details(&self) -> &[u8] {
        &self.0.details
    }

    /// Metadata sent with the end of the call.
    pub fn metadata(&self) -> &MetadataMap {
        &self.0.metadata
    }

    /// Metadata sent with the end of the call, mutable.
    pub fn metadata_mut(&mut self) -> &mut MetadataMap {
        &mut self.0.metadata
    }

    /// The transport's error, if the status was created from one on this side.
    pub fn call_error(&self) -> Option<&CallError> {
        self.0.source.as_deref()?.downcast_ref()
    }

    /// Whether the server executed the call, as far as this side knows. The server did execute a call that it answered
    /// itself, unless the status is that of a deadline, which may have passed before the handler ran or while it was
    /// running.
    pub fn execution(&self) -> Execution {
        match (self.call_error(), &self.0.source) {
            (Some(error), _) => error.execution(),
            // No connection was made.
            (None, Some(_)) => Execution::NotExecuted,
            (None, None) if self.0.answered && self.code() != Code::DeadlineExceeded => {
                Execution::Executed
            }
            (None, None) => Execution::Unknown,
        }
    }

    /// Marks the status as received from the server.
    pub(crate) fn answered(mut self) -> Self {
        self.0.answered = true;
        self
    }

    /// Creates a status from an error of this side.
    pub(crate) fn caused(code: Code, source: impl Error + Send + Sync + 'static) -> Self {
        let mut status = Self::new(code, source.to_string());
        status.0.source = Some(Arc::new(source));
        status
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Status");
        shown
            .field("code", &self.0.code)
            .field("message", &self.0.message);
        if !self.0.details.is_empty() {
            shown.field("details", &self.0.details);
        }
        if !self.0.metadata.is_empty() {
            shown.field("metadata", &self.0.metadata);
        }
        shown.finish()
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.code.name(), self.0.message)
    }
}

impl Error for Status {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        let source: &(dyn Error + 'static) = self.0.source.as_deref()?;
        Some(source)
    }
}

impl From<CallError> for Status {
    fn from(error: CallError) -> Self {
        let code = match &error {
            CallError::DeadlineExceeded { .. } | CallError::Expired { .. } => {
                Code::DeadlineExceeded
            }
            CallError::ConnectionLost { .. }
            | CallError::PacketLost { .. }
            | CallError::Connect(_)
            | CallError::ShuttingDown => Code::Unavailable,
            CallError::UnknownHandler(_) | CallError::OneSidedUnsupported => Code::Unimplemented,
            CallError::TooLong { .. }
            | CallError::TooManyOutstanding { .. }
            | CallError::NoMemory { .. }
            | CallError::NoThread { .. }
            | CallError::Overloaded(_) => Code::ResourceExhausted,
            CallError::OwnServer | CallError::Forked | CallError::PacketLossFatal => {
                Code::FailedPrecondition
            }
            CallError::Forbidden { .. } => Code::PermissionDenied,
            CallError::Closed => Code::Cancelled,
            CallError::HandlerPanicked | CallError::Unreadable(_) => Code::Internal,
            _ => Code::Unknown,
        };
        Self::caused(code, error)
    }
}

impl From<ConnectError> for Status {
    fn from(error: ConnectError) -> Self {
        Self::caused(Code::Unavailable, error)
    }
}

impl From<HandlerError> for Status {
    fn from(error: HandlerError) -> Self {
        Self::caused(Code::Internal, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_the_transport_says_has_a_code_and_is_kept() {
        let after = Duration::from_millis(5);
        let status = Status::from(CallError::DeadlineExceeded { after });
        assert_eq!(status.code(), Code::DeadlineExceeded);
        assert_eq!(status.execution(), Execution::Unknown);
        assert!(status.message().contains("5ms"), "{status}");
        assert!(status.source().is_some());
        assert_eq!(
            Status::not_found("no bird").to_string(),
            "NOT_FOUND: no bird"
        );
    }
}
