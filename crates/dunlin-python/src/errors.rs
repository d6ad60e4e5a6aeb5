//! Errors as seen from Python: classes of `dunlin._errors`, by name, with the data that a caller needs to react.

use dunlin::{CallError, ConnectError, Execution, ServeError};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// `dunlin._errors.make(name, message, execution, is_retryable, code)`.
#[cold]
fn make(
    py: Python<'_>,
    name: &str,
    message: &str,
    (execution, is_retryable): (Execution, bool),
    code: u32,
) -> PyErr {
    static MAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let execution = match execution {
        Execution::NotExecuted => "not_executed",
        Execution::Executed => "executed",
        Execution::Unknown => "unknown",
    };
    let made = MAKE
        .import(py, "dunlin._errors", "make")
        .and_then(|make| make.call1((name, message, execution, is_retryable, code)));
    match made {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}

/// Converts an error of a call.
#[cold]
pub(crate) fn call(py: Python<'_>, error: &CallError) -> PyErr {
    let name = match error {
        CallError::DeadlineExceeded { .. } => "DeadlineExceeded",
        CallError::Expired { .. } => "Expired",
        CallError::ConnectionLost { .. } => "ConnectionLost",
        CallError::PacketLost { .. } | CallError::PacketLossFatal => "PacketLost",
        CallError::OneSidedUnsupported => "Unsupported",
        CallError::Connect(_) => "NotConnected",
        CallError::OwnServer => "OwnServer",
        CallError::UnknownHandler(_) => "UnknownHandler",
        CallError::TooLong { .. } => "TooLong",
        CallError::TooManyOutstanding { .. } => "TooManyOutstanding",
        CallError::NoMemory { .. } => "NoMemory",
        CallError::Overloaded(_) => "Overloaded",
        CallError::ShuttingDown => "ShuttingDown",
        CallError::Handler { .. } => "HandlerError",
        CallError::HandlerPanicked => "HandlerPanicked",
        CallError::UnknownRegion { .. } => "UnknownRegion",
        CallError::RegionBounds { .. }
        | CallError::RegionRight { .. }
        | CallError::RegionAlignment { .. } => "RegionError",
        CallError::Closed => "Closed",
        CallError::Forked => "Forked",
        CallError::Unreadable(_) => "Unreadable",
        _ => "CallError",
    };
    let known = (error.execution(), error.is_retryable());
    match error {
        CallError::Handler { code, message } => make(py, name, message, known, *code),
        _ => make(py, name, &error.to_string(), known, 0),
    }
}

/// Converts an error of making a connection.
#[cold]
pub(crate) fn connect(py: Python<'_>, error: &ConnectError) -> PyErr {
    let name = match error {
        ConnectError::Address(_) | ConnectError::Setting(_) => {
            return PyValueError::new_err(error.to_string())
        }
        ConnectError::NoDevice { .. } => "NoDevice",
        ConnectError::OwnServer => "OwnServer",
        ConnectError::Forked => "Forked",
        _ => "ConnectError",
    };
    let known = (Execution::NotExecuted, false);
    make(py, name, &error.to_string(), known, 0)
}

/// Converts an error of starting a server.
#[cold]
pub(crate) fn serve(py: Python<'_>, error: &ServeError) -> PyErr {
    let name = match error {
        ServeError::Address(_)
        | ServeError::Setting(_)
        | ServeError::ReservedHandler(_)
        | ServeError::DuplicateHandler(_) => return PyValueError::new_err(error.to_string()),
        ServeError::NoDevice { .. } => "NoDevice",
        _ => "ServeError",
    };
    let known = (Execution::NotExecuted, false);
    make(py, name, &error.to_string(), known, 0)
}

/// The error for an answer that has arrived but does not fit into the caller's buffer.
#[cold]
pub(crate) fn does_not_fit(py: Python<'_>, bytes: usize, room: usize) -> PyErr {
    let message =
        format!("the answer has {bytes} bytes, but `into` has room for only {room}: the server executed the call");
    make(py, "TooLong", &message, (Execution::Executed, false), 0)
}

/// The error for memory of a server that was started by another process.
#[cold]
pub(crate) fn forked_server(py: Python<'_>) -> PyErr {
    let message =
        "this process was forked after the server was started, and the regions belong to the parent";
    let known = (Execution::NotExecuted, false);
    make(py, "Forked", message, known, 0)
}
