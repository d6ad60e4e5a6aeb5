//! Raw WRITEs, as perftest posts them: to the same places as a ring's slots, without pointers or messages.

use std::time::Duration;

use dunlin_verbs::{
    Access, Completion, CompletionQueue, ConnectAttributes, Device, EndpointAddress, Operation,
    Payload, QueuePair, QueuePairConfig, ReceiveQueue, Region, RemoteAddress, RemoteKey, Segment,
    SendFlags, SendRequest, Transport, ENDPOINT_ADDRESS_BYTES,
};

use super::Plan;
use crate::clock::clock;
use crate::commands::Failure;
use crate::report::Tally;

/// Entries of the send queue: perftest's tx-depth.
const DEPTH: usize = 128;
/// One in this many WRITEs is signaled: perftest's cq-mod is 100 and leaves no queue of 128 half full.
pub(super) const SIGNAL_EVERY: u64 = 64;
/// Maximum number of bytes sent inline, as in perftest.
const INLINE_BYTES: usize = 220;

/// One side of raw WRITEs.
#[derive(Debug)]
pub(super) struct Side<D: Device> {
    pub(super) region: D::Region,
    pub(super) completions: D::CompletionQueue,
    pub(super) pair: D::QueuePair,
}

fn making(error: dunlin_verbs::VerbsError) -> Failure {
    Failure::new(error).help("`dunlin devices` shows the limits of each device")
}

impl<D: Device> Side<D> {
    pub(super) fn new(device: &D, plan: &Plan, access: Access) -> Result<Self, Failure> {
        let domain = device.create_protection_domain().map_err(making)?;
        let bytes = plan.slots * plan.raw_slot_bytes();
        let region = device
            .allocate_region(&domain, bytes, access)
            .map_err(making)?;
        let completions = device
            .create_completion_queue(DEPTH, None)
            .map_err(making)?;
        let config = QueuePairConfig {
            transport: Transport::ReliableConnection,
            send_completions: &completions,
            receive_completions: &completions,
            send_requests: DEPTH,
            receive_queue: ReceiveQueue::Own(1),
            segments: 1,
            inline_bytes: INLINE_BYTES.min(device.attributes().max_inline_bytes),
        };
        let mut pair = device.create_queue_pair(&domain, &config).map_err(making)?;
        pair.to_init(Access::REMOTE_WRITE).map_err(making)?;
        Ok(Self {
            region,
            completions,
            pair,
        })
    }

    pub(super) fn offer(&self) -> Vec<u8> {
        let remote = self.region.remote();
        let mut offer = self.pair.address().encode().to_vec();
        offer.extend(remote.address.to_le_bytes());
        offer.extend(u64::from(remote.key.0).to_le_bytes());
        offer
    }

    pub(super) fn connect(&mut self, offer: &[u8]) -> Result<RemoteAddress, Failure> {
        let wrong = || Failure::new("received an offer of the wrong length");
        let (address, rest) = offer
            .split_at_checked(ENDPOINT_ADDRESS_BYTES)
            .ok_or_else(wrong)?;
        let address: &[u8; ENDPOINT_ADDRESS_BYTES] = address.try_into().map_err(|_| wrong())?;
        let ([memory, key], []) = rest.as_chunks::<8>() else {
            return Err(wrong());
        };
        let address = EndpointAddress::decode(address);
        let attributes = ConnectAttributes::default();
        self.pair
            .to_ready_to_receive(Some(&address), attributes)
            .map_err(making)?;
        self.pair.to_ready_to_send().map_err(making)?;
        Ok(RemoteAddress {
            address: u64::from_le_bytes(*memory),
            key: RemoteKey(u64::from_le_bytes(*key) as u32),
        })
    }
}

/// The target memory of the WRITEs.
#[derive(Debug)]
pub struct RawTarget<D: Device>(Side<D>);

impl<D: Device> RawTarget<D> {
    /// Creates it.
    ///
    /// # Errors
    /// When the device's limits do not permit it.
    pub fn new(device: &D, plan: &Plan) -> Result<Self, Failure> {
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        Side::new(device, plan, access).map(Self)
    }

    /// Its offer to the other side.
    pub fn offer(&self) -> Vec<u8> {
        self.0.offer()
    }

    /// Connects it to a writer.
    ///
    /// # Errors
    /// When the offer is invalid.
    pub fn connect(&mut self, offer: &[u8]) -> Result<(), Failure> {
        self.0.connect(offer).map(|_| ())
    }
}

