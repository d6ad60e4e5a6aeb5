//! A work request as the requester sees it, from its posting and its packets to its completion.

use dunlin_verbs::CompletionStatus;

use super::requester::MAX_MESSAGE_BYTES;
use crate::packet::{AtomicTarget, Header, Operation, RemoteRange};

/// The operation of a request; its bytes are kept by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// SEND.
    Send {
        /// Immediate data.
        immediate: Option<u32>,
    },
    /// WRITE.
    Write {
        /// First byte at the peer.
        address: u64,
        /// The peer's key.
        key: u32,
        /// Immediate data.
        immediate: Option<u32>,
    },
    /// READ.
    Read {
        /// First byte at the peer.
        address: u64,
        /// The peer's key.
        key: u32,
    },
    /// Compare-and-swap.
    CompareAndSwap {
        /// The target of eight bytes.
        target: AtomicTarget,
        /// Expected value.
        compare: u64,
        /// New value.
        swap: u64,
    },
    /// Fetch-and-add.
    FetchAdd {
        /// The target of eight bytes.
        target: AtomicTarget,
        /// Summand.
        add: u64,
    },
}

/// A work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Returned on completion.
    pub id: u64,
    /// Its operation.
    pub verb: Verb,
    /// Length of the message in bytes; eight for atomics.
    pub bytes: u32,
    /// Whether it starts only after all READs and atomics before it have completed.
    pub fence: bool,
    /// Whether its completion is waited for: the peer is always asked to acknowledge it.
    pub prompt: bool,
    /// Whether the peer's completion is solicited.
    pub solicited: bool,
}

/// Why a request was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// The maximum number of requests is posted.
    #[error("send queue full ({0} requests): poll completions first")]
    Full(usize),
    /// The message is too long.
    #[error("message too long: {0} bytes, the limit is {MAX_MESSAGE_BYTES}")]
    TooLong(u32),
    /// An atomic of another length than eight.
    #[error("an atomic of {0} bytes: it must have 8")]
    AtomicLength(u32),
}

/// The completion of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Its id.
    pub id: u64,
    /// Its status.
    pub status: CompletionStatus,
}

/// A packet to send, with the location of its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Everything in front of the payload.
    pub header: Header,
    /// The request whose bytes are the payload.
    pub id: u64,
    /// Offset of the payload in the message.
    pub offset: u32,
    /// Length of the payload in bytes.
    pub bytes: u32,
}

/// Where the answer to a READ or an atomic must be stored. To be carried out before completions are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadPlacement {
    /// The packet's payload, into the READ's buffers.
    Bytes {
        /// The READ.
        id: u64,
        /// Offset in the message.
        offset: u32,
    },
    /// The value before an atomic.
    Value {
        /// The atomic.
        id: u64,
        /// The value.
        original: u64,
    },
}

impl Request {
    /// Whether the peer answers it with data.
    pub(super) fn is_answered(&self) -> bool {
        !matches!(self.verb, Verb::Send { .. } | Verb::Write { .. })
    }

    /// The operation of the packet that begins at `offset` in the message; `last` if it is the last one. A READ
    /// requests `bytes` from there.
    pub(crate) fn operation(&self, offset: u32, bytes: u32, last: bool) -> Operation {
        match self.verb {
            Verb::Send { immediate } => match (offset, last) {
                (0, true) => Operation::SendOnly { immediate },
                (0, false) => Operation::SendFirst,
                (_, true) => Operation::SendLast { immediate },
                (_, false) => Operation::SendMiddle,
            },
            Verb::Write {
                address,
                key,
                immediate,
            } => {
                let target = RemoteRange {
                    address,
                    key,
                    bytes: self.bytes,
                };
                match (offset, last) {
                    (0, true) => Operation::WriteOnly { target, immediate },
                    (0, false) => Operation::WriteFirst { target },
                    (_, true) => Operation::WriteLast { immediate },
                    (_, false) => Operation::WriteMiddle,
                }
            }
            Verb::Read { address, key } => Operation::ReadRequest {
                source: RemoteRange {
                    address: address.wrapping_add(offset.into()),
                    key,
                    bytes,
                },
            },
            Verb::CompareAndSwap {
                target,
                compare,
                swap,
            } => Operation::CompareAndSwap {
                target,
                compare,
                swap,
            },
            Verb::FetchAdd { target, add } => Operation::FetchAdd { target, add },
        }
    }
}
