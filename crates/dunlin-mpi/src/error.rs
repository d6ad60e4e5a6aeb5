//! The errors of a job: one type for joining it, one for everything afterwards.

use std::time::Duration;

use dunlin_bootstrap::{AddressError, BootstrapError};
use dunlin_ring::{ConfigError, RingError};
use dunlin_verbs::VerbsError;

use crate::wire::Fault;

/// Why a process could not join a job.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// A rank, size or setting is out of range.
    #[error("{what} is {value}: {range}")]
    Range {
        /// Its name.
        what: &'static str,
        /// Its value.
        value: u64,
        /// The allowed range.
        range: &'static str,
    },
    /// A variable of the environment is missing or invalid.
    #[error("the variable {name} {why}; start the program by `dunlin mpi run`, or set it")]
    Environment {
        /// The variable's name.
        name: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// An address is invalid.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The handshake with a rank failed, or a port is not available.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    /// The device does not support the rings, or the two sides' settings differ.
    #[error(transparent)]
    Ring(#[from] ConfigError),
    /// No device can be used.
    #[error("no suitable device: {0}")]
    Device(String),
    /// A rank's answer in the handshake is invalid.
    #[error("the answer of rank {rank} is invalid: {why}")]
    Answer {
        /// The rank.
        rank: usize,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Not all ranks have joined in time.
    #[error("not all ranks have joined within {limit:?}; missing: {missing:?}{}", attempted(last.as_deref()))]
    Timeout {
        /// The time limit ([`Settings::join_timeout`](crate::Settings::join_timeout)).
        limit: Duration,
        /// Ranks to which this one has no connection.
        missing: Vec<usize>,
        /// Why the last attempt to reach the first of them failed, if it was this rank that had to reach it.
        last: Option<Box<BootstrapError>>,
    },
    /// A rank was lost while the job assembled.
    #[error(transparent)]
    Mpi(#[from] MpiError),
    /// A system call failed.
    #[error("{call}: {source}")]
    Io {
        /// The system call.
        call: &'static str,
        /// Its error.
        source: std::io::Error,
    },
}

fn attempted(last: Option<&BootstrapError>) -> String {
    last.map_or(String::new(), |error| {
        format!("; the last attempt: {error}")
    })
}

impl From<VerbsError> for JoinError {
    fn from(error: VerbsError) -> Self {
        Self::Device(error.to_string())
    }
}

/// Why a rank was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Loss {
    /// Its process or its host is gone, or the connection to it failed.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// It violated the protocol.
    #[error("it violated the protocol: {0}")]
    Fault(#[from] Fault),
    /// Another rank left the job and named it as the cause.
    #[error("rank {by} said so")]
    Reported {
        /// The rank that said so.
        by: usize,
    },
}

/// Why a call on a [`World`](crate::World) failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MpiError {
    /// A rank was lost without leaving the job. Every call that would have to wait reports the first rank that was
    /// lost, even if it waits for another one.
    #[error("rank {rank} is lost: {loss}")]
    RankLost {
        /// The rank.
        rank: usize,
        /// How it was lost.
        loss: Loss,
    },
    /// The call needs a rank that has left the job.
    #[error("rank {rank} has left the job")]
    RankLeft {
        /// The rank.
        rank: usize,
    },
    /// There is no rank of this number.
    #[error("there is no rank {rank} in a job of {size}")]
    NoSuchRank {
        /// The number.
        rank: usize,
        /// The number of ranks.
        size: usize,
    },
    /// The message was longer than the buffer of the receive that it matched; it is consumed, and the contents of the
    /// buffer are unspecified.
    #[error("a message of {bytes} bytes from rank {source_rank} with tag {tag}, into a buffer of {capacity}")]
    Truncated {
        /// The rank that sent it.
        source_rank: usize,
        /// Its tag.
        tag: u32,
        /// Its length in bytes.
        bytes: usize,
        /// Length of the buffer in bytes.
        capacity: usize,
    },
    /// The receive would never end: the next message of the rank that it waits for matches no receive, and as many
    /// bytes as allowed are already held for that rank. Receive them first, or raise
    /// [`Settings::unexpected_bytes`](crate::Settings::unexpected_bytes).
    #[error(
        "{limit} bytes of messages that match no receive are held for rank {source_rank}, the limit, and its next one \
         matches none either; receive in the order of sending, or raise the limit"
    )]
    UnexpectedLimit {
        /// The rank that sent them.
        source_rank: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The call would never end: it waits for a message that only this rank could send.
    #[error("this rank waits for a message of its own, which it has not sent")]
    OnlySelf,
    /// The call would never end: it sends to this rank itself a message that matches no receive and exceeds the limit
    /// of held bytes. Post the receive first.
    #[error("a message of {bytes} bytes to this rank itself, for which no receive is posted")]
    SendToSelf {
        /// Its length in bytes.
        bytes: usize,
    },
    /// Two ranks are in different collectives, or call the same one with different lengths or roots.
    #[error("rank {rank} is in another collective, or passes another length or root")]
    CollectiveMismatch {
        /// The rank.
        rank: usize,
    },
    /// The lengths of a call's buffers do not fit each other.
    #[error("{what} has {found} elements instead of {expected}")]
    Length {
        /// The buffer.
        what: &'static str,
        /// Its length in elements.
        found: usize,
        /// The required length in elements.
        expected: usize,
    },
    /// A message is longer than the protocol or the call allows.
    #[error("a message of {bytes} bytes, at most {limit} are possible")]
    TooLong {
        /// Its length in bytes.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The request belongs to another [`World`](crate::World).
    #[error("the request belongs to another world")]
    ForeignRequest,
    /// The time limit of joining has passed within the call.
    #[error("the time limit has passed")]
    Timeout,
}
