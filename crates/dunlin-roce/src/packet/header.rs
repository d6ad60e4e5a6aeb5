//! Packet headers: the base transport header and its extensions, as values (IBTA vol. 1 §9.2, §9.3).

use super::psn::Psn;

/// Length of a base transport header.
pub const BASE_BYTES: usize = 12;
/// Length of the longest sequence of headers: a base header and that of a compare-and-swap.
pub const MAX_HEADER_BYTES: usize = BASE_BYTES + 28;
/// The default partition key, the only one on most Ethernets.
pub const DEFAULT_PARTITION_KEY: u16 = 0xffff;

/// Low five bits of the opcode of a congestion notification, the only one of its service.
pub(super) const CONGESTION_CODE: u8 = 0x01;
/// Reserved bytes of a congestion notification.
pub(super) const CONGESTION_BYTES: usize = 16;

/// The transport of a packet, with the fields that only its packets have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// RC.
    Reliable,
    /// UC.
    Unreliable,
    /// UD, with its datagram header (DETH).
    Datagram {
        /// The receiver's queue key.
        queue_key: u32,
        /// Queue pair of the sender, 24 bits.
        source_queue_pair: u32,
    },
    /// None of them: a message between hosts about congestion of the network.
    Congestion,
}

/// A range of the peer's memory (RETH).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteRange {
    /// First byte.
    pub address: u64,
    /// Key.
    pub key: u32,
    /// Length of the whole message in bytes.
    pub bytes: u32,
}

/// Eight bytes of the peer's memory (the first half of AtomicETH).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicTarget {
    /// Its address, divisible by eight.
    pub address: u64,
    /// Key.
    pub key: u32,
}

/// Why a responder refuses a request (IBTA vol. 1 §9.7.5.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A packet before this one is missing; everything from it on must be sent again.
    SequenceError,
    /// The request is malformed, too long, or of a kind that the queue pair does not accept.
    InvalidRequest,
    /// The key does not allow it.
    RemoteAccess,
    /// The responder could not execute it.
    RemoteOperation,
}

/// The meaning of an acknowledgement (AETH syndrome, IBTA vol. 1 §9.7.5.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syndrome {
    /// Everything up to this packet has been executed; five bits of end-to-end credit, 31 if credits are not used.
    Acknowledged(u8),
    /// No RECEIVE is posted; five bits of time to wait, see [`super::timer`].
    ReceiverNotReady(u8),
    /// Refused.
    Refused(Refusal),
}

/// The acknowledgement header (AETH).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledgement {
    /// The outcome of the request.
    pub syndrome: Syndrome,
    /// Number of messages that the responder has completed, modulo 2^24.
    pub messages: u32,
}

/// The operation of a packet, with the headers that belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// The first of several packets of a SEND.
    SendFirst,
    /// A middle packet of a SEND.
    SendMiddle,
    /// The last of several packets of a SEND.
    SendLast {
        /// Immediate data.
        immediate: Option<u32>,
    },
    /// A SEND in one packet.
    SendOnly {
        /// Immediate data.
        immediate: Option<u32>,
    },
    /// The first of several packets of a WRITE.
    WriteFirst {
        /// The target range.
        target: RemoteRange,
    },
    /// A middle packet of a WRITE.
    WriteMiddle,
    /// The last of several packets of a WRITE.
    WriteLast {
        /// Immediate data.
        immediate: Option<u32>,
    },
    /// A WRITE in one packet.
    WriteOnly {
        /// The target range.
        target: RemoteRange,
        /// Immediate data.
        immediate: Option<u32>,
    },
    /// A READ.
    ReadRequest {
        /// The source range.
        source: RemoteRange,
    },
    /// The first of several packets that answer a READ.
    ReadResponseFirst {
        /// Acknowledges what came before.
        acknowledgement: Acknowledgement,
    },
    /// A middle packet of the answer to a READ.
    ReadResponseMiddle,
    /// The last of several packets that answer a READ.
    ReadResponseLast {
        /// Acknowledges the READ.
        acknowledgement: Acknowledgement,
    },
    /// The only packet of the answer to a READ.
    ReadResponseOnly {
        /// Acknowledges the READ.
        acknowledgement: Acknowledgement,
    },
    /// An acknowledgement or a refusal.
    Acknowledge {
        /// Its contents.
        acknowledgement: Acknowledgement,
    },
    /// The answer to an atomic.
    AtomicAcknowledge {
        /// Acknowledges the atomic.
        acknowledgement: Acknowledgement,
        /// The value before it (AtomicAckETH).
        original: u64,
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
    /// A congestion notification (CNP, annex A17.9): packets to its sender were marked on the way.
    CongestionNotification,
}

