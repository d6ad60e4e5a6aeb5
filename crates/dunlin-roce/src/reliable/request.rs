//! A work request as the requester sees it, from its posting through its packets to its end.

use dunlin_verbs::CompletionStatus;

use super::requester::MAX_MESSAGE_BYTES;
use crate::packet::{AtomicTarget, Header, Operation, RemoteRange};

/// What a request does; its bytes stay with whoever posts it.
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
        /// Key of the peer.
        key: u32,
        /// Immediate data.
        immediate: Option<u32>,
    },
    /// READ.
    Read {
        /// First byte at the peer.
        address: u64,
        /// Key of the peer.
        key: u32,
    },
    /// Compare-and-swap.
    CompareAndSwap {
        /// Which eight bytes.
        target: AtomicTarget,
        /// Expected value.
        compare: u64,
        /// New value.
        swap: u64,
    },
    /// Fetch-and-add.
    FetchAdd {
        /// Which eight bytes.
        target: AtomicTarget,
        /// Summand.
        add: u64,
    },
}

/// A work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Returned when it ends.
    pub id: u64,
    /// What it does.
    pub verb: Verb,
    /// Bytes of the message; eight for atomics.
    pub bytes: u32,
    /// Whether it starts only after all READs and atomics before it have ended.
    pub fence: bool,
    /// Whether somebody waits for its end: the peer is asked to acknowledge it, whatever else it is asked.
    pub prompt: bool,
    /// Whether the peer's completion is solicited.
    pub solicited: bool,
}

/// Why a request was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// As many as may be are posted.
    #[error("the send queue is full with {0} requests: take completions first")]
    Full(usize),
    /// The message is too long.
    #[error("a message of {0} bytes is longer than {MAX_MESSAGE_BYTES}")]
    TooLong(u32),
    /// An atomic of another length than eight.
    #[error("an atomic of {0} bytes: it has 8")]
    AtomicLength(u32),
}

/// The end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Its id.
    pub id: u64,
    /// How it ended.
    pub status: CompletionStatus,
}

/// A packet to send, with the place of its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Everything before the payload.
    pub header: Header,
    /// The request whose bytes are the payload.
    pub id: u64,
    /// First byte of the payload in the message.
    pub offset: u32,
    /// Bytes of payload.
    pub bytes: u32,
}

/// Where the answer to a READ or an atomic goes. To be carried out before completions are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadPlacement {
    /// The packet's payload, into the READ's buffers.
    Bytes {
        /// The READ.
        id: u64,
        /// First byte in the message.
        offset: u32,
    },
    /// The value from before an atomic.
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

    /// The operation of the packet that begins `offset` bytes into the message and is its last one or not. A READ asks
    /// for `bytes` from there.
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
