//! How bytes cross so that both sides agree on what is free and what is complete.
//!
//! The ring channel of the preset `plain`: each side has a ring in its own memory into which the peer WRITEs. A [`message`] crosses
//! in a [`batch`] that carries its own arrival, so a reader polls the very line that it will read. An
//! [`outbox::Outbox`] encodes, an [`inbox::Inbox`] finds and checks, and [`ring::RingChannel`] joins both to a queue pair.
//! Payloads too long for the ring are fetched by READ from [`buffers`].

pub(crate) mod batch;
pub(crate) mod buffers;
pub(crate) mod datagram;
#[cfg(all(test, not(loom)))]
mod form_tests;
pub(crate) mod inbox;
mod lines;
#[cfg(all(test, loom))]
mod loom_tests;
pub(crate) mod message;
#[cfg(all(test, not(loom)))]
mod model_tests;
pub(crate) mod one_sided;
pub(crate) mod outbox;
pub(crate) mod ring;

/// The peer broke the protocol, or the queue pair failed: the channel is of no more use. One word, because every step of a message
/// may return it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct ChannelError(Box<Fault>);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Fault {
    #[error("the peer broke the protocol: {0}")]
    Violation(&'static str),
    #[error("the queue pair failed: {0}")]
    QueuePair(String),
    #[error("the peer is gone")]
    PeerGone,
    #[error("no memory for a long message: {0}")]
    Memory(String),
}

impl ChannelError {
    /// Bytes in our ring that an honest peer never writes.
    #[cold]
    pub(crate) fn violation(what: &'static str) -> Self {
        Self(Box::new(Fault::Violation(what)))
    }

    /// The queue pair failed.
    #[cold]
    pub(crate) fn queue_pair(why: String) -> Self {
        Self(Box::new(Fault::QueuePair(why)))
    }

    /// The peer cannot be reached any more.
    #[cold]
    pub(crate) fn peer_gone() -> Self {
        Self(Box::new(Fault::PeerGone))
    }

    /// The device refused more memory for a long message.
    #[cold]
    pub(crate) fn memory(why: String) -> Self {
        Self(Box::new(Fault::Memory(why)))
    }

    pub(crate) fn is_violation(&self) -> bool {
        matches!(*self.0, Fault::Violation(_))
    }

    pub(crate) fn is_memory(&self) -> bool {
        matches!(*self.0, Fault::Memory(_))
    }
}
