//! Errors of a ring: one type for creating it, one for sending, one for the connection.

use dunlin_verbs::process::Forked;
use dunlin_verbs::{CompletionStatus, PostErrorKind, VerbsError};

/// A ring cannot be created as requested.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The design's choices contradict each other.
    #[error("contradictory design: {what}")]
    Design {
        /// The contradiction.
        what: &'static str,
    },
    /// A size or count is out of range.
    #[error("{what} is {value}: it must be {range}")]
    Range {
        /// Name of the setting.
        what: &'static str,
        /// Its value.
        value: usize,
        /// The allowed range.
        range: &'static str,
    },
    /// The configurations of the two sides differ.
    #[error("configuration mismatch: {what} is {ours} here, but {theirs} at the peer")]
    Disagreement {
        /// Name of the setting.
        what: &'static str,
        /// The value here.
        ours: u64,
        /// The value at the peer.
        theirs: u64,
    },
    /// The device does not support this design.
    #[error("the device {device} does not support this ring: {what}")]
    Unsupported {
        /// The device's name.
        device: String,
        /// What it lacks, and a possible alternative.
        what: String,
    },
    /// The device reported an error.
    #[error(transparent)]
    Verbs(#[from] VerbsError),
}

/// A violation of the protocol by the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// A tail beyond the ring, or one that moved backwards.
    #[error("its tail moved by {by} units, but only {room} are free")]
    Tail {
        /// By how much it moved.
        by: u64,
        /// By how much it could move.
        room: u64,
    },
    /// A head beyond what was sent, or one that moved backwards.
    #[error("its head moved by {by} units, but only {sent} were sent")]
    Head {
        /// By how much it moved.
        by: u64,
        /// By how much it could move.
        sent: u64,
    },
    /// A message longer than agreed, or one that extends beyond the tail.
    #[error("message too long: {length} bytes, the limit here is {limit}")]
    Length {
        /// The length in its header.
        length: u64,
        /// The maximum.
        limit: u64,
    },
    /// An invalid header.
    #[error("invalid message header")]
    Header,
    /// A link to a slot that does not exist.
    #[error("link to slot {slot}, but there are {slots} slots")]
    Link {
        /// The slot that it names.
        slot: u64,
        /// Number of slots in the list.
        slots: u64,
    },
    /// An end of the ring at an impossible position.
    #[error("the end of the ring is behind the current position")]
    End,
    /// A WRITE with immediate data in a design that has none.
    #[error("a notification without immediate data")]
    Immediate,
}

/// The ring has ended other than by being closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RingError {
    /// The peer's process or queue pair is gone.
    #[error("the peer of the ring has disconnected")]
    PeerLost,
    /// A work request failed.
    #[error("a work request of the ring failed: {0}")]
    Request(CompletionStatus),
    /// The queue pair does not accept work requests.
    #[error("the queue pair of the ring does not accept work requests: {0}")]
    Post(PostErrorKind),
    /// The completion queue lost completions.
    #[error("the ring's completion queue of {limit} entries overran")]
    Overrun {
        /// Number of its entries.
        limit: usize,
    },
    /// The peer violated the protocol.
    #[error("the peer violated the protocol of the ring: {0}")]
    Violation(#[from] Violation),
    /// This process was made by `fork()` after the ring was created: the ring belongs to the parent, which can continue
    /// to use it.
    #[error(
        "this process was forked after the ring was created, and the ring belongs to the parent: connect again in the \
         child"
    )]
    Forked,
}

impl From<Forked> for RingError {
    fn from(Forked: Forked) -> Self {
        Self::Forked
    }
}

/// A message was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The ring is full: the consumer has not read enough (Error-Full-RB in RB² Algorithm 1). Poll and try again.
    #[error("the ring is full")]
    Full,
    /// The ring does not carry messages of this length.
    #[error("invalid message length: {bytes} bytes, but {limit}")]
    Length {
        /// Length of the message in bytes.
        bytes: usize,
        /// The lengths that the ring carries.
        limit: LengthLimit,
    },
    /// This side has closed the ring.
    #[error("the ring is closed")]
    Closed,
    /// The ring has ended.
    #[error(transparent)]
    Ring(#[from] RingError),
}

/// The message lengths that a ring carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LengthLimit {
    /// Up to this many bytes.
    AtMost(usize),
    /// Exactly this many bytes.
    Exactly(usize),
}

impl std::fmt::Display for LengthLimit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AtMost(bytes) => write!(f, "at most {bytes} bytes fit"),
            Self::Exactly(bytes) => write!(f, "all messages have {bytes} bytes"),
        }
    }
}
