//! Errors of calls, connections and servers, each with what the caller needs to react.

mod wire;

use std::sync::Arc;
use std::time::Duration;

use dunlin_bootstrap::{AddressError, BootstrapError, Refusal};
use dunlin_verbs::process::Forked;
use dunlin_verbs::VerbsError;

use crate::channel::ChannelError;
use crate::HandlerId;
pub(crate) use wire::{FailureReason, WireFailure};

/// The reason why a call has no response.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// No response arrived within the deadline. The server may have executed the call.
    #[error(
        "deadline exceeded: no response within {after:?}; the server may have executed the call"
    )]
    DeadlineExceeded {
        /// The deadline.
        after: Duration,
    },
    /// The server received the call after its deadline and did not run its handler, or dropped a handler that was
    /// running when the deadline passed. Most callers have given up before they receive this.
    #[error("the deadline had expired at the server: {}", begun_or_not(*begun))]
    Expired {
        /// Whether the handler had started.
        begun: bool,
    },
    /// The connection failed while the call was outstanding. The server may have executed the call.
    #[error("connection lost: {why}; the server may have executed the call")]
    ConnectionLost {
        /// What the device or the protocol reported.
        why: String,
    },
    /// A packet of the call was lost in the network (presets over datagrams). The connection continues.
    #[error("packet loss: {}", fate_of(*executed))]
    PacketLost {
        /// Whether the server executed the call, so that the response was lost. If not, the server will not execute it
        /// later.
        executed: bool,
    },
    /// A packet was lost earlier, which ends this client because [`crate::PacketLoss::EndClient`] is set. The call was
    /// not sent.
    #[error("an earlier packet loss ended this client (packet_loss): create a new client")]
    PacketLossFatal,
    /// The preset supports neither one-sided operations nor regions: datagrams (UD) carry SEND only. The operation was
    /// not sent.
    #[error(
        "this preset does not support one-sided operations, because datagrams (UD) carry only SEND: use a preset over \
         RC, such as plain or flock; with `auto` and several servers, set ClientBuilder::one_sided"
    )]
    OneSidedUnsupported,
    /// There is no connection and none could be made. The call was not sent.
    #[error("not connected: {0}")]
    Connect(#[source] Arc<ConnectError>),
    /// A handler running on a polling thread called its own server: it would have waited for itself. The call was not
    /// sent, unless it was made by a [`crate::Pipeline`] from elsewhere.
    #[error("{OWN_SERVER}")]
    OwnServer,
    /// The server has no handler with this id.
    #[error("the server has no handler {0}")]
    UnknownHandler(HandlerId),
    /// The request or its response exceeds the limit of one side. A request was not sent; a response was made by the
    /// handler and discarded.
    #[error("{}: the limit is {limit} bytes (max_message_bytes)", too_long(*bytes))]
    TooLong {
        /// Length of the message in bytes; zero when only the server knows it.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The client's futures have reached the limit of calls that may be outstanding or queued; calls of other kinds
    /// wait for their turn. The call was not sent.
    #[error(
        "too many calls: {limit} futures of this client are outstanding or queued, the limit (max_outstanding); await \
         some of them, or await Client::ready first"
    )]
    TooManyOutstanding {
        /// The limit.
        limit: usize,
    },
    /// The client or its device has no memory for one long message: a request or an operation that was not sent, or a
    /// response. The connection and its other calls continue.
    #[error("out of memory for a message: {why}; {}", executed_or_not(*executed))]
    NoMemory {
        /// The size that could not be allocated, or what the device reported.
        why: String,
        /// Whether the server executed the call, so that the memory was missing for its response.
        executed: bool,
    },
    /// The thread that drives the client's futures could not be started. The call was not sent.
    #[error(
        "cannot start the thread that drives the client's futures: {why}; the call was not sent"
    )]
    NoThread {
        /// What the system reported.
        why: String,
    },
    /// The server has reached a limit: it did not execute the call, or could not keep its long response.
    #[error("the server is overloaded: {0}")]
    Overloaded(String),
    /// The server is shutting down and did not execute the call.
    #[error("the server is shutting down and did not execute the call")]
    ShuttingDown,
    /// The handler returned an error.
    #[error("handler error {code}: {message}")]
    Handler {
        /// The handler's own error code.
        code: u32,
        /// The handler's own message.
        message: String,
    },
    /// The handler panicked.
    #[error("the handler panicked")]
    HandlerPanicked,
    /// The server's rights forbid this client the request ([`crate::Rights`]): it was not executed, or the region not
    /// granted.
    #[error("refused: {why}")]
    Forbidden {
        /// Which client has no right to what, as stated by the server.
        why: String,
    },
    /// The server has no region of this name on the device of this connection.
    #[error("the server has no region '{name}' on this device ({why})")]
    UnknownRegion {
        /// The requested name.
        name: String,
        /// What the server reported.
        why: String,
    },
    /// A one-sided operation would leave its region. It was not sent.
    #[error("{bytes} bytes at offset {offset} exceed the region '{region}' of {length} bytes")]
    RegionBounds {
        /// The region.
        region: String,
        /// Offset of the first byte.
        offset: u64,
        /// Number of bytes.
        bytes: usize,
        /// Length of the region in bytes.
        length: u64,
    },
    /// The server did not grant this access. The operation was not sent.
    #[error("the server did not grant {right} for the region '{region}'")]
    RegionRight {
        /// The region.
        region: String,
        /// The access that was not granted: `reading`, `writing` or `atomics`.
        right: &'static str,
    },
    /// An atomic operation on 8 bytes that are not aligned to 8. It was not sent.
    #[error("misaligned atomic at offset {offset} of the region '{region}': the offset must be a multiple of 8")]
    RegionAlignment {
        /// The region.
        region: String,
        /// Offset of the first byte.
        offset: u64,
    },
    /// A transfer was to use a second connection to memory that is not the region being transferred. Nothing was sent.
    #[error(
        "the region '{other}' ({other_bytes} bytes) is not '{region}' ({bytes} bytes), which is being transferred: \
         attach that region over another device"
    )]
    OtherRegion {
        /// The region being transferred.
        region: String,
        /// Its length in bytes.
        bytes: u64,
        /// The region given as the same memory.
        other: String,
        /// Its length in bytes.
        other_bytes: u64,
    },
    /// An operation of a transfer that has failed may still use the memory of a [`crate::TransferBuffer`]. Nothing was
    /// sent.
    #[error(
        "the buffer is still in use by an operation that has not completed; the operation ends with the connection of \
         its client"
    )]
    BufferInUse,
    /// The client was closed.
    #[error("the client is closed")]
    Closed,
    /// This process was created by `fork()` after the client was made: the connections belong to the parent, which
    /// continues to use them. Nothing was sent.
    #[error(
        "this process was forked after the client was created, and the connections belong to the parent: connect again \
         in the child"
    )]
    Forked,
    /// This version of the client cannot decode the answer.
    #[error("the answer cannot be read: {0}")]
    Unreadable(String),
}