/// The writer.
#[derive(Debug)]
pub struct RawWriter<D: Device> {
    side: Side<D>,
    target: RemoteAddress,
    size: usize,
    slot_bytes: usize,
    slots: usize,
    inline: Option<Vec<u8>>,
    posted: u64,
    retired: u64,
    looks: u32,
}

impl<D: Device> RawWriter<D> {
    /// Creates it, unconnected.
    ///
    /// # Errors
    /// When the device's limits do not permit it.
    pub fn new(device: &D, plan: &Plan) -> Result<Self, Failure> {
        let side = Side::new(device, plan, Access::LOCAL_WRITE)?;
        let inline = plan.size <= INLINE_BYTES.min(device.attributes().max_inline_bytes);
        Ok(Self {
            side,
            target: RemoteAddress {
                address: 0,
                key: RemoteKey(0),
            },
            size: plan.size,
            slot_bytes: plan.raw_slot_bytes(),
            slots: plan.slots,
            inline: inline.then(|| vec![7; plan.size]),
            posted: 0,
            retired: 0,
            looks: 0,
        })
    }

    /// Its offer to the other side.
    pub fn offer(&self) -> Vec<u8> {
        self.side.offer()
    }

    /// Connects it to its target.
    ///
    /// # Errors
    /// When the offer is invalid.
    pub fn connect(&mut self, offer: &[u8]) -> Result<(), Failure> {
        self.target = self.side.connect(offer)?;
        Ok(())
    }

    /// Posts WRITEs for a slice and waits until all are complete. Latency is from the post of a signaled one to its
    /// completion.
    ///
    /// # Errors
    /// When one fails.
    pub fn run(&mut self, slice: Duration) -> Result<Tally, Failure> {
        let mut tally = Tally::default();
        let clock = clock();
        let start = clock.raw();
        let elapsed = || Duration::from_nanos(clock.delta_as_nanos(start, clock.raw()));
        let first = self.posted;
        while elapsed() < slice {
            for _ in 0..SIGNAL_EVERY {
                while self.posted - self.retired >= DEPTH as u64 {
                    self.wait(&mut tally)?;
                }
                self.post()?;
            }
            self.reap(&mut tally)?;
        }
        // What was not signaled is not waited for one by one.
        while self.posted - self.retired >= SIGNAL_EVERY {
            self.wait(&mut tally)?;
        }
        tally.operations = self.posted - first;
        tally.bytes = tally.operations * self.size as u64;
        tally.elapsed = elapsed();
        Ok(tally)
    }

    #[inline(always)]
    fn post(&mut self) -> Result<(), Failure> {
        let offset = self.posted as usize % self.slots * self.slot_bytes;
        let segment = [Segment {
            region: &self.side.region,
            offset,
            length: self.size,
        }];
        let payload = match &self.inline {
            Some(inline) => Payload::Inline(inline),
            None => Payload::Segments(&segment),
        };
        self.posted += 1;
        let (id, flags) = if self.posted % SIGNAL_EVERY == 0 {
            (clock().raw(), SendFlags::SIGNALED)
        } else {
            (0, SendFlags::empty())
        };
        let write = Operation::Write {
            remote: self.target.plus(offset as u64),
            immediate: None,
        };
        self.side
            .pair
            .post_send(&[SendRequest::new(id, write, payload, flags)])
            .map_err(Failure::new)
    }

    /// Polls for completions, and lets the device's own thread run in between.
    fn wait(&mut self, tally: &mut Tally) -> Result<(), Failure> {
        self.looks = self.looks.wrapping_add(1);
        if self.looks % 1024 == 0 {
            std::thread::yield_now();
        }
        self.reap(tally)
    }

    fn reap(&mut self, tally: &mut Tally) -> Result<(), Failure> {
        let mut done = [Completion::EMPTY; 4];
        let count = self
            .side
            .completions
            .poll(&mut done)
            .map_err(Failure::new)?;
        for completion in &done[..count] {
            if !completion.is_success() {
                let words = format!("a request failed: {}", completion.status);
                return Err(Failure::new(words));
            }
            self.retired += SIGNAL_EVERY;
            let now = clock().raw();
            let took = clock().delta_as_nanos(completion.id, now);
            tally.latencies.record(took);
        }
        Ok(())
    }
}
