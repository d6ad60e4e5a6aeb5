//! Errors of the wall. Each says which limit, key, state or errno, so that the caller can act.

use crate::process::Forked;
use crate::queue_pair::Transport;
use crate::state::QueuePairState;

/// A control-path call failed: opening, creating, registering, connecting.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerbsError {
    /// A bounded resource is used up.
    #[error("{resource}: {asked} asked for, {available} of {limit} left")]
    Limit {
        /// Name of the limit, as in [`crate::DeviceAttributes`].
        resource: &'static str,
        /// How much was asked for.
        asked: usize,
        /// How much is left.
        available: usize,
        /// The bound.
        limit: usize,
    },
    /// The device cannot do this at all.
    #[error("{device} does not support {what}")]
    Unsupported {
        /// The device's name.
        device: String,
        /// The feature.
        what: String,
    },
    /// The state machine has no such transition.
    #[error("queue pair {queue_pair}: no transition from {from} to {to}")]
    Transition {
        /// The queue pair's number.
        queue_pair: u32,
        /// State it is in.
        from: QueuePairState,
        /// State asked for.
        to: QueuePairState,
    },
    /// The address is not one of this device, or makes no sense.
    #[error("bad address: {0}")]
    Address(String),
    /// An argument contradicts another or the device's attributes.
    #[error("invalid {argument}: {why}")]
    Invalid {
        /// Which argument.
        argument: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// The transport has no such verb.
    #[error("{0} does not carry this verb")]
    Transport(Transport),
    /// The peer did not answer in time or refused.
    #[error("peer: {0}")]
    Peer(String),
    /// A system call failed.
    #[error("{call}: {source}")]
    System {
        /// The call, and what it was for.
        call: &'static str,
        /// The errno.
        #[source]
        source: std::io::Error,
    },
    /// The device was opened by the parent of this process.
    #[error(transparent)]
    Forked(#[from] Forked),
}

/// Why a work request was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PostErrorKind {
    /// No free entry: poll completions first, or signal some requests so that entries are given back.
    #[error("the queue of {limit} entries is full")]
    Full {
        /// Entries of the queue.
        limit: usize,
    },
    /// The queue pair does not take requests of this kind in its state.
    #[error("the queue pair is in state {0}")]
    State(QueuePairState),
    /// More segments than the queue pair takes.
    #[error("{count} segments, {limit} allowed")]
    Segments {
        /// Segments of the request.
        count: usize,
        /// Most that are allowed.
        limit: usize,
    },
    /// More inline bytes than the queue pair takes.
    #[error("{bytes} inline bytes, {limit} allowed")]
    Inline {
        /// Bytes of the request.
        bytes: usize,
        /// Most that are allowed.
        limit: usize,
    },
    /// Longer than a message or datagram may be.
    #[error("{bytes} bytes, {limit} allowed in one message")]
    Length {
        /// Bytes of the request.
        bytes: usize,
        /// Most that are allowed.
        limit: usize,
    },
    /// A segment is outside its region, or the region lacks local write access.
    #[error("segment {0} is outside its region or may not be written")]
    Segment(usize),
    /// The transport does not carry the verb, or its payload or destination is not of the right kind.
    #[error("not a request for {0}")]
    Verb(Transport),
    /// The queue pair was made by the parent of this process.
    #[error(transparent)]
    Forked(#[from] Forked),
}

/// A list of work requests was taken only in part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("work request {index} of the list: {kind}; those before it were posted")]
pub struct PostError {
    /// Index of the first request that was not taken.
    pub index: usize,
    /// Why.
    pub kind: PostErrorKind,
}

impl PostError {
    /// Nothing was posted, because the queue is the parent's of this process.
    #[cold]
    pub fn forked(forked: Forked) -> Self {
        Self {
            index: 0,
            kind: forked.into(),
        }
    }
}

/// A completion queue is not usable any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompletionQueueError {
    /// More completions than entries.
    #[error("completion queue overrun: more than {limit} completions were waiting")]
    Overrun {
        /// Entries of the queue.
        limit: usize,
    },
    /// The queue was made by the parent of this process.
    #[error(transparent)]
    Forked(#[from] Forked),
}

/// Whether `asked` fits a limit of a device's.
///
/// # Errors
/// [`VerbsError::Limit`] with this name when it does not.
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
