//! Completion queues and their entries.

use std::os::fd::AsFd;
use std::time::Duration;

use crate::error::{CompletionQueueError, VerbsError};

/// The outcome of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionStatus {
    /// Done.
    Success,
    /// The local buffers do not fit the message: too long for the RECEIVE, or longer than the device's limit.
    LocalLength,
    /// The request itself was malformed for this queue pair.
    LocalQueuePairOperation,
    /// A local segment is outside its region, or the region has ended or must not be written.
    LocalProtection,
    /// Not carried out, because the queue pair is in an error state.
    Flushed,
    /// The peer refused: the message does not fit its RECEIVE, or it does not allow the verb.
    RemoteInvalidRequest,
    /// The peer's key is unknown or revoked, or the range or the access exceeds what it grants.
    RemoteAccess,
    /// The peer could not execute an operation that was valid.
    RemoteOperation,
    /// The peer did not answer: it or its queue pair is gone.
    RetryExceeded,
    /// The peer had no RECEIVE posted for too long.
    ReceiverNotReadyRetryExceeded,
    /// Something else went wrong in the device.
    General,
}

impl std::fmt::Display for CompletionStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Success => "success",
            Self::LocalLength => "local length error",
            Self::LocalQueuePairOperation => "local queue pair operation error",
            Self::LocalProtection => "local protection error",
            Self::Flushed => "flushed: the queue pair is in the error state",
            Self::RemoteInvalidRequest => "remote invalid request",
            Self::RemoteAccess => "remote access error",
            Self::RemoteOperation => "remote operation error",
            Self::RetryExceeded => "retry count exceeded: the peer does not respond",
            Self::ReceiverNotReadyRetryExceeded => "receiver not ready (RNR) retry count exceeded",
            Self::General => "general error",
        })
    }
}

/// The kind of request that completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionOpcode {
    /// A SEND posted here.
    Send,
    /// A WRITE posted here.
    Write,
    /// A READ posted here.
    Read,
    /// A compare-and-swap posted here.
    CompareAndSwap,
    /// A fetch-and-add posted here.
    FetchAndAdd,
    /// A peer's SEND, in a RECEIVE posted here.
    Receive,
    /// A peer's WRITE with immediate data, which consumed a RECEIVE posted here.
    ReceiveWriteWithImmediate,
}

/// One entry of a completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The `id` of the request.
    pub id: u64,
    /// The outcome. After a failure only `id`, `status` and `queue_pair` are meaningful.
    pub status: CompletionStatus,
    /// The kind of request.
    pub opcode: CompletionOpcode,
    /// Bytes received (including the routing header on UD) or read.
    pub bytes: usize,
    /// The peer's immediate data.
    pub immediate: Option<u32>,
    /// The local queue pair.
    pub queue_pair: u32,
    /// The sender's queue pair, on UD.
    pub source_queue_pair: Option<u32>,
    /// Nanoseconds by the device's clock, if it has one.
    pub timestamp_ns: Option<u64>,
}

impl Completion {
    /// An empty entry, to initialize arrays for [`CompletionQueue::poll`].
    pub const EMPTY: Self = Self {
        id: 0,
        status: CompletionStatus::General,
        opcode: CompletionOpcode::Send,
        bytes: 0,
        immediate: None,
        queue_pair: 0,
        source_queue_pair: None,
        timestamp_ns: None,
    };

    /// Whether the request succeeded.
    pub fn is_success(&self) -> bool {
        self.status == CompletionStatus::Success
    }
}

/// Which completions raise an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notify {
    /// The next completion of any kind.
    Next,
    /// The next completion that the peer marked solicited, and every failure.
    Solicited,
}

/// A completion queue. It is polled by a single owner; it may move between threads but is not shared.
pub trait CompletionQueue: Send + std::fmt::Debug + 'static {
    /// Takes up to `completions.len()` entries and returns their number; allocates nothing and never blocks.
    ///
    /// # Errors
    /// [`CompletionQueueError::Overrun`] when more completions arrived than the queue holds; its queue pairs are then
    /// in the error state.
    fn poll(&mut self, completions: &mut [Completion]) -> Result<usize, CompletionQueueError>;

    /// Requests one event on the queue's channel. Poll once more after the call: completions that arrived before it
    /// raise no event.
    ///
    /// # Errors
    /// When the queue was created without a channel.
    fn request_notify(&mut self, notify: Notify) -> Result<(), VerbsError>;
}

/// A completion channel, on which a thread sleeps until a completion arrives. For event loops, the descriptor becomes
/// readable with the event.
pub trait CompletionChannel: Clone + Send + Sync + AsFd + std::fmt::Debug + 'static {
    /// Sleeps until an event, for at most `timeout`. Returns `true` if there was an event, which is consumed; may also
    /// return `true` spuriously.
    ///
    /// # Errors
    /// When the system call fails.
    fn wait(&self, timeout: Duration) -> Result<bool, VerbsError>;

    /// Raises an event by hand, so that another thread of this process returns from [`CompletionChannel::wait`].
    fn wake(&self);
}