/// Whether the server executed a call that ended with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Execution {
    /// It did not and will not execute it.
    NotExecuted,
    /// It may or may not have executed it.
    Unknown,
    /// It executed it: the response was lost or refused, or is an error.
    Executed,
}

impl CallError {
    /// Whether the server executed the call.
    pub fn execution(&self) -> Execution {
        match self {
            Self::PacketLost { executed: true }
            | Self::NoMemory { executed: true, .. }
            | Self::TooLong { bytes: 0, .. }
            | Self::Handler { .. }
            | Self::HandlerPanicked
            | Self::Unreadable(_) => Execution::Executed,
            Self::DeadlineExceeded { .. }
            | Self::Expired { begun: true }
            | Self::ConnectionLost { .. }
            | Self::OwnServer
            | Self::Overloaded(_)
            | Self::Closed => Execution::Unknown,
            Self::PacketLost { executed: false }
            | Self::Expired { begun: false }
            | Self::PacketLossFatal
            | Self::OneSidedUnsupported
            | Self::Connect(_)
            | Self::UnknownHandler(_)
            | Self::TooLong { .. }
            | Self::TooManyOutstanding { .. }
            | Self::NoMemory { .. }
            | Self::NoThread { .. }
            | Self::ShuttingDown
            | Self::Forbidden { .. }
            | Self::UnknownRegion { .. }
            | Self::RegionBounds { .. }
            | Self::RegionRight { .. }
            | Self::RegionAlignment { .. }
            | Self::OtherRegion { .. }
            | Self::BufferInUse
            | Self::Forked => Execution::NotExecuted,
        }
    }

