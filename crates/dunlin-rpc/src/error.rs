//! What can go wrong with a call, a connection or a server, each with what the caller needs to act.

mod wire;

use std::sync::Arc;
use std::time::Duration;

use dunlin_bootstrap::{AddressError, BootstrapError, Refusal};
use dunlin_verbs::process::Forked;
use dunlin_verbs::VerbsError;

use crate::channel::ChannelError;
use crate::HandlerId;
pub(crate) use wire::{FailureReason, WireFailure};

/// A call did not bring an answer.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// No answer within the deadline. The server may have executed the call.
    #[error("no answer within {after:?}; the server may have executed the call")]
    DeadlineExceeded {
        /// The deadline.
        after: Duration,
    },
    /// The server took the call after its deadline, and did not run its handler; or it has dropped a handler that was
    /// under way when the deadline came. Most callers have given up before they hear of it.
    #[error("its deadline had passed at the server: {}", begun_or_not(*begun))]
    Expired {
        /// Whether the handler was begun.
        begun: bool,
    },
    /// The connection failed while the call was out. The server may have executed the call.
    #[error("connection lost: {why}; the server may have executed the call")]
    ConnectionLost {
        /// What the device or the protocol reported.
        why: String,
    },
    /// A packet of the call was lost on the way (presets over datagrams). The connection goes on.
    #[error("a packet was lost: {}", fate_of(*executed))]
    PacketLost {
        /// Whether the server executed the call: then its response was lost. If not, it will not execute it any more.
        executed: bool,
    },
    /// A packet was lost before, and that ends this client because [`crate::PacketLoss::EndClient`] is set. The call
    /// was not sent.
    #[error("a packet was lost before, which ends this client (packet_loss): make another")]
    PacketLossFatal,
    /// The preset has no one-sided operations and no regions: datagrams (UD) carry SEND only. The operation was not
    /// sent.
    #[error(
        "this preset has no one-sided operations, datagrams (UD) carry SEND only: use a preset over RC, such as plain \
         or flock, or with auto and several servers say ClientBuilder::one_sided"
    )]
    OneSidedUnsupported,
    /// There is no connection and none could be made. The call was not sent.
    #[error("not connected: {0}")]
    Connect(#[source] Arc<ConnectError>),
    /// A handler that runs on a polling thread called the server that it is a handler of: it would have waited for
    /// itself. The call was not sent, unless it was made by a [`crate::Pipeline`] from elsewhere.
    #[error("{OWN_SERVER}")]
    OwnServer,
    /// The server has no such handler.
    #[error("the server has no handler {0}")]
    UnknownHandler(HandlerId),
    /// The request or its response is longer than one side takes. A request was not sent; a response was made by the
    /// handler and thrown away.
    #[error("{}: the limit is {limit} bytes (max_message_bytes)", too_long(*bytes))]
    TooLong {
        /// Bytes of the message; zero when only the server knows.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// More calls of a client's futures than may be out or wait; all other calls wait for their turn. The call was not
    /// sent.
    #[error("{limit} futures of this client are out or wait (max_outstanding): await some, or Client::ready first")]
    TooManyOutstanding {
        /// The limit.
        limit: usize,
    },
    /// The client or its device has no memory for one long message: a request or an operation that was not sent, or a
    /// response. The connection and its other calls go on.
    #[error("no memory for a message: {why}; {}", executed_or_not(*executed))]
    NoMemory {
        /// How much there was none for, or what the device said.
        why: String,
        /// Whether the server executed the call: then it is its response that there was no memory for.
        executed: bool,
    },
    /// The thread that drives the client's futures could not be started. The call was not sent.
    #[error("no thread for the client's futures: {why}; the call was not sent")]
    NoThread {
        /// What the system said.
        why: String,
    },
    /// The server has reached a limit: it did not execute the call, or could not keep its long response.
    #[error("the server is overloaded: {0}")]
    Overloaded(String),
    /// The server is shutting down and did not execute the call.
    #[error("the server is shutting down and did not execute the call")]
    ShuttingDown,
    /// The handler refused or failed.
    #[error("handler error {code}: {message}")]
    Handler {
        /// The handler's own code.
        code: u32,
        /// The handler's own words.
        message: String,
    },
    /// The handler panicked.
    #[error("the handler panicked")]
    HandlerPanicked,
    /// The server's rights do not let this client do that ([`crate::Rights`]): it was not executed, or the region not
    /// granted.
    #[error("refused: {why}")]
    Forbidden {
        /// Who has no right to what, in the server's words.
        why: String,
    },
    /// The server has no region of this name on the device of this connection.
    #[error("the server has no region '{name}' on this device ({why})")]
    UnknownRegion {
        /// The name that was asked for.
        name: String,
        /// What the server said.
        why: String,
    },
    /// A one-sided operation would leave its region. It was not sent.
    #[error("{bytes} bytes at {offset} leave the region '{region}' of {length} bytes")]
    RegionBounds {
        /// The region.
        region: String,
        /// First byte.
        offset: u64,
        /// Bytes.
        bytes: usize,
        /// Bytes of the region.
        length: u64,
    },
    /// The server did not grant this. It was not sent.
    #[error("the region '{region}' was not granted for {right}")]
    RegionRight {
        /// The region.
        region: String,
        /// What it was not granted for: `reading`, `writing` or `atomics`.
        right: &'static str,
    },
    /// An atomic operation on 8 bytes that do not stand on a multiple of 8. It was not sent.
    #[error("an atomic at {offset} of the region '{region}': it must be a multiple of 8")]
    RegionAlignment {
        /// The region.
        region: String,
        /// First byte.
        offset: u64,
    },
    /// A transfer was to go by a second connection to memory that is not what it transfers. Nothing was sent.
    #[error("'{other}' of {other_bytes} bytes is not '{region}' of {bytes}: attach that one over another device")]
    OtherRegion {
        /// What is transferred.
        region: String,
        /// Its bytes.
        bytes: u64,
        /// What was given as the same.
        other: String,
        /// Its bytes.
        other_bytes: u64,
    },
    /// An operation of a transfer that has failed may still use the memory of a [`crate::TransferBuffer`]. Nothing was
    /// sent.
    #[error("an operation on the buffer has not ended; it ends with the connection of its client")]
    BufferInUse,
    /// The client was closed.
    #[error("the client is closed")]
    Closed,
    /// This process was made by `fork()` after the client was: its connections are the parent's, who goes on with them.
    /// Nothing was sent.
    #[error("this process was forked after the client was made, and its connections are the parent's: connect anew in the child")]
    Forked,
    /// The answer is not what this version of the client reads.
    #[error("the answer cannot be read: {0}")]
    Unreadable(String),
}

/// Whether the server executed a call that has ended with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Execution {
    /// It did not, and will not.
    NotExecuted,
    /// Nobody knows.
    Unknown,
    /// It did: the answer is lost, refused, or an error.
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

    /// Whether the same call may well succeed when it is made again, and does no harm: it was not executed, and what
    /// stood against it passes. A call that may be executed twice can be made again after any error whose
    /// [`CallError::execution`] is not [`Execution::Executed`].
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
        _ => format!("message of {bytes} bytes"),
    }
}

