//! A work request as the requester sees it, and the packets that it becomes.

use crate::packet::{AtomicTarget, Operation, RemoteRange};

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
    /// Whether the peer's completion is solicited.
    pub solicited: bool,
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