    /// Whether the same call may be made again without harm and may then succeed: it was not executed, and the cause is
    /// temporary. A call that may be executed twice can be made again after any error whose [`CallError::execution`] is
    /// not [`Execution::Executed`].
    pub fn is_retryable(&self) -> bool {
        if let Self::Connect(error) = self {
            return !error.is_caller_gone();
        }
        matches!(
            self,
            Self::PacketLost { executed: false }
                | Self::Expired { begun: false }
                | Self::TooManyOutstanding { .. }
                | Self::NoMemory {
                    executed: false,
                    ..
                }
                | Self::NoThread { .. }
                | Self::ShuttingDown
        )
    }
}

fn too_long(bytes: usize) -> String {
    match bytes {
        0 => "the response is too long".to_owned(),
        _ => format!("a message of {bytes} bytes is too long"),
    }
}

fn begun_or_not(begun: bool) -> &'static str {
    match begun {
        true => "the handler was stopped before it finished",
        false => "the server did not execute the call",
    }
}

fn executed_or_not(executed: bool) -> &'static str {
    match executed {
        true => "the server executed the call",
        false => "the message was not sent",
    }
}

fn fate_of(executed: bool) -> &'static str {
    match executed {
        true => "the response was lost; the server executed the call",
        false => "the request or the server's refusal was lost; the server did not execute the call and will not",
    }
}

/// Why a handler cannot call its own server.
const OWN_SERVER: &str =
    "a handler running on a polling thread called its own server: register it with handle_on_workers";

/// The reason why a connection could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The address is malformed.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The handshake failed.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    /// The device failed.
    #[error("device {device}: {source}")]
    Device {
        /// The device's name.
        device: String,
        /// The error that it reported.
        #[source]
        source: VerbsError,
    },
    /// There is no such device on this machine.
    #[error("no usable device '{asked}' on this host, which has: {available}")]
    NoDevice {
        /// The requested device.
        asked: String,
        /// The available devices, separated by commas.
        available: String,
    },
    /// A handler running on a polling thread tried to connect to its own server.
    #[error("{OWN_SERVER}")]
    OwnServer,
    /// The client to be called has withdrawn, or its connection has ended. When it connects again it is another
    /// [`crate::CallableClient`].
    #[error(
        "the client to be called has disconnected; when it reconnects, it is a new callable client"
    )]
    CallerGone,
    /// The client to be called is connected, but did not say in time where it can be reached.
    #[error("timed out: the client to be called did not open a connection within {after:?}")]
    CallerSilent {
        /// The time that it had.
        after: Duration,
    },
    /// The server refused the client.
    #[error("refused: {0}")]
    Refused(Refusal),
    /// See [`CallError::Forked`].
    #[error(
        "this process was forked after the client was created, and the connections belong to the parent: connect again \
         in the child"
    )]
    Forked,
    /// A setting is out of range.
    #[error("setting: {0}")]
    Setting(String),
    /// A thread of the client could not be started.
    #[error("thread: {0}")]
    Thread(#[source] std::io::Error),
    /// Other threads of the client were making the connection when the caller's deadline passed.
    #[error("timed out while other threads of the client were still connecting")]
    TimedOut,
    /// The error of another thread of the client that tried at the same time.
    #[error(transparent)]
    Shared(Arc<ConnectError>),
}

