//! Errors as seen from C: a code, a message, and whether the call was executed.

use std::any::Any;
use std::ffi::CString;

use dunlin::{CallError, ConnectError, Execution, ServeError};

/// The result of a function or a call. Later versions may add codes: treat unknown ones as errors.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// Success.
    Ok = 0,
    /// A pointer that must not be NULL is NULL.
    NullArgument = 1,
    /// An argument or a setting is out of range, or text is not UTF-8.
    InvalidArgument = 2,
    /// A defect in Dunlin: please report the message.
    Defect = 3,
    /// The object is not in the right state, such as a server that is already running.
    WrongState = 4,
    /// The pipeline is in use, by another thread or by the callback that makes this call.
    Busy = 5,
    /// There is no answer now. Not accompanied by an error object.
    Empty = 6,
    /// There is no room for another call now: take answers first. Not accompanied by an error object.
    Full = 7,
    /// The operating system refused a resource, such as a descriptor or a thread.
    System = 8,
    /// The address is malformed.
    Address = 10,
    /// No connection could be made. The call was not sent.
    Connect = 11,
    /// There is no such device on this machine.
    NoDevice = 12,
    /// The server could not be started.
    Serve = 13,
    /// There was no answer within the deadline.
    DeadlineExceeded = 20,
    /// The call's deadline had passed at the server.
    Expired = 21,
    /// The connection was lost while the call was outstanding.
    ConnectionLost = 22,
    /// A packet of the call was lost (presets over datagrams).
    PacketLost = 23,
    /// The preset does not support this.
    Unsupported = 24,
    /// A handler on a polling thread called its own server.
    OwnServer = 25,
    /// The server has no such handler.
    UnknownHandler = 26,
    /// The request or the response is longer than one side accepts.
    TooLong = 27,
    /// The client's limit of outstanding calls is reached.
    TooManyOutstanding = 28,
    /// There is no memory for a long message.
    NoMemory = 29,
    /// The server has reached a limit.
    Overloaded = 30,
    /// The server is shutting down.
    ShuttingDown = 31,
    /// The handler refused or failed: `dunlin_error_handler_code` returns its code.
    Handler = 32,
    /// The handler panicked (handlers in Rust).
    HandlerPanicked = 33,
    /// The server grants no region of this name.
    UnknownRegion = 34,
    /// The operation would exceed the bounds of its region.
    RegionBounds = 35,
    /// The region was not granted for this operation.
    RegionRight = 36,
    /// The offset of an atomic is not a multiple of 8.
    RegionAlignment = 37,
    /// The client is closed.
    Closed = 38,
    /// The object was created before a fork().
    Forked = 39,
    /// This version cannot read the answer.
    Unreadable = 40,
    /// An error for which this version has no code.
    Other = 99,
}

/// Whether the server executed a call that has ended with an error.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Executed {
    /// It was not executed, and will not be.
    No = 0,
    /// It was executed.
    Yes = 1,
    /// It is not known.
    Unknown = 2,
}

/// An error. It belongs to the caller who received it, and does not change.
#[derive(Debug)]
pub struct Error {
    pub(crate) code: Code,
    pub(crate) message: CString,
    pub(crate) executed: Executed,
    pub(crate) handler_code: u32,
    pub(crate) is_retryable: bool,
}

/// Text for C: a NUL inside, which only a peer can have sent, becomes a space.
pub(crate) fn text(words: impl Into<String>) -> CString {
    CString::new(words.into().replace('\0', " ")).unwrap_or_default()
}

impl Error {
    /// An error of the request itself: nothing was executed.
    pub(crate) fn new(code: Code, words: impl Into<String>) -> Self {
        Self {
            code,
            message: text(words),
            executed: Executed::No,
            handler_code: 0,
            is_retryable: false,
        }
    }

    /// A required pointer was NULL.
    pub(crate) fn null(name: &str) -> Self {
        Self::new(
            Code::NullArgument,
            format!("the argument `{name}` is NULL: it must be a valid pointer"),
        )
    }

