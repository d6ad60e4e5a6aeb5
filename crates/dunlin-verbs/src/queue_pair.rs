//! Queue pairs and shared receive queues.

use std::net::SocketAddr;

use crate::error::{PostError, VerbsError};
use crate::mapped::{PeerMemory, PeerSource};
use crate::memory::{Access, Region, RemoteAddress};
use crate::state::QueuePairState;
use crate::work::{ReceiveRequest, SendRequest};

/// The service of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// RC: acknowledged, in order, all verbs.
    ReliableConnection,
    /// UC: connected, no acknowledgement, SEND and WRITE.
    UnreliableConnection,
    /// UD: datagrams of one MTU to any peer, SEND only.
    UnreliableDatagram,
}

impl std::fmt::Display for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::ReliableConnection => "RC",
            Self::UnreliableConnection => "UC",
            Self::UnreliableDatagram => "UD",
        })
    }
}

/// Where RECEIVEs of a new queue pair come from.
#[derive(Debug)]
pub enum ReceiveQueue<'a, S> {
    /// Its own queue of this many entries.
    Own(usize),
    /// Its own queue of this many entries, for RECEIVEs without segments only: wake-ups and immediate data. A device
    /// whose receive buffers are memory of its own needs little of it then.
    OwnEmpty(usize),
    /// A queue shared with others.
    Shared(&'a S),
}

/// How a queue pair is made.
#[derive(Debug)]
pub struct QueuePairConfig<'a, C, S> {
    /// Service.
    pub transport: Transport,
    /// Where completions of sends go.
    pub send_completions: &'a C,
    /// Where completions of RECEIVEs go; may be the same queue.
    pub receive_completions: &'a C,
    /// Entries of the send queue.
    pub send_requests: usize,
    /// Where RECEIVEs come from.
    pub receive_queue: ReceiveQueue<'a, S>,
    /// Segments of one request.
    pub segments: usize,
    /// Inline bytes of one request.
    pub inline_bytes: usize,
}

/// Bytes of an encoded [`EndpointAddress`].
pub const ENDPOINT_ADDRESS_BYTES: usize = 48;

/// Where a queue pair can be reached: what the two sides of a connection exchange, by any means they like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EndpointAddress {
    /// Global identifier of the device's port: an IPv6 or mapped IPv4 address on RoCE, a random number on shared
    /// memory.
    pub gid: [u8; 16],
    /// Local identifier on InfiniBand, zero elsewhere.
    pub lid: u16,
    /// Path MTU that this side wants, in bytes.
    pub mtu_bytes: u32,
    /// Queue pair number.
    pub queue_pair: u32,
    /// First packet sequence number of this side, 24 bits.
    pub packet_sequence: u32,
    /// UD: the queue key it asks for.
    pub queue_key: u32,
    /// Proof, where the device wants one, that whoever shows it was handed this address.
    pub token: u64,
}

impl EndpointAddress {
    /// The wire form, little endian.
    pub fn encode(&self) -> [u8; ENDPOINT_ADDRESS_BYTES] {
        let mut bytes = [0; ENDPOINT_ADDRESS_BYTES];
        bytes[..16].copy_from_slice(&self.gid);
        bytes[16..18].copy_from_slice(&self.lid.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.mtu_bytes.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.queue_pair.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.packet_sequence.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.queue_key.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.token.to_le_bytes());
        bytes
    }

    /// Reads the wire form. Any bytes give an address; whether it leads anywhere the device finds out.
    pub fn decode(bytes: &[u8; ENDPOINT_ADDRESS_BYTES]) -> Self {
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let mut gid = [0; 16];
        gid.copy_from_slice(&bytes[..16]);
        Self {
            gid,
            lid: u16::from_le_bytes([bytes[16], bytes[17]]),
            mtu_bytes: word(20),
            queue_pair: word(24),
            packet_sequence: word(28) & 0x00ff_ffff,
            queue_key: word(32),
            token: u64::from(word(40)) | u64::from(word(44)) << 32,
        }
    }
}

/// How a connected queue pair deals with a peer that is slow or silent, and how the network is to treat its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectAttributes {
    /// Time without an answer before a retry, in nanoseconds; devices round as theirs allow.
    pub timeout_ns: u64,
    /// Retries before [`crate::CompletionStatus::RetryExceeded`], at most 7.
    pub retry_count: u8,
    /// Pause before a message is offered again to a receiver that was not ready, in nanoseconds.
    pub receiver_not_ready_timer_ns: u64,
    /// Offers before [`crate::CompletionStatus::ReceiverNotReadyRetryExceeded`]; 7 never gives up.
    pub receiver_not_ready_retries: u8,
    /// Traffic class of the packets (`grh.traffic_class`), of which networks make priorities: on RoCE its upper six
    /// bits are the code point of differentiated services. With 0 the device's own is taken. Devices without a way to
    /// say it leave it out.
    pub traffic_class: u8,
}

impl Default for ConnectAttributes {
    /// 67 ms and 7 retries; 10 µs and no end: what most RC applications use.
    fn default() -> Self {
        Self {
            timeout_ns: 67_000_000,
            retry_count: 7,
            receiver_not_ready_timer_ns: 10_000,
            receiver_not_ready_retries: 7,
            traffic_class: 0,
        }
    }
}

/// Ends a queue pair from any thread; see [`QueuePair::aborter`].
pub type Aborter = Box<dyn Fn() + Send + Sync>;