fn begun_or_not(begun: bool) -> &'static str {
    match begun {
        true => "the handler was stopped under way",
        false => "the server did not execute the call",
    }
}

fn executed_or_not(executed: bool) -> &'static str {
    match executed {
        true => "the server executed the call",
        false => "it was not sent",
    }
}

fn fate_of(executed: bool) -> &'static str {
    match executed {
        true => "the response; the server executed the call",
        false => "the request, or its refusal; the server did not execute the call and will not",
    }
}

/// Why a handler cannot call its own server.
const OWN_SERVER: &str =
    "a handler that runs on a polling thread called its own server: register it with handle_on_workers";

/// A connection could not be made.
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
        /// Its name.
        device: String,
        /// What it said.
        #[source]
        source: VerbsError,
    },
    /// There is no such device on this machine.
    #[error("no usable device '{asked}' here; of this host: {available}")]
    NoDevice {
        /// What was asked for.
        asked: String,
        /// What there is, with commas.
        available: String,
    },
    /// A handler that runs on a polling thread wanted a connection to the server that it is a handler of.
    #[error("{OWN_SERVER}")]
    OwnServer,
    /// The client that was to be called does not want it any more, or its connection has ended. When it connects anew
    /// it is another [`crate::CallableClient`].
    #[error("the client that was to be called has gone: it is another callable client when it comes again")]
    CallerGone,
    /// The client that was to be called is there, and has not said in time where.
    #[error("the client that was to be called did not open a connection within {after:?}")]
    CallerSilent {
        /// How long it had.
        after: Duration,
    },
    /// The server that was given does not want the client.
    #[error("refused: {0}")]
    Refused(Refusal),
    /// As for [`CallError::Forked`].
    #[error("this process was forked after the client was made, and its connections are the parent's: connect anew in the child")]
    Forked,
    /// A setting is out of its range.
    #[error("setting: {0}")]
    Setting(String),
    /// A thread of the client could not be started.
    #[error("thread: {0}")]
    Thread(#[source] std::io::Error),
    /// Other threads of the client were making the connection when the caller's time was up.
    #[error("other threads of the client are still making the connection")]
    TimedOut,
    /// What another thread of the client found, which tried at the same time.
    #[error(transparent)]
    Shared(Arc<ConnectError>),
}

