//! Errors of the verbs layer. Each names the limit, key, state or errno involved, so that the caller can act on it.

use crate::process::Forked;
use crate::queue_pair::Transport;
use crate::state::QueuePairState;

/// A control-path call failed: opening, creating, registering, connecting.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerbsError {
    /// A bounded resource is used up.
    #[error("{resource}: {asked} requested, but only {available} of {limit} available")]
    Limit {
        /// Name of the limit, as in [`crate::DeviceAttributes`].
        resource: &'static str,
        /// Amount requested.
        asked: usize,
        /// Amount left.
        available: usize,
        /// The limit.
        limit: usize,
    },
    /// The device does not support this.
    #[error("{device} does not support {what}")]
    Unsupported {
        /// The device's name.
        device: String,
        /// The unsupported feature.
        what: String,
    },
    /// The state machine does not allow this transition.
    #[error("queue pair {queue_pair}: invalid transition from {from} to {to}")]
    Transition {
        /// The queue pair's number.
        queue_pair: u32,
        /// The current state.
        from: QueuePairState,
        /// The requested state.
        to: QueuePairState,
    },
    /// The address does not belong to this kind of device, or is malformed.
    #[error("bad address: {0}")]
    Address(String),
    /// An argument contradicts another or the device's attributes.
    #[error("invalid {argument}: {why}")]
    Invalid {
        /// Name of the argument.
        argument: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// The transport does not support this verb.
    #[error("{0} does not support this verb")]
    Transport(Transport),
    /// The peer did not answer in time or refused.
    #[error("peer: {0}")]
    Peer(String),
    /// A system call failed.
    #[error("{call}: {source}")]
    System {
        /// The call and its purpose.
        call: &'static str,
        /// The errno.
        #[source]
        source: std::io::Error,
    },
    /// The device was opened by the parent of this process.
    #[error(transparent)]
    Forked(#[from] Forked),
}

/// The reason why a work request was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PostErrorKind {
    /// No free entry: poll completions first, or signal some requests so that entries are freed.
    #[error("queue full: all {limit} entries are in use")]
    Full {
        /// Entries of the queue.
        limit: usize,
    },
    /// The queue pair does not accept requests of this kind in its state.
    #[error("the queue pair is in state {0}")]
    State(QueuePairState),
    /// More segments than the queue pair accepts.
    #[error("too many segments: {count}, the limit is {limit}")]
    Segments {
        /// Segments of the request.
        count: usize,
        /// Maximum allowed.
        limit: usize,
    },
    /// More inline bytes than the queue pair accepts.
    #[error("too many inline bytes: {bytes}, the limit is {limit}")]
    Inline {
        /// Bytes of the request.
        bytes: usize,
        /// Maximum allowed.
        limit: usize,
    },
    /// Longer than a message or datagram may be.
    #[error("message too long: {bytes} bytes, the limit is {limit}")]
    Length {
        /// Bytes of the request.
        bytes: usize,
        /// Maximum allowed.
        limit: usize,
    },
    /// A segment is outside its region, or the region lacks local write access.
    #[error("segment {0} is outside its region, or its region lacks local write access")]
    Segment(usize),
    /// The transport does not support the verb, or its payload or destination is not of the right kind.
    #[error("not a valid request for {0}")]
    Verb(Transport),
    /// The queue pair was created by the parent of this process.
    #[error(transparent)]
    Forked(#[from] Forked),
}

/// A list of work requests was accepted only in part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot post work request {index} of the list: {kind}; the requests before it were posted")]
pub struct PostError {
    /// Index of the first request that was not accepted.
    pub index: usize,
    /// The reason.
    pub kind: PostErrorKind,
}

impl PostError {
    /// Nothing was posted, because the queue belongs to the parent of this process.
    #[cold]
    pub fn forked(forked: Forked) -> Self {
        Self {
            index: 0,
            kind: forked.into(),
        }
    }
}

/// A completion queue cannot be used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompletionQueueError {
    /// More completions arrived than the queue has entries.
    #[error("completion queue overrun: more than {limit} completions were waiting")]
    Overrun {
        /// Entries of the queue.
        limit: usize,
    },
    /// The queue was created by the parent of this process.
    #[error(transparent)]
    Forked(#[from] Forked),
}

/// Checks that `asked` does not exceed a limit of a device.
///
/// # Errors
/// [`VerbsError::Limit`] with this name when it does.
pub fn within(resource: &'static str, asked: usize, limit: usize) -> Result<(), VerbsError> {
    if asked <= limit {
        return Ok(());
    }
    Err(VerbsError::Limit {
        resource,
        asked,
        available: limit,
        limit,
    })
}
