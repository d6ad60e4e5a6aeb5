//! Queue pairs and shared receive queues.

use std::net::SocketAddr;

use crate::error::{PostError, VerbsError};
use crate::mapped::{PeerMemory, PeerSource};
use crate::memory::{Access, Region, RemoteAddress};
use crate::state::QueuePairState;
use crate::work::{ReceiveRequest, SendRequest};

/// The transport service of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// RC: acknowledged and in order, all verbs.
    ReliableConnection,
    /// UC: connected, without acknowledgements, SEND and WRITE only.
    UnreliableConnection,
    /// UD: datagrams of at most one MTU to any peer, SEND only.
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

/// The source of RECEIVEs for a new queue pair.
#[derive(Debug)]
pub enum ReceiveQueue<'a, S> {
    /// A queue of its own with this many entries.
    Own(usize),
    /// A queue of its own with this many entries, only for RECEIVEs without segments: wake-ups and immediate data. A
    /// device whose receive buffers are its own memory then needs little of it.
    OwnEmpty(usize),
    /// A queue shared with other queue pairs.
    Shared(&'a S),
}

/// Parameters of a new queue pair.
#[derive(Debug)]
pub struct QueuePairConfig<'a, C, S> {
    /// Transport service.
    pub transport: Transport,
    /// Completion queue for sends.
    pub send_completions: &'a C,
    /// Completion queue for RECEIVEs; may be the same.
    pub receive_completions: &'a C,
    /// Number of entries of the send queue.
    pub send_requests: usize,
    /// Source of RECEIVEs.
    pub receive_queue: ReceiveQueue<'a, S>,
    /// Maximum number of segments in a request.
    pub segments: usize,
    /// Maximum number of inline bytes in a request.
    pub inline_bytes: usize,
}

/// Length of an encoded [`EndpointAddress`] in bytes.
pub const ENDPOINT_ADDRESS_BYTES: usize = 48;

/// The address of a queue pair, which the two sides of a connection exchange by any means they like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EndpointAddress {
    /// Global identifier of the device's port: an IPv6 or mapped IPv4 address on RoCE, a random number on shared
    /// memory.
    pub gid: [u8; 16],
    /// Local identifier on InfiniBand, zero elsewhere.
    pub lid: u16,
    /// Path MTU that this side requests, in bytes.
    pub mtu_bytes: u32,
    /// Queue pair number.
    pub queue_pair: u32,
    /// First packet sequence number of this side, 24 bits.
    pub packet_sequence: u32,
    /// UD: the queue key that it requires.
    pub queue_key: u32,
    /// For devices that require it, proof that the sender of this address received it from its owner.
    pub token: u64,
}

impl EndpointAddress {
    /// Encodes the address, in little endian.
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

    /// Decodes an address. Any bytes decode; whether the address is reachable is up to the device.
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

/// How a connected queue pair treats a slow or silent peer, and how the network is to treat its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectAttributes {
    /// Time without an answer before a retry, in nanoseconds; devices round it to a value that they support.
    pub timeout_ns: u64,
    /// Number of retries before [`crate::CompletionStatus::RetryExceeded`], at most 7.
    pub retry_count: u8,
    /// Delay before a message is sent again to a receiver that was not ready, in nanoseconds.
    pub receiver_not_ready_timer_ns: u64,
    /// Number of retries before [`crate::CompletionStatus::ReceiverNotReadyRetryExceeded`]; 7 means without limit.
    pub receiver_not_ready_retries: u8,
    /// Traffic class of the packets (`grh.traffic_class`), from which networks derive priorities: on RoCE its upper six
    /// bits are the DSCP. 0 selects the device's own default. Devices without support ignore it.
    pub traffic_class: u8,
}

impl Default for ConnectAttributes {
    /// 67 ms with 7 retries, and 10 µs with retries without limit, as most RC applications use.
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

/// Moves a queue pair to the error state from any thread; see [`QueuePair::aborter`].
pub type Aborter = Box<dyn Fn() + Send + Sync>;

/// A queue pair. A single owner posts to it; it may move between threads but is not shared.
pub trait QueuePair: Send + std::fmt::Debug + 'static {
    /// The device's regions.
    type Region: Region;
    /// The device's address handles.
    type AddressHandle: std::fmt::Debug;
    /// Peer memory that this process has mapped; [`NotMapped`](crate::NotMapped) for devices without mappings.
    type Mapped: PeerMemory;