impl ConnectError {
    /// Whether it is [`ConnectError::CallerGone`], which nothing mends.
    pub fn is_caller_gone(&self) -> bool {
        match self {
            Self::CallerGone => true,
            Self::Shared(error) => error.is_caller_gone(),
            _ => false,
        }
    }
}

/// A server could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The address is malformed.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The port could not be listened on.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    /// There is no device to serve on.
    #[error("no usable device '{asked}' here; of this host: {available}")]
    NoDevice {
        /// What was asked for.
        asked: String,
        /// What there is, with commas.
        available: String,
    },
    /// The device failed.
    #[error("device: {0}")]
    Device(#[from] VerbsError),
    /// A setting is out of its range.
    #[error("setting: {0}")]
    Setting(String),
    /// The id belongs to the server itself.
    #[error("handler {0} is the server's own (live figures, reports of one-sided operations, the common clock, calls with a deadline, callbacks, notifications): choose another id")]
    ReservedHandler(HandlerId),
    /// The server that was to call its client does not: it has not been told to
    /// ([`crate::ServerBuilder::callable_clients`]), the client has no right to that or it cannot be reached.
    #[error("the server does not call this client: {}", not_called(.0))]
    Callbacks(#[source] CallError),
    /// Two handlers of one id.
    #[error("handler {0} is registered twice")]
    DuplicateHandler(HandlerId),
    /// A thread could not be started.
    #[error("thread: {0}")]
    Thread(#[from] std::io::Error),
}

fn not_called(error: &CallError) -> String {
    match error {
        CallError::UnknownHandler(_) => {
            "it calls no clients (ServerBuilder::callable_clients), or is of a release that cannot"
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

/// What a call hears when there is no connection for it.
impl From<ConnectError> for CallError {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::OwnServer => CallError::OwnServer,
            other => CallError::Connect(Arc::new(other)),
        }
    }
}

impl CallError {
    /// There is no memory for a response, which the server has made.
    #[cold]
    pub(crate) fn no_memory_for_response(error: &ChannelError) -> Self {
        Self::NoMemory {
            why: error.to_string(),
            executed: true,
        }
    }
}

/// What a call hears of the end of its channel.
impl From<&ChannelError> for CallError {
    fn from(error: &ChannelError) -> Self {
        let why = error.to_string();
        match error.is_memory() {
            // Memory for what is sent is taken before it is.
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