    /// A panic in Dunlin.
    #[cold]
    pub(crate) fn defect(panic: Box<dyn Any + Send>) -> Self {
        let words = match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
            (Some(words), _) => (*words).to_owned(),
            (_, Some(words)) => words.clone(),
            _ => "no message".to_owned(),
        };
        // Dropping the payload of a panic may panic again.
        std::mem::forget(panic);
        Self {
            executed: Executed::Unknown,
            ..Self::new(
                Code::Defect,
                format!("Dunlin panicked, which is a bug in Dunlin: {words}"),
            )
        }
    }
}

impl From<CallError> for Error {
    #[cold]
    fn from(error: CallError) -> Self {
        let code = match &error {
            CallError::DeadlineExceeded { .. } => Code::DeadlineExceeded,
            CallError::Expired { .. } => Code::Expired,
            CallError::ConnectionLost { .. } => Code::ConnectionLost,
            CallError::PacketLost { .. } | CallError::PacketLossFatal => Code::PacketLost,
            CallError::OneSidedUnsupported => Code::Unsupported,
            CallError::Connect(_) => Code::Connect,
            CallError::OwnServer => Code::OwnServer,
            CallError::UnknownHandler(_) => Code::UnknownHandler,
            CallError::TooLong { .. } => Code::TooLong,
            CallError::TooManyOutstanding { .. } => Code::TooManyOutstanding,
            CallError::NoMemory { .. } => Code::NoMemory,
            CallError::NoThread { .. } => Code::System,
            CallError::Overloaded(_) => Code::Overloaded,
            CallError::ShuttingDown => Code::ShuttingDown,
            CallError::Handler { .. } => Code::Handler,
            CallError::HandlerPanicked => Code::HandlerPanicked,
            CallError::UnknownRegion { .. } => Code::UnknownRegion,
            CallError::RegionBounds { .. } => Code::RegionBounds,
            CallError::RegionRight { .. } => Code::RegionRight,
            CallError::RegionAlignment { .. } => Code::RegionAlignment,
            CallError::Closed => Code::Closed,
            CallError::Forked => Code::Forked,
            CallError::Unreadable(_) => Code::Unreadable,
            _ => Code::Other,
        };
        let handler_code = match &error {
            CallError::Handler { code, .. } => *code,
            _ => 0,
        };
        let executed = match error.execution() {
            Execution::NotExecuted => Executed::No,
            Execution::Executed => Executed::Yes,
            Execution::Unknown => Executed::Unknown,
        };
        Self {
            executed,
            handler_code,
            is_retryable: error.is_retryable(),
            ..Self::new(code, error.to_string())
        }
    }
}

impl From<ConnectError> for Error {
    #[cold]
    fn from(error: ConnectError) -> Self {
        let code = match &error {
            ConnectError::Address(_) => Code::Address,
            ConnectError::NoDevice { .. } => Code::NoDevice,
            ConnectError::OwnServer => Code::OwnServer,
            ConnectError::Forked => Code::Forked,
            ConnectError::Setting(_) => Code::InvalidArgument,
            ConnectError::Thread(_) => Code::System,
            _ => Code::Connect,
        };
        Self::new(code, error.to_string())
    }
}

impl From<ServeError> for Error {
    #[cold]
    fn from(error: ServeError) -> Self {
        let code = match &error {
            ServeError::Address(_) => Code::Address,
            ServeError::NoDevice { .. } => Code::NoDevice,
            ServeError::Setting(_)
            | ServeError::ReservedHandler(_)
            | ServeError::DuplicateHandler(_) => Code::InvalidArgument,
            ServeError::Thread(_) => Code::System,
            _ => Code::Serve,
        };
        Self::new(code, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_failed_keeps_what_its_caller_needs() {
        let error = Error::from(CallError::Handler {
            code: 7,
            message: "no\0way".into(),
        });
        assert_eq!(error.code, Code::Handler);
        assert_eq!(error.handler_code, 7);
        assert_eq!(error.executed, Executed::Yes);
        assert_eq!(error.message.to_str(), Ok("handler error 7: no way"));
        let error = Error::from(CallError::ShuttingDown);
        assert!(error.is_retryable);
        assert_eq!(error.executed, Executed::No);
    }
}
