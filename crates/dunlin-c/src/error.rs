//! Errors as C sees them: a number, words, and what became of the call.

use std::any::Any;
use std::ffi::CString;

use dunlin::{CallError, ConnectError, Execution, ServeError};

/// What became of what was asked for. New numbers may come with new versions: treat those that you do not know as
/// errors.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// It was done.
    Ok = 0,
    /// A pointer that must not be NULL is NULL.
    NullArgument = 1,
    /// An argument or a setting is out of its range, or text is not UTF-8.
    InvalidArgument = 2,
    /// A defect in Dunlin: please report its words.
    Defect = 3,
    /// The object is not in a state for this, such as a server that runs already.
    WrongState = 4,
    /// The pipeline is in use, by another thread or by the callback that calls.
    Busy = 5,
    /// There is no answer now. No error goes with it.
    Empty = 6,
    /// There is no room for one more call now: take answers first. No error goes with it.
    Full = 7,
    /// The operating system refused something, such as a descriptor or a thread.
    System = 8,
    /// The address is malformed.
    Address = 10,
    /// No connection could be made. The call was not sent.
    Connect = 11,
    /// There is no such device on this machine.
    NoDevice = 12,
    /// The server could not be started.
    Serve = 13,
    /// No answer within the deadline.
    DeadlineExceeded = 20,
    /// The server took the call after its deadline.
    Expired = 21,
    /// The connection was lost while the call was out.
    ConnectionLost = 22,
    /// A packet of the call was lost (presets over datagrams).
    PacketLost = 23,
    /// The preset cannot do this.
    Unsupported = 24,
    /// A handler on a polling thread called its own server.
    OwnServer = 25,
    /// The server has no such handler.
    UnknownHandler = 26,
    /// The request or the response is longer than one side takes.
    TooLong = 27,
    /// More calls are out than the client may have.
    TooManyOutstanding = 28,
    /// There is no memory for a long message.
    NoMemory = 29,
    /// The server has reached a limit.
    Overloaded = 30,
    /// The server is shutting down.
    ShuttingDown = 31,
    /// The handler refused or failed: `dunlin_error_handler_code` has its number.
    Handler = 32,
    /// The handler panicked (handlers in Rust).
    HandlerPanicked = 33,
    /// The server grants no region of this name.
    UnknownRegion = 34,
    /// The operation would leave its region.
    RegionBounds = 35,
    /// The region was not granted for this.
    RegionRight = 36,
    /// An atomic does not stand on a multiple of 8.
    RegionAlignment = 37,
    /// The client is closed.
    Closed = 38,
    /// The object was made before a fork().
    Forked = 39,
    /// The answer is not one that this version reads.
    Unreadable = 40,
    /// An error that this version has no number for.
    Other = 99,
}

/// Whether the server executed a call that has ended with an error.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Executed {
    /// It did not, and will not.
    No = 0,
    /// It did.
    Yes = 1,
    /// Nobody knows.
    Unknown = 2,
}

/// Why something was not done. It belongs to who got it, and does not change.
#[derive(Debug)]
pub struct Error {
    pub(crate) code: Code,
    pub(crate) message: CString,
    pub(crate) executed: Executed,
    pub(crate) handler_code: u32,
    pub(crate) is_retryable: bool,
}

/// Words as C has them: a NUL inside, which only a peer can have put there, becomes a space.
pub(crate) fn text(words: impl Into<String>) -> CString {
    CString::new(words.into().replace('\0', " ")).unwrap_or_default()
}

impl Error {
    /// An error of what was asked for: nothing was executed.
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
            format!("the argument `{name}` is NULL: it must point to something"),
        )
    }

    /// A panic on our side of the boundary.
    #[cold]
    pub(crate) fn defect(panic: Box<dyn Any + Send>) -> Self {
        let words = match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
            (Some(words), _) => (*words).to_owned(),
            (_, Some(words)) => words.clone(),
            _ => "without words".to_owned(),
        };
        // Nobody knows what dropping somebody's payload does.
        std::mem::forget(panic);
        Self {
            executed: Executed::Unknown,
            ..Self::new(
                Code::Defect,
                format!("Dunlin panicked, which is a defect: {words}"),
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
