//! One side of a measurement: a queue pair with its memory and its peer.

mod requests;

use dunlin_verbs::{
    Access, ConnectAttributes, Device, EndpointAddress, Operation, QueuePair, QueuePairConfig,
    QueuePairState, ReceiveQueue, Region, RemoteAddress, RemoteKey, Transport,
    ENDPOINT_ADDRESS_BYTES, GRH_BYTES,
};
use serde::{Deserialize, Serialize};

use super::{Plan, Test};
use crate::commands::Failure;

/// Maximum number of bytes sent inline, as in perftest.
const INLINE_BYTES: usize = 220;
/// One in this many single requests is signaled.
const SIGNAL_EVERY: usize = 16;
/// Where the peer's atomics go.
const COUNTER_AT: usize = 0;
/// Place of the old value returned by a local atomic.
const OLD_AT: usize = 8;
/// Where our payload is.
const OUT_AT: usize = 64;

/// What each side tells the other.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Offer {
    queue_pair: Vec<u8>,
    memory: u64,
    key: u32,
}

#[derive(Debug)]
struct Peer<H> {
    memory: RemoteAddress,
    handle: Option<H>,
    address: EndpointAddress,
}

/// One side.
#[derive(Debug)]
pub struct Endpoint<D: Device> {
    plan: Plan,
    device: D,
    domain: D::ProtectionDomain,
    region: D::Region,
    sends: D::CompletionQueue,
    receives: D::CompletionQueue,
    pair: D::QueuePair,
    peer: Option<Peer<D::AddressHandle>>,
    inline: Option<Vec<u8>>,
    in_at: usize,
    in_bytes: usize,
    send_requests: usize,
    in_flight: usize,
    unsignaled: usize,
}

/// What cannot be made or changed on a device.
fn making(error: dunlin_verbs::VerbsError) -> Failure {
    Failure::new(error).help("`dunlin devices` shows the limits of each device")
}

impl<D: Device> Endpoint<D> {
    /// A side that knows no peer yet.
    ///
    /// # Errors
    /// When the device's limits do not permit it.
    pub fn new(device: D, plan: Plan) -> Result<Self, Failure> {
        let attributes = device.attributes();
        let inline_bytes = INLINE_BYTES.min(attributes.max_inline_bytes);
        let inline = (plan.size <= inline_bytes).then(|| vec![7; plan.size]);
        let domain = device.create_protection_domain().map_err(making)?;
        // What comes in ends on 8 bytes, so that its last byte can be polled within an atomic.
        let in_bytes = plan.size.max(8);
        let in_end = (OUT_AT + plan.size + 2 * 64 + GRH_BYTES + in_bytes).next_multiple_of(64);
        let access = Access::LOCAL_WRITE
            | Access::REMOTE_WRITE
            | Access::REMOTE_READ
            | Access::REMOTE_ATOMIC;
        let region = device
            .allocate_region(&domain, in_end, access)
            .map_err(making)?;
        region.memory().fill(OUT_AT, plan.size, 7);
        let send_requests = 2 * plan.outstanding + 4 * SIGNAL_EVERY;
        let receive_requests = plan.outstanding + SIGNAL_EVERY;
        let sends = device
            .create_completion_queue(send_requests, None)
            .map_err(making)?;
        let receives = device
            .create_completion_queue(receive_requests, None)
            .map_err(making)?;
        let config = QueuePairConfig {
            transport: plan.service.into(),
            send_completions: &sends,
            receive_completions: &receives,
            send_requests,
            receive_queue: ReceiveQueue::Own(receive_requests),
            segments: 1,
            inline_bytes,
        };
        let mut pair = device.create_queue_pair(&domain, &config).map_err(making)?;
        pair.to_init(access).map_err(making)?;
        let mut endpoint = Self {
            plan,
            domain,
            region,
            sends,
            receives,
            pair,
            peer: None,
            inline,
            in_at: in_end - in_bytes,
            in_bytes,
            send_requests,
            in_flight: 0,
            unsignaled: 0,
            device,
        };
        if plan.test == Test::Send {
            endpoint.post_receives(receive_requests)?;
        }
        Ok(endpoint)
    }

    /// What the peer must know to connect.
    pub fn offer(&self) -> Offer {
        let memory = self.region.remote();
        Offer {
            queue_pair: self.pair.address().encode().to_vec(),
            memory: memory.address,
            key: memory.key.0,
        }
    }

    /// Joins it to the peer that made an offer.
    ///
    /// # Errors
    /// When the device does not take the address.
    pub fn connect(&mut self, offer: &Offer) -> Result<(), Failure> {
        let bytes: &[u8; ENDPOINT_ADDRESS_BYTES] = offer
            .queue_pair
            .as_slice()
            .try_into()
            .map_err(|_| Failure::new("the peer's address has the wrong length"))?;
        let address = EndpointAddress::decode(bytes);
        let datagrams = self.pair.transport() == Transport::UnreliableDatagram;
        let remote = (!datagrams).then_some(&address);
        self.pair
            .to_ready_to_receive(remote, ConnectAttributes::default())
            .map_err(making)?;
        self.pair.to_ready_to_send().map_err(making)?;
        let handle = if datagrams {
            let handle = self.device.create_address_handle(&self.domain, &address);
            Some(handle.map_err(making)?)
        } else {
            None
        };
        self.peer = Some(Peer {
            memory: RemoteAddress {
                address: offer.memory,
                key: RemoteKey(offer.key),
            },
            handle,
            address,
        });
        Ok(())
    }

    /// The plan of the measurement.
    pub fn plan(&self) -> Plan {
        self.plan
    }

    /// Where the queue pair stands.
    pub fn state(&self) -> QueuePairState {
        self.pair.state()
    }

    /// The verb of the plan: WRITEs go where the peer polls, READs fetch what the peer would send.
    pub fn operation(&self) -> Operation {
        let memory = self.peer.as_ref().map(|peer| peer.memory);
        let at = |offset: usize| {
            let nowhere = RemoteAddress {
                address: 0,
                key: RemoteKey(0),
            };
            memory.unwrap_or(nowhere).plus(offset as u64)
        };
        match self.plan.test {
            // The last byte of the payload is the last byte of the place.
            Test::Write => Operation::Write {
                remote: at(self.in_at + self.in_bytes - self.plan.size),
                immediate: None,
            },
            Test::Read => Operation::Read { remote: at(OUT_AT) },
            Test::Send => Operation::Send { immediate: None },
            Test::Atomic => Operation::FetchAndAdd {
                remote: at(COUNTER_AT),
                add: 1,
            },
        }
    }

    /// The last byte received, which ping-pong polls.
    #[inline]
    pub fn last_in(&self) -> u8 {
        let word = self
            .region
            .memory()
            .atomic_u64(self.in_at + self.in_bytes - 8);
        word.load(std::sync::atomic::Ordering::Acquire)
            .to_ne_bytes()[7]
    }

    /// Sets the last byte to be sent.
    #[inline]
    pub fn set_last_out(&mut self, byte: u8) {
        match &mut self.inline {
            Some(inline) => inline[self.plan.size - 1] = byte,
            None => self
                .region
                .memory()
                .write(OUT_AT + self.plan.size - 1, &[byte]),
        }
    }

    /// The first eight bytes received.
    pub fn first_in(&self) -> u64 {
        let mut bytes = [0; 8];
        self.region.memory().read(self.in_at, &mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// The value that the last atomic of ours found.
    pub fn old(&self) -> u64 {
        let old = self.region.memory().atomic_u64(OLD_AT);
        old.load(std::sync::atomic::Ordering::Acquire)
    }
}