/// A queue pair. One owner posts to it; it may move between threads but is not shared.
pub trait QueuePair: Send + std::fmt::Debug + 'static {
    /// Memory of the device.
    type Region: Region;
    /// Address handles of the device.
    type AddressHandle: std::fmt::Debug;
    /// Memory of the peer that this process has mapped; [`NotMapped`](crate::NotMapped) where there is none.
    type Mapped: PeerMemory;

    /// Whether [`QueuePair::map_peer`] ever brings anything.
    const MAPS_PEERS: bool = false;

    /// Its number on the device.
    fn number(&self) -> u32;
    /// Its service.
    fn transport(&self) -> Transport;
    /// Where it stands now; the device moves it to an error state by itself.
    fn state(&self) -> QueuePairState;
    /// Whether it is known to be in error, without asking anybody: for the path of a call, where [`QueuePair::state`]
    /// may be a system call. What is not known yet the next completion tells.
    #[inline]
    fn is_known_failed(&self) -> bool {
        self.state() == QueuePairState::Error
    }
    /// What a peer needs to reach it.
    fn address(&self) -> EndpointAddress;

    /// Reset or Init to Init: takes RECEIVEs. `access` bounds what peers may do through this queue pair.
    ///
    /// # Errors
    /// When the state machine does not allow it.
    fn to_init(&mut self, access: Access) -> Result<(), VerbsError>;

    /// Init to ReadyToReceive: `remote` is the peer (connected transports; `None` for UD).
    ///
    /// # Errors
    /// When the state machine does not allow it or the address is not one of this kind of device. A peer that is not
    /// there yet, or no longer, is found out by the first request.
    fn to_ready_to_receive(
        &mut self,
        remote: Option<&EndpointAddress>,
        attributes: ConnectAttributes,
    ) -> Result<(), VerbsError>;

    /// ReadyToReceive to ReadyToSend.
    ///
    /// # Errors
    /// When the state machine does not allow it.
    fn to_ready_to_send(&mut self) -> Result<(), VerbsError>;

    /// ReadyToSend to SendQueueDrained.
    ///
    /// # Errors
    /// When the state machine does not allow it.
    fn to_send_queue_drained(&mut self) -> Result<(), VerbsError>;

    /// Any state to Error: what was posted is flushed with completions.
    fn to_error(&mut self);

    /// What moves this queue pair to Error from any thread, as [`QueuePair::to_error`] does, and tells a connected
    /// peer: for whoever has to end a queue pair whose owner is stuck. It holds nothing of the queue pair, and does
    /// nothing once that is gone. `None`: the device has no such thing.
    fn aborter(&self) -> Option<Aborter> {
        None
    }

    /// The two UDP addresses between which the packets of a connected queue pair go, this side's first: what a user
    /// needs to find the firewall that drops them. `None`: it has no peer, or its packets are not datagrams of this
    /// host.
    fn datagram_path(&self) -> Option<(SocketAddr, SocketAddr)> {
        None
    }

    /// Why it is in error, in words, where the device knows more than completions can say. `None`: it does not, or the
    /// queue pair is well.
    fn failure(&self) -> Option<String> {
        None
    }

    /// Any state to Reset: what was posted vanishes without completions.
    fn to_reset(&mut self);

    /// Hands a list of requests to the device with one doorbell; allocates nothing and does not block.
    ///
    /// # Errors
    /// The first request that was not taken, and why; those before it were posted. Failures after posting come as
    /// completions.
    fn post_send(
        &mut self,
        requests: &[SendRequest<'_, Self::Region, Self::AddressHandle>],
    ) -> Result<(), PostError>;

    /// Says that a WRITE of `length` bytes will soon go to `remote`, and that nobody reads there now. A hint without
    /// any effect but on speed: a device that places by CPU asks for the cache lines ahead of time. Others do nothing.
    #[inline]
    fn expect_write(&mut self, remote: RemoteAddress, length: usize) {
        let _ = (remote, length);
    }

    /// The peer's memory from `remote` on, if this queue pair may write all of it and it is mapped here. It is after a
    /// WRITE to it has succeeded; before, and where peers are elsewhere, this is `None`.
    #[inline]
    fn map_peer(&mut self, remote: RemoteAddress, length: usize) -> Option<Self::Mapped> {
        let _ = (remote, length);
        None
    }

    /// The same for who reads there: if this queue pair may read all of it and it is mapped here, as it is after a READ
    /// of it has succeeded.
    fn map_peer_source(
        &mut self,
        remote: RemoteAddress,
        length: usize,
    ) -> Option<Box<dyn PeerSource>> {
        let _ = (remote, length);
        None
    }

    /// Posts RECEIVEs, to a queue pair that has its own receive queue.
    ///
    /// # Errors
    /// The first request that was not taken, and why; those before it were posted.
    fn post_receive(
        &mut self,
        requests: &[ReceiveRequest<'_, Self::Region>],
    ) -> Result<(), PostError>;
}

/// A receive queue that several queue pairs draw from.
pub trait SharedReceiveQueue: Send + std::fmt::Debug + 'static {
    /// Memory of the device.
    type Region: Region;

    /// Posts RECEIVEs.
    ///
    /// # Errors
    /// The first request that was not taken, and why; those before it were posted.
    fn post_receive(
        &mut self,
        requests: &[ReceiveRequest<'_, Self::Region>],
    ) -> Result<(), PostError>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn addresses_round_trip(bytes in prop::array::uniform32(any::<u8>()), rest in prop::array::uniform16(any::<u8>())) {
            let mut wire = [0; ENDPOINT_ADDRESS_BYTES];
            wire[..32].copy_from_slice(&bytes);
            wire[32..].copy_from_slice(&rest);
            let address = EndpointAddress::decode(&wire);
            prop_assert_eq!(EndpointAddress::decode(&address.encode()), address);
        }
    }
}