impl ConnectError {
    /// Whether this is [`ConnectError::CallerGone`], which is permanent.
    pub fn is_caller_gone(&self) -> bool {
        match self {
            Self::CallerGone => true,
            Self::Shared(error) => error.is_caller_gone(),
            _ => false,
        }
    }
}

/// The reason why a server could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The address is malformed.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// Listening on the port failed.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    /// There is no such device to serve on.
    #[error("no usable device '{asked}' on this host, which has: {available}")]
    NoDevice {
        /// The requested device.
        asked: String,
        /// The available devices, separated by commas.
        available: String,
    },
    /// The device failed.
    #[error("device: {0}")]
    Device(#[from] VerbsError),
    /// A setting is out of range.
    #[error("setting: {0}")]
    Setting(String),
    /// The id is reserved for the server itself.
    #[error(
        "handler id {0} is reserved for the server itself (live figures, reports of one-sided operations, the common \
         clock, calls with a deadline, callbacks, notifications): choose another id"
    )]
    ReservedHandler(HandlerId),
    /// The server cannot call its client: it was not configured to ([`crate::ServerBuilder::callable_clients`]), the
    /// client has no right to it, or the server cannot be reached.
    #[error("the server will not call this client: {}", not_called(.0))]
    Callbacks(#[source] CallError),
    /// Two handlers have the same id.
    #[error("handler {0} is registered twice")]
    DuplicateHandler(HandlerId),
    /// A thread could not be started.
    #[error("thread: {0}")]
    Thread(#[from] std::io::Error),
}

fn not_called(error: &CallError) -> String {
    match error {
        CallError::UnknownHandler(_) => {
            "it does not call clients (ServerBuilder::callable_clients), or its release does not support that"
                .to_owned()
        }
        error => error.to_string(),
    }
}

impl From<Forked> for CallError {
    fn from(Forked: Forked) -> Self {
        Self::Forked
    }
}

impl From<Forked> for ConnectError {
    fn from(Forked: Forked) -> Self {
        Self::Forked
    }
}

/// The error of a call for which there is no connection.
impl From<ConnectError> for CallError {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::OwnServer => CallError::OwnServer,
            other => CallError::Connect(Arc::new(other)),
        }
    }
}

impl CallError {
    /// The error of a call whose response was made by the server, but for which there is no memory here.
    #[cold]
    pub(crate) fn no_memory_for_response(error: &ChannelError) -> Self {
        Self::NoMemory {
            why: error.to_string(),
            executed: true,
        }
    }
}

/// The error of a call whose channel has ended.
impl From<&ChannelError> for CallError {
    fn from(error: &ChannelError) -> Self {
        let why = error.to_string();
        match error.is_memory() {
            // Memory for what is sent is allocated before sending.
            true => CallError::NoMemory {
                why,
                executed: false,
            },
            false => CallError::ConnectionLost { why },
        }
    }
}

impl From<ChannelError> for CallError {
    fn from(error: ChannelError) -> Self {
        Self::from(&error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn failures_round_trip_and_any_bytes_are_read(
            reason in 1u8..=8, number: u32, message in ".{0,300}", noise in prop::collection::vec(any::<u8>(), 0..64)
        ) {
            let mut bytes = vec![reason];
            bytes.extend_from_slice(&number.to_le_bytes());
            bytes.extend_from_slice(message.as_bytes());
            let failure = WireFailure::decode(&bytes).unwrap();
            prop_assert_eq!(failure.encode(), &bytes[..bytes.len().min(failure.encode().len())]);
            let _ = WireFailure::decode(&noise);
        }
    }
}