    /// Whether [`QueuePair::map_peer`] ever returns a mapping.
    const MAPS_PEERS: bool = false;

    /// Its number on the device.
    fn number(&self) -> u32;
    /// Its transport service.
    fn transport(&self) -> Transport;
    /// Its current state; the device moves it to an error state by itself.
    fn state(&self) -> QueuePairState;
    /// Whether it is known to be in an error state, without a system call: for the path of a call, where
    /// [`QueuePair::state`] may be too expensive. An error that is not yet known is reported by the next completion.
    #[inline]
    fn is_known_failed(&self) -> bool {
        self.state() == QueuePairState::Error
    }
    /// The address that a peer needs to reach it.
    fn address(&self) -> EndpointAddress;

    /// Reset or Init to Init: RECEIVEs may be posted. `access` limits what peers may do through this queue pair.
    ///
    /// # Errors
    /// When the state machine does not allow it.
    fn to_init(&mut self, access: Access) -> Result<(), VerbsError>;

    /// Init to ReadyToReceive: `remote` is the peer (connected transports; `None` for UD).
    ///
    /// # Errors
    /// When the state machine does not allow it or the address does not belong to this kind of device. A peer that does
    /// not exist yet, or no longer, is detected only by the first request.
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

    /// Any state to Error: posted requests are flushed with completions.
    fn to_error(&mut self);

    /// Returns a function that moves this queue pair to Error from any thread, as [`QueuePair::to_error`] does, and
    /// notifies a connected peer. It serves to end a queue pair whose owner is stuck. It keeps nothing of the queue
    /// pair alive, and does nothing once that is gone. `None`: the device does not support it.
    fn aborter(&self) -> Option<Aborter> {
        None
    }

    /// The two UDP addresses between which the packets of a connected queue pair travel, this side's first: a user
    /// needs them to find a firewall that drops the packets. `None`: it has no peer, or its packets are not datagrams
    /// of this host.
    fn datagram_path(&self) -> Option<(SocketAddr, SocketAddr)> {
        None
    }

    /// Why it is in an error state, in words, if the device knows more than completions can report. `None`: the device
    /// does not, or there is no error.
    fn failure(&self) -> Option<String> {
        None
    }

    /// Any state to Reset: posted requests are dropped without completions.
    fn to_reset(&mut self);

    /// Passes a list of requests to the device with one doorbell; allocates nothing and does not block.
    ///
    /// # Errors
    /// The first request that was not accepted, and the reason; those before it were posted. Failures after posting are
    /// reported as completions.
    fn post_send(
        &mut self,
        requests: &[SendRequest<'_, Self::Region, Self::AddressHandle>],
    ) -> Result<(), PostError>;

    /// Hints that a WRITE of `length` bytes will soon go to `remote`, and that nobody is reading there now. It affects
    /// only speed: a device that places data by CPU prefetches the cache lines. Others do nothing.
    #[inline]
    fn expect_write(&mut self, remote: RemoteAddress, length: usize) {
        let _ = (remote, length);
    }

    /// Returns the peer's memory from `remote` on, if this queue pair may write all of it and it is mapped here, which
    /// it is after a WRITE to it has succeeded. Before that, and on devices that do not map a peer's memory, returns
    /// `None`.
    #[inline]
    fn map_peer(&mut self, remote: RemoteAddress, length: usize) -> Option<Self::Mapped> {
        let _ = (remote, length);
        None
    }

    /// The same for reading: available if this queue pair may read all of the memory and it is mapped here, which it is
    /// after a READ of it has succeeded.
    fn map_peer_source(
        &mut self,
        remote: RemoteAddress,
        length: usize,
    ) -> Option<Box<dyn PeerSource>> {
        let _ = (remote, length);
        None
    }

    /// Posts RECEIVEs to a queue pair that has its own receive queue.
    ///
    /// # Errors
    /// The first request that was not accepted, and the reason; those before it were posted.
    fn post_receive(
        &mut self,
        requests: &[ReceiveRequest<'_, Self::Region>],
    ) -> Result<(), PostError>;
}

/// A receive queue that is shared by several queue pairs.
pub trait SharedReceiveQueue: Send + std::fmt::Debug + 'static {
    /// The device's regions.
    type Region: Region;

    /// Posts RECEIVEs.
    ///
    /// # Errors
    /// The first request that was not accepted, and the reason; those before it were posted.
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
