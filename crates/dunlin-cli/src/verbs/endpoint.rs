//! One side of a measurement: a queue pair with its memory, and the requests that the tests post.

use dunlin_verbs::{
    Access, Completion, CompletionQueue, ConnectAttributes, Destination, Device, EndpointAddress,
    Operation, Payload, QueuePair, QueuePairConfig, QueuePairState, ReceiveQueue, ReceiveRequest,
    Region, RemoteAddress, RemoteKey, Segment, SendFlags, SendRequest, Transport,
    ENDPOINT_ADDRESS_BYTES, GRH_BYTES,
};
use serde::{Deserialize, Serialize};

use super::{Plan, Test};
use crate::commands::Failure;

/// Most requests in one list.
pub const BATCH_MAX: usize = 16;
/// Up to so many bytes travel in the request itself, as in perftest.
const INLINE_BYTES: usize = 220;
/// Of single requests one in so many is signaled.
const SIGNAL_EVERY: usize = 16;
/// Where the peer's atomics go.
const COUNTER_AT: usize = 0;
/// Where the old value of an atomic of ours comes.
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
    /// When a limit of the device is in the way.
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

    /// What the peer must know.
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

    /// What is measured.
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

    /// The last byte that came in: what ping-pong polls.
    #[inline]
    pub fn last_in(&self) -> u8 {
        let word = self
            .region
            .memory()
            .atomic_u64(self.in_at + self.in_bytes - 8);
        word.load(std::sync::atomic::Ordering::Acquire)
            .to_ne_bytes()[7]
    }

    /// Sets the last byte of what goes out.
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

    /// The first eight bytes of what came in.
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

    /// Posts `count` requests with one doorbell. The last one carries `last` and is signaled with `id`.
    ///
    /// # Errors
    /// When the queue pair does not take them.
    pub fn post_list(&mut self, count: usize, last: Operation, id: u64) -> Result<(), Failure> {
        self.post(count, last, id, SendFlags::SIGNALED, None)
    }

    /// Posts one request, signaled now and then; waits for room in the send queue.
    ///
    /// # Errors
    /// When the queue pair does not take it, or an earlier one failed.
    pub fn post_single(
        &mut self,
        operation: Operation,
        message: Option<&[u8]>,
    ) -> Result<(), Failure> {
        let mut patience = super::patience::Patience::new();
        while self.in_flight + 2 * SIGNAL_EVERY > self.send_requests {
            patience.wait(self)?;
        }
        self.unsignaled += 1;
        let (mut flags, mut worth) = (SendFlags::empty(), 0);
        if self.unsignaled == SIGNAL_EVERY {
            (flags, worth) = (SendFlags::SIGNALED, SIGNAL_EVERY as u64);
            self.unsignaled = 0;
        }
        self.in_flight += 1;
        self.post(1, operation, worth, flags, message)
    }

    fn post(
        &mut self,
        count: usize,
        last: Operation,
        id: u64,
        flags: SendFlags,
        message: Option<&[u8]>,
    ) -> Result<(), Failure> {
        let (offset, length) = match self.plan.test {
            Test::Atomic => (OLD_AT, 8),
            Test::Read => (self.in_at, self.plan.size),
            Test::Write | Test::Send => (OUT_AT, self.plan.size),
        };
        let segments = [Segment {
            region: &self.region,
            offset,
            length,
        }];
        let outgoing = matches!(self.plan.test, Test::Write | Test::Send);
        let payload = match (message, &self.inline) {
            (Some(message), _) => Payload::Inline(message),
            (None, Some(inline)) if outgoing => Payload::Inline(inline),
            _ => Payload::Segments(&segments),
        };
        let destination = self.peer.as_ref().and_then(|peer| {
            Some(Destination {
                handle: peer.handle.as_ref()?,
                queue_pair: peer.address.queue_pair,
                queue_key: peer.address.queue_key,
            })
        });
        let plain = match last {
            Operation::Send { .. } => Operation::Send { immediate: None },
            other => other,
        };
        let mut requests = [SendRequest {
            id: 0,
            operation: plain,
            payload,
            flags: SendFlags::empty(),
            destination,
        }; BATCH_MAX];
        let count = count.clamp(1, BATCH_MAX);
        let end = &mut requests[count - 1];
        (end.id, end.operation, end.flags) = (id, last, flags);
        self.pair
            .post_send(&requests[..count])
            .map_err(Failure::new)
    }

    /// Takes completions of sends; the requests of [`Endpoint::post_single`] are given back.
    ///
    /// # Errors
    /// When one failed.
    pub fn reap(&mut self) -> Result<(), Failure> {
        let mut retired = 0;
        self.poll_sends(|worth| retired += worth as usize)?;
        self.in_flight = self.in_flight.saturating_sub(retired);
        Ok(())
    }

    /// Takes completions of sends and hands on their ids.
    ///
    /// # Errors
    /// When one failed.
    #[inline]
    pub fn poll_sends(&mut self, mut each: impl FnMut(u64)) -> Result<(), Failure> {
        let mut done = [Completion::EMPTY; 32];
        let count = self.sends.poll(&mut done).map_err(Failure::new)?;
        for completion in &done[..count] {
            succeeded(completion)?;
            each(completion.id);
        }
        Ok(())
    }

    /// Takes messages that came, posts their RECEIVEs again, and hands on their immediate data; says how many.
    ///
    /// # Errors
    /// When one failed.
    #[inline]
    pub fn poll_receives(
        &mut self,
        mut each: impl FnMut(&Self, Option<u32>),
    ) -> Result<usize, Failure> {
        let mut came = [Completion::EMPTY; 32];
        let count = self.receives.poll(&mut came).map_err(Failure::new)?;
        for completion in &came[..count] {
            succeeded(completion)?;
            each(self, completion.immediate);
        }
        if count > 0 {
            self.post_receives(count)?;
        }
        Ok(count)
    }

    /// All RECEIVEs name the same place: what comes is counted and not kept.
    fn post_receives(&mut self, mut count: usize) -> Result<(), Failure> {
        let header = match self.plan.service {
            super::Service::Ud => GRH_BYTES,
            _ => 0,
        };
        let segments = [Segment {
            region: &self.region,
            offset: self.in_at - header,
            length: header + self.in_bytes,
        }];
        let requests = [ReceiveRequest {
            id: 0,
            segments: &segments,
        }; BATCH_MAX];
        while count > 0 {
            let some = count.min(BATCH_MAX);
            self.pair
                .post_receive(&requests[..some])
                .map_err(Failure::new)?;
            count -= some;
        }
        Ok(())
    }
}

#[inline]
fn succeeded(completion: &Completion) -> Result<(), Failure> {
    if completion.is_success() {
        return Ok(());
    }
    let words = format!("a request failed: {}", completion.status);
    Err(Failure::new(words).help("the peer process may have ended"))
}
