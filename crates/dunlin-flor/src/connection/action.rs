//! What a connection wants done. Whoever drives it carries actions out in their order.

use dunlin_verbs::{EndpointAddress, RemoteAddress};

use crate::ack::Ack;
use crate::number::GlobalNumber;
use crate::wire::Front;

/// A message that was submitted here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(pub u64);

/// A piece of a message that was submitted here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The message.
    pub message: MessageId,
    /// Where the piece begins, in bytes.
    pub offset: u32,
    /// Its bytes.
    pub bytes: u32,
}

/// The two verbs that Flor uses (§3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// SEND: `front`, and behind it the piece.
    Send {
        /// Header, and what the connection itself has to say.
        front: Front,
        /// Bytes of a message.
        piece: Option<Piece>,
    },
    /// WRITE with immediate data.
    Write {
        /// The bytes.
        piece: Piece,
        /// Where they go.
        remote: RemoteAddress,
        /// The reliable number.
        immediate: u32,
    },
}

/// A work request. Always signaled: its completion is T1, and says when the piece may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkRequest {
    /// Which of the connection's queue pairs.
    pub path: usize,
    /// Its number, to be told with its completion.
    pub global: GlobalNumber,
    /// What it does.
    pub verb: Verb,
}

/// A message that comes in pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Incoming {
    /// Sent in fragments; the driver keeps it in memory of its own.
    Assembled(u32),
    /// Written, and repaired by SENDs; it is in the memory that was provided.
    Written(u32),
}

/// A message that has come whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// In one SEND: it is in this receive buffer, behind the header. The driver posts the buffer again afterwards.
    Whole {
        /// The receive buffer.
        receive: u64,
        /// Its bytes.
        bytes: u32,
    },
    /// In pieces.
    Pieces {
        /// Which.
        message: Incoming,
        /// Its bytes.
        bytes: u32,
        /// The network may still hold a WRITE into the memory it is in, and the device would carry it out, with the
        /// same bytes. For so long the memory is not used again, or its key is revoked.
        quarantine_ns: Option<u64>,
    },
}

/// Why a message was not delivered, or nobody knows whether it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The peer has no memory for it.
    #[error("the peer has no memory for the message")]
    Refused,
    /// The connection has failed. The message may have been delivered or not.
    #[error("the connection has lost its last queue pair: connect again; the message may have been delivered")]
    ConnectionLost,
    /// [`super::Connection::abandon`] has given it up. It may have been delivered or not.
    #[error("the message was given up by its sender; it may have been delivered")]
    Abandoned,
}

/// Why a connection is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LostBy {
    /// Nothing that was sent is acknowledged, and there is no backup to try.
    #[error("the peer has acknowledged nothing for {timeouts} timeouts in a row, and no backup queue pair is connected")]
    Silence {
        /// Timeouts of one work request, each up to twice as long as the one before.
        timeouts: u32,
    },
    /// The device says that the queue pair in use has failed, and there is no backup.
    #[error("the queue pair in use has failed, and no backup queue pair is connected")]
    QueuePair,
}

/// Something to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// Boxing acknowledgements would allocate on the path of every message; actions are moved once or twice.
#[allow(clippy::large_enum_variant)]
pub enum Action {
    /// Post a work request.
    Post(WorkRequest),
    /// Send an acknowledgement over the queue pair for acknowledgements.
    Acknowledge(Ack),
    /// Copy `bytes` from a receive buffer, behind the header, into a message.
    Place {
        /// The receive buffer.
        receive: u64,
        /// The message.
        message: Incoming,
        /// Where in the message.
        offset: u32,
        /// How many.
        bytes: u32,
        /// Bytes of the message: at its first piece an assembled one needs memory.
        total: u32,
    },
    /// Nothing more is wanted of a receive buffer: post it again.
    Recycle(u64),
    /// Find memory for a message and answer with `provide` or `refuse`.
    Provide {
        /// The message.
        message: u32,
        /// Its bytes.
        bytes: u32,
        /// What the peer's user calls it.
        tag: u32,
    },
    /// Hand a message to the application.
    Deliver(Delivery),
    /// Forget a message of which not everything will come. Queue pairs that could write to it were fenced before.
    Discard(Incoming),
    /// A message is done with: its bytes may change.
    Finished(MessageId, Result<(), Failure>),
    /// Move this queue pair to Error before anything else is done: from now on no peer writes by it. Completions of its
    /// work requests are told, as failed.
    Fence {
        /// Which of the connection's queue pairs.
        path: usize,
    },
    /// All of its work requests have completed: reset this queue pair, or make another one in its place, and tell its
    /// address by `renewed`.
    Renew {
        /// Which of the connection's queue pairs.
        path: usize,
    },
    /// Connect a renewed queue pair, and say so by `connected`.
    Connect {
        /// Which of the connection's queue pairs.
        path: usize,
        /// The peer's address.
        address: EndpointAddress,
    },
    /// Send acknowledgements to this address.
    AcknowledgeTo(EndpointAddress),
    /// There is no queue pair left: nothing more will come.
    Lost,
}
