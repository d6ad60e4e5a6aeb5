//! What can go wrong with a ring: one type for making it, one for sending, one for the connection.

use dunlin_verbs::process::Forked;
use dunlin_verbs::{CompletionStatus, PostErrorKind, VerbsError};

/// A ring cannot be made as asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Choices of the design that contradict each other.
    #[error("the design contradicts itself: {what}")]
    Design {
        /// What does not go together.
        what: &'static str,
    },
    /// A size or count is out of its range.
    #[error("{what} is {value}: {range}")]
    Range {
        /// Which setting.
        what: &'static str,
        /// What it was set to.
        value: usize,
        /// What it may be.
        range: &'static str,
    },
    /// The two sides were not configured alike.
    #[error("the two sides disagree about {what}: {ours} here, {theirs} there")]
    Disagreement {
        /// Which setting.
        what: &'static str,
        /// Here.
        ours: u64,
        /// There.
        theirs: u64,
    },
    /// The device cannot carry this design.
    #[error("the device {device} cannot carry this ring: {what}")]
    Unsupported {
        /// Its name.
        device: String,
        /// What it lacks, and what would do instead.
        what: String,
    },
    /// The device refused.
    #[error(transparent)]
    Verbs(#[from] VerbsError),
}

/// What a peer did that no honest peer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// A tail beyond the ring, or one that went back.
    #[error("its tail moved by {by} units where {room} are free")]
    Tail {
        /// How far.
        by: u64,
        /// How far it could.
        room: u64,
    },
    /// A head beyond what was sent, or one that went back.
    #[error("its head moved by {by} units where {sent} were sent")]
    Head {
        /// How far.
        by: u64,
        /// How far it could.
        sent: u64,
    },
    /// A message longer than agreed, or reaching beyond the tail.
    #[error("a message of {length} bytes: at most {limit} here")]
    Length {
        /// What its header says.
        length: u64,
        /// What there can be.
        limit: u64,
    },
    /// A header that is none.
    #[error("a message header that is none")]
    Header,
    /// A link to a slot that there is not.
    #[error("a link to slot {slot} of {slots}")]
    Link {
        /// Where it leads.
        slot: u64,
        /// Slots of the list.
        slots: u64,
    },
    /// An end of the ring at a place that is no end.
    #[error("an end of the ring that lies behind us")]
    End,
    /// A WRITE with immediate data where there is none.
    #[error("a notification without its immediate data")]
    Immediate,
}

/// A ring has ended other than by its close.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RingError {
    /// The peer is gone: its process has ended, or its queue pair.
    #[error("the peer of the ring is gone")]
    PeerLost,
    /// A work request failed.
    #[error("a work request of the ring failed: {0}")]
    Request(CompletionStatus),
    /// The queue pair does not take work requests.
    #[error("the queue pair of the ring does not take work: {0}")]
    Post(PostErrorKind),
    /// The completion queue lost completions.
    #[error("the ring's completion queue of {limit} entries overran")]
    Overrun {
        /// Its entries.
        limit: usize,
    },
    /// The peer broke the rules.
    #[error("the peer broke the rules of the ring: {0}")]
    Violation(#[from] Violation),
    /// This process was made by `fork()` after the ring was: it is the parent's, who goes on with it.
    #[error("this process was forked after the ring was made, and it is the parent's: connect anew in the child")]
    Forked,
}

impl From<Forked> for RingError {
    fn from(Forked: Forked) -> Self {
        Self::Forked
    }
}

/// A message was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// No room now: the consumer has not read enough (Error-Full-RB in RB² Algorithm 1). Poll and try again.
    #[error("the ring is full")]
    Full,
    /// The message has another length than this ring carries.
    #[error("a message of {bytes} bytes, where {limit}")]
    Length {
        /// Bytes of the message.
        bytes: usize,
        /// What the ring carries.
        limit: LengthLimit,
    },
    /// This side has closed the ring.
    #[error("the ring is closed")]
    Closed,
    /// The ring has ended.
    #[error(transparent)]
    Ring(#[from] RingError),
}

/// Which lengths a ring carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LengthLimit {
    /// Up to so many bytes.
    AtMost(usize),
    /// So many bytes and no other number.
    Exactly(usize),
}

impl std::fmt::Display for LengthLimit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AtMost(bytes) => write!(f, "at most {bytes} fit"),
            Self::Exactly(bytes) => write!(f, "all have {bytes}"),
        }
    }
}
