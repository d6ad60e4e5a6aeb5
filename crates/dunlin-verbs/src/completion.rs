//! Completion queues: what became of the work.

use std::os::fd::AsFd;
use std::time::Duration;

use crate::error::{CompletionQueueError, VerbsError};

/// The end of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionStatus {
    /// Done.
    Success,
    /// The local buffers do not fit the message: too long for the RECEIVE, or longer than the device's limit.
    LocalLength,
    /// The request itself was malformed for this queue pair.
    LocalQueuePairOperation,
    /// A local segment is outside its region, or the region has ended or may not be written.
    LocalProtection,
    /// Not carried out, because the queue pair is in error.
    Flushed,
    /// The peer refused: the message does not fit its RECEIVE, or it does not allow the verb.
    RemoteInvalidRequest,
    /// The peer's key is unknown or revoked, or the range or the access exceeds what it grants.
    RemoteAccess,
    /// The peer could not carry out an operation that was valid.
    RemoteOperation,
    /// The peer did not answer: it is gone, or its queue pair is.
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
            Self::Flushed => "flushed: the queue pair is in error",
            Self::RemoteInvalidRequest => "remote invalid request",
            Self::RemoteAccess => "remote access error",
            Self::RemoteOperation => "remote operation error",
            Self::RetryExceeded => "retry count exceeded: the peer does not answer",
            Self::ReceiverNotReadyRetryExceeded => "receiver not ready: retry count exceeded",
            Self::General => "general error",
        })
    }
}

/// What completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionOpcode {
    /// A SEND of ours.
    Send,
    /// A WRITE of ours.
    Write,
    /// A READ of ours.
    Read,
    /// A compare-and-swap of ours.
    CompareAndSwap,
    /// A fetch-and-add of ours.
    FetchAndAdd,
    /// A peer's SEND in a RECEIVE of ours.
    Receive,
    /// A peer's WRITE with immediate data, which consumed a RECEIVE of ours.
    ReceiveWriteWithImmediate,
}

/// One entry of a completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The request's own id.
    pub id: u64,
    /// How it ended. After a failure only `id`, `status` and `queue_pair` mean something.
    pub status: CompletionStatus,
    /// What it was.
    pub opcode: CompletionOpcode,
    /// Bytes received (with the routing header on UD) or read.
    pub bytes: usize,
    /// Immediate data of the peer.
    pub immediate: Option<u32>,
    /// Our queue pair.
    pub queue_pair: u32,
    /// The sender's queue pair, on UD.
    pub source_queue_pair: Option<u32>,
    /// Nanoseconds by the device's clock, where it has one.
    pub timestamp_ns: Option<u64>,
}

impl Completion {
    /// A blank to fill arrays that [`CompletionQueue::poll`] writes.
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

    /// Whether it ended well.
    pub fn is_success(&self) -> bool {
        self.status == CompletionStatus::Success
    }
}

/// Which completions raise an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notify {
    /// The next one of any kind.
    Next,
    /// The next that the peer marked solicited, and every failure.
    Solicited,
}

/// Where completions gather. One owner polls it; it may move between threads but is not shared.
pub trait CompletionQueue: Send + std::fmt::Debug + 'static {
    /// Takes up to `completions.len()` entries and says how many; allocates nothing and never blocks.
    ///
    /// # Errors
    /// [`CompletionQueueError::Overrun`] when more completions came than the queue holds; its queue pairs are in error
    /// then.
    fn poll(&mut self, completions: &mut [Completion]) -> Result<usize, CompletionQueueError>;

    /// Asks for one event on the queue's channel. Poll once more after the call: what came before it raises no event.
    ///
    /// # Errors
    /// When the queue was made without a channel.
    fn request_notify(&mut self, notify: Notify) -> Result<(), VerbsError>;
}

/// Where a thread sleeps until a completion comes. The descriptor becomes readable with the event, for event loops.
pub trait CompletionChannel: Clone + Send + Sync + AsFd + std::fmt::Debug + 'static {
    /// Sleeps until an event or for `timeout`; `true` when there was an event, which is consumed. May also return
    /// `true` without one.
    ///
    /// # Errors
    /// When the system call fails.
    fn wait(&self, timeout: Duration) -> Result<bool, VerbsError>;

    /// Raises an event by hand, so that another thread of this process returns from [`CompletionChannel::wait`].
    fn wake(&self);
}
