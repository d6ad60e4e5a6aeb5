//! Packets on the wire, with their bytes.

use dunlin_verbs::Transport;

use crate::random::mix;
use crate::work::Segs;

/// What a packet is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Of a SEND on a connection.
    #[default]
    Send,
    /// Of a WRITE.
    Write,
    /// A READ.
    ReadRequest,
    /// Of what a READ asked for.
    ReadResponse,
    /// An atomic.
    CompareAndSwap,
    /// An atomic.
    FetchAndAdd,
    /// The value that an atomic found.
    AtomicResponse,
    /// A SEND over UD.
    Datagram,
    /// Everything up to here has come.
    Acknowledge,
    /// Negative acknowledgement, with its reason.
    Refuse(Refusal),
    /// Congestion notification.
    Congestion,
}

/// Why a responder does not carry a request out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A packet is missing before this one.
    Sequence,
    /// No RECEIVE; offer it again after so many picoseconds.
    NotReady(u64),
    /// Key, range or access.
    Access,
    /// Does not fit, or is not allowed.
    Invalid,
    /// The responder itself failed.
    Operation,
}

/// What is to be done with a packet's bytes when it reaches host memory.
#[derive(Clone, Debug, Default)]
pub(crate) enum Place {
    #[default]
    Nothing,
    /// A WRITE: region key and offset.
    Write { key: u32, offset: u64 },
    /// Into pieces, from this byte of theirs: a RECEIVE or the local side of a READ.
    Scatter { segs: Segs, offset: u64 },
    /// Read memory and answer.
    Read { key: u32, offset: u64 },
    /// Carry out the atomic and answer.
    Atomic { key: u32, offset: u64 },
}

/// A packet in flight. Its buffer is kept for the next one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Packet {
    pub(crate) kind: Kind,
    pub(crate) from: u16,
    pub(crate) to: u16,
    /// Numbers of the queue pair that sent it and of the one it is for.
    pub(crate) from_number: u32,
    pub(crate) to_number: u32,
    /// That queue pair is UC.
    pub(crate) unreliable: bool,
    /// Incarnations of both when it was sent: a queue pair that was reset takes nothing of before.
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
    /// Place of this packet's bytes in the message.
    pub(crate) offset: u32,
    pub(crate) operands: [u64; 2],
    /// Bytes on the wire.
    pub(crate) wire_bytes: u32,
    /// Port of the switch by which it came, while it is in one.
    pub(crate) ingress: u16,
    pub(crate) place: Place,
    /// Queue pair at its destination, once found.
    pub(crate) local_qp: u32,
    pub(crate) payload: Vec<u8>,
}

impl Packet {
    /// Makes it a blank, keeping the buffer.
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

    /// What switches tell its flow from others by.
    #[inline]
    pub(crate) fn flow(&self) -> u64 {
        let hosts = mix(u64::from(self.from) << 16 | u64::from(self.to));
        hosts ^ (u64::from(self.from_number) << 32 | u64::from(self.to_number))
    }

    /// Control packets go before data and are not marked.
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