impl Operation {
    /// Whether packets of this kind carry a payload.
    pub fn has_payload(&self) -> bool {
        !matches!(
            self,
            Self::ReadRequest { .. }
                | Self::Acknowledge { .. }
                | Self::AtomicAcknowledge { .. }
                | Self::CompareAndSwap { .. }
                | Self::FetchAdd { .. }
                | Self::CongestionNotification
        )
    }

    /// Whether it is sent by a responder to a requester.
    pub fn is_response(&self) -> bool {
        matches!(
            self,
            Self::ReadResponseFirst { .. }
                | Self::ReadResponseMiddle
                | Self::ReadResponseLast { .. }
                | Self::ReadResponseOnly { .. }
                | Self::Acknowledge { .. }
                | Self::AtomicAcknowledge { .. }
        )
    }

    /// Whether it carries data together with a syndrome that excludes data.
    pub(crate) fn contradicts_itself(&self) -> bool {
        match self {
            Self::ReadResponseFirst { acknowledgement }
            | Self::ReadResponseLast { acknowledgement }
            | Self::ReadResponseOnly { acknowledgement }
            | Self::AtomicAcknowledge {
                acknowledgement, ..
            } => !matches!(acknowledgement.syndrome, Syndrome::Acknowledged(_)),
            _ => false,
        }
    }

    /// Low five bits of the opcode (IBTA vol. 1 table 38).
    pub(super) fn code(&self) -> u8 {
        match self {
            Self::SendFirst => 0x00,
            Self::SendMiddle => 0x01,
            Self::SendLast { immediate } => 0x02 + u8::from(immediate.is_some()),
            Self::SendOnly { immediate } => 0x04 + u8::from(immediate.is_some()),
            Self::WriteFirst { .. } => 0x06,
            Self::WriteMiddle => 0x07,
            Self::WriteLast { immediate } => 0x08 + u8::from(immediate.is_some()),
            Self::WriteOnly { immediate, .. } => 0x0a + u8::from(immediate.is_some()),
            Self::ReadRequest { .. } => 0x0c,
            Self::ReadResponseFirst { .. } => 0x0d,
            Self::ReadResponseMiddle => 0x0e,
            Self::ReadResponseLast { .. } => 0x0f,
            Self::ReadResponseOnly { .. } => 0x10,
            Self::Acknowledge { .. } => 0x11,
            Self::AtomicAcknowledge { .. } => 0x12,
            Self::CompareAndSwap { .. } => 0x13,
            Self::FetchAdd { .. } => 0x14,
            Self::CongestionNotification => CONGESTION_CODE,
        }
    }

    /// Whether packets of this kind exist on the transport.
    pub(super) fn exists_on(&self, service: &Service) -> bool {
        match service {
            Service::Reliable => !matches!(self, Self::CongestionNotification),
            Service::Congestion => matches!(self, Self::CongestionNotification),
            Service::Unreliable => self.has_payload() && !self.is_response(),
            Service::Datagram { .. } => matches!(self, Self::SendOnly { .. }),
        }
    }
}

/// Everything in front of the payload of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Transport.
    pub service: Service,
    /// Operation of the packet.
    pub operation: Operation,
    /// Whether the receiver's completion is solicited.
    pub solicited: bool,
    /// Whether the sender requests an acknowledgement.
    pub acknowledge: bool,
    /// Partition key.
    pub partition_key: u16,
    /// Queue pair of the receiver, 24 bits.
    pub queue_pair: u32,
    /// Sequence number.
    pub psn: Psn,
}
