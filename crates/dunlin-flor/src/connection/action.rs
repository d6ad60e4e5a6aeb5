//! Actions that a connection requests. Its driver carries them out in order.

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
    /// Offset of the piece in the message, in bytes.
    pub offset: u32,
    /// Length in bytes.
    pub bytes: u32,
}

/// The two verbs that Flor uses (§3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// SEND: `front`, followed by the piece.
    Send {
        /// The header, and the connection's own data.
        front: Front,
        /// Bytes of a message.
        piece: Option<Piece>,
    },
    /// WRITE with immediate data.
    Write {
        /// The bytes.
        piece: Piece,
        /// Their destination.
        remote: RemoteAddress,
        /// The reliable number.
        immediate: u32,
    },
}

/// A work request. It is always signaled: its completion is T1, and tells when the piece may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkRequest {
    /// Index of the connection's queue pair.
    pub path: usize,
    /// Its number, to be passed back with its completion.
    pub global: GlobalNumber,
    /// Its operation.
    pub verb: Verb,
}

/// A message that arrives in pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Incoming {
    /// Sent in fragments; the driver assembles it in its own memory.
    Assembled(u32),
    /// Written, and repaired by SENDs; it is in the memory that was provided.
    Written(u32),
}

/// A message that has arrived in full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// In one SEND: it is in this receive buffer, behind the header. The driver posts the buffer again afterwards.
    Whole {
        /// The receive buffer.
        receive: u64,
        /// Length in bytes.
        bytes: u32,
    },
    /// In pieces.
    Pieces {
        /// The message.
        message: Incoming,
        /// Length in bytes.
        bytes: u32,
        /// Set if the network may still hold a WRITE to the message's memory that the device would carry out, with the
        /// same bytes. For this time the memory must not be used again, unless its key is revoked.
        quarantine_ns: Option<u64>,
    },
}

/// Why a message was not delivered, or may not have been.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The peer has no memory for it.
    #[error("the peer has no memory for the message")]
    Refused,
    /// The connection has failed. The message may or may not have been delivered.
    #[error("the connection lost its last queue pair: connect again; the message may have been delivered")]
    ConnectionLost,
    /// Given up by [`super::Connection::abandon`]. The message may or may not have been delivered.
    #[error("the message was abandoned by its sender; it may have been delivered")]
    Abandoned,
}

/// Why a connection is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LostBy {
    /// Nothing that was sent is acknowledged, and there is no backup to try.
    #[error(
        "the peer has not acknowledged anything for {timeouts} consecutive timeouts, and no backup queue pair is \
         connected"
    )]
    Silence {
        /// Number of timeouts of one work request, each up to twice as long as the previous one.
        timeouts: u32,
    },
    /// The device reports that the queue pair in use has failed, and there is no backup.
    #[error("the active queue pair failed, and no backup queue pair is connected")]
    QueuePair,
}

/// An action to be carried out.
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
        /// Offset in the message.
        offset: u32,
        /// Number of bytes.
        bytes: u32,
        /// Length of the message: memory for an assembled message is needed from its first piece on.
        total: u32,
    },
    /// A receive buffer is no longer needed: post it again.
    Recycle(u64),
    /// Find memory for a message and answer with `provide` or `refuse`.
    Provide {
        /// The message.
        message: u32,
        /// Length in bytes.
        bytes: u32,
        /// The tag that the peer's user gave it.
        tag: u32,
    },
    /// Pass a message to the application.
    Deliver(Delivery),
    /// Discard a message that will not be completed. Queue pairs that could write to it were fenced before.
    Discard(Incoming),
    /// A message is finished: its bytes may change.
    Finished(MessageId, Result<(), Failure>),
    /// Move this queue pair to Error before anything else is done, so that no peer can write through it any more.
    /// Completions of its work requests are reported as failed.
    Fence {
        /// Index of the connection's queue pair.
        path: usize,
    },
    /// All of its work requests have completed: reset this queue pair, or create another one in its place, and report
    /// its address by `renewed`.
    Renew {
        /// Index of the connection's queue pair.
        path: usize,
    },
    /// Connect a renewed queue pair, and report that by `connected`.
    Connect {
        /// Index of the connection's queue pair.
        path: usize,
        /// The peer's address.
        address: EndpointAddress,
    },
    /// Send acknowledgements to this address.
    AcknowledgeTo(EndpointAddress),
    /// There is no queue pair left; no further events follow.
    Lost,
}
