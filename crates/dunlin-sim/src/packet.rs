//! Packets on the wire, with their bytes.

use dunlin_verbs::Transport;

use crate::random::mix;
use crate::work::Segs;

/// The kind of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Part of a SEND on a connection.
    #[default]
    Send,
    /// Part of a WRITE.
    Write,
    /// A READ.
    ReadRequest,
    /// Part of a READ's response.
    ReadResponse,
    /// An atomic compare and swap.
    CompareAndSwap,
    /// An atomic fetch and add.
    FetchAndAdd,
    /// The response to an atomic: the old value.
    AtomicResponse,
    /// A SEND over UD.
    Datagram,
    /// Acknowledges everything up to here.
    Acknowledge,
    /// Negative acknowledgement, with its reason.
    Refuse(Refusal),
    /// Congestion notification.
    Congestion,
}

/// Why a responder did not carry out a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A packet is missing before this one.
    Sequence,
    /// There is no RECEIVE; retry after this many picoseconds.
    NotReady(u64),
    /// Wrong key, range or access.
    Access,
    /// The request does not fit, or is not allowed.
    Invalid,
    /// The responder itself failed.
    Operation,
}

/// What happens with a packet's bytes when it reaches host memory.
#[derive(Clone, Debug, Default)]
pub(crate) enum Place {
    #[default]
    Nothing,
    /// A WRITE: region key and offset.
    Write { key: u32, offset: u64 },
    /// Into segments, from this byte of them on: a RECEIVE or the local side of a READ.
    Scatter { segs: Segs, offset: u64 },
    /// Reads memory and answers.
    Read { key: u32, offset: u64 },
    /// Carries out the atomic and answers.
    Atomic { key: u32, offset: u64 },
}

/// A packet in flight. Its buffer is reused for later packets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Packet {
    pub(crate) kind: Kind,
    pub(crate) from: u16,
    pub(crate) to: u16,
    /// Numbers of the sending and the receiving queue pair.
    pub(crate) from_number: u32,
    pub(crate) to_number: u32,
    /// Whether the sending queue pair is UC.
    pub(crate) unreliable: bool,
    /// Incarnations of both when it was sent: a queue pair that was reset accepts nothing from before.
    pub(crate) from_stamp: u32,
    pub(crate) to_stamp: u32,
    pub(crate) psn: u64,
    pub(crate) first: bool,
    pub(crate) last: bool,
    pub(crate) acknowledge: bool,
    pub(crate) solicited: bool,
    pub(crate) congested: bool,
    pub(crate) priority: u8,
    pub(crate) immediate: Option<u32>,
    /// Remote address of the message, and its key.
    pub(crate) address: u64,
    pub(crate) key: u32,
    /// Bytes of the whole message, or of the READ.
    pub(crate) total: u32,
    /// Offset of this packet's bytes in the message.
    pub(crate) offset: u32,
    pub(crate) operands: [u64; 2],
    /// Bytes on the wire.
    pub(crate) wire_bytes: u32,
    /// Port at which it entered the switch that it is in.
    pub(crate) ingress: u16,
    pub(crate) place: Place,
    /// Queue pair at its destination, once found.
    pub(crate) local_qp: u32,
    pub(crate) payload: Vec<u8>,
}

impl Packet {
    /// Clears all fields, keeping the buffer.
    pub(crate) fn clear(&mut self) {
        let mut payload = std::mem::take(&mut self.payload);
        payload.clear();
        *self = Self {
            payload,
            ..Self::default()
        };
    }

    /// Transport of the queue pair that sent it.
    pub(crate) fn transport(&self) -> Transport {
        match (self.kind, self.unreliable) {
            (Kind::Datagram, _) => Transport::UnreliableDatagram,
            (_, true) => Transport::UnreliableConnection,
            (_, false) => Transport::ReliableConnection,
        }
    }

    /// Number by which switches distinguish flows.
    #[inline]
    pub(crate) fn flow(&self) -> u64 {
        let hosts = mix(u64::from(self.from) << 16 | u64::from(self.to));
        hosts ^ (u64::from(self.from_number) << 32 | u64::from(self.to_number))
    }

    /// Whether it is a control packet: those go before data and are not marked.
    pub(crate) fn is_control(&self) -> bool {
        matches!(self.kind, Kind::Congestion)
    }

    /// Headers beyond those of every packet: RETH 16, AETH 4, DETH 8, atomic 28, immediate 4.
    pub(crate) fn extended_bytes(&self) -> u32 {
        let own = match self.kind {
            Kind::Send => 0,
            Kind::Write => 16 * u32::from(self.first),
            Kind::ReadRequest => 16,
            Kind::ReadResponse | Kind::Acknowledge | Kind::Refuse(_) => 4,
            Kind::CompareAndSwap | Kind::FetchAndAdd => 28,
            Kind::AtomicResponse => 12,
            Kind::Datagram => 8,
            Kind::Congestion => 16,
        };
        own + 4 * u32::from(self.immediate.is_some())
    }
}
