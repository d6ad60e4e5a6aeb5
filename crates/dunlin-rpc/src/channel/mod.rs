//! How bytes cross so that both sides agree on what is free and what is complete.
//!
//! The ring channel of the preset `plain`: each side has a ring in its own memory into which the peer WRITEs. Messages are cut
//! into cache lines that each carry their own arrival ([`line`]), so a reader polls the very line that it will read. An
//! [`outbox::Outbox`] encodes and batches, an [`inbox::Inbox`] finds and checks, and [`ring::RingChannel`] joins both to a queue pair.
//! Payloads too long for the ring are fetched by READ from [`buffers`].

pub(crate) mod buffers;
pub(crate) mod inbox;
pub(crate) mod line;
#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod model_tests;
pub(crate) mod outbox;
pub(crate) mod ring;

/// The peer broke the protocol, or the queue pair failed: the channel is of no more use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ChannelError {
    /// Bytes in our ring that an honest peer never writes.
    #[error("the peer broke the protocol: {0}")]
    Violation(&'static str),
    /// The queue pair failed.
    #[error("the queue pair failed: {0}")]
    QueuePair(String),
    /// The peer cannot be reached any more.
    #[error("the peer is gone")]
    PeerGone,
    /// The device refused more memory for a long message.
    #[error("no memory for a long message: {0}")]
    Memory(String),
}
