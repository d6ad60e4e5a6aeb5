//! A flow: a sender and a receiver of one connection, with their records.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use dunlin_sim::{HostId, Next, SimCompletionQueue, SimDevice, SimQueuePair, SimRegion};
use dunlin_verbs::{
    Access, Completion, CompletionQueue, ConnectAttributes, Destination, Device, Operation,
    Payload, QueuePair, QueuePairConfig, ReceiveQueue, ReceiveRequest, Region, Segment, SendFlags,
    SendRequest, Transport, GRH_BYTES,
};

use super::terrain::Terrain;
use crate::dice::{bytes_of, Dice};

/// The operation of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// SENDs.
    Send,
    /// WRITEs with immediate data.
    WriteWithImmediate,
    /// READs.
    Read,
    /// Fetch-and-adds on one cell.
    FetchAndAdd,
}

/// Record of a flow.
#[derive(Debug, Default)]
pub(super) struct Log {
    pub(super) posted: usize,
    /// Number of messages posted when the receiver had posted its first RECEIVEs, as many as it can; `None` before.
    pub(super) ready: Option<usize>,
    /// Messages and whether they succeeded, in the order of the completions.
    pub(super) completions: Vec<(usize, bool)>,
    /// Messages and whether their bytes were right, in the order of arrival.
    pub(super) received: Vec<(usize, bool)>,
    /// Old values of atomics; the final value of the cell is read from the region.
    pub(super) olds: Vec<u64>,
    pub(super) cell: Option<SimRegion>,
}

/// A connection and its load.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) number: usize,
    pub(super) from: HostId,
    pub(super) to: HostId,
    pub(super) transport: Transport,
    pub(super) kind: Kind,
    pub(super) messages: usize,
    bytes: usize,
    window: usize,
    pub(super) receives: usize,
    cores: (usize, usize),
    attributes: ConnectAttributes,
    /// Number of the sender's queue pair, once it exists.
    pair: AtomicU32,
}

/// The bytes of a message.
fn pattern(flow: usize, message: usize, length: usize) -> Vec<u8> {
    let mut bytes = bytes_of(flow as u64, message as u64, length);
    bytes[..8].copy_from_slice(&(message as u64).to_ne_bytes());
    bytes
}

impl Flow {
    pub(super) fn draw(number: usize, terrain: &Terrain, dice: &mut Dice) -> Self {
        let (from, to) = (terrain.any_host(dice), terrain.any_host(dice));
        let transport = match dice.between(0, 9) {
            0 | 1 => Transport::UnreliableDatagram,
            2 | 3 => Transport::UnreliableConnection,
            _ => Transport::ReliableConnection,
        };
        let kind = match (transport, dice.between(0, 3)) {
            (Transport::UnreliableDatagram, _) | (_, 0) => Kind::Send,
            (Transport::UnreliableConnection, _) | (_, 1) => Kind::WriteWithImmediate,
            (_, 2) => Kind::Read,
            _ => Kind::FetchAndAdd,
        };
        let mtu = terrain.mtu_bytes[from.number()];
        let most = if transport == Transport::UnreliableDatagram {
            mtu
        } else {
            5 * mtu
        };
        Self {
            number,
            from,
            to,
            transport,
            kind,
            messages: dice.between(5, 150) as usize,
            bytes: if kind == Kind::FetchAndAdd {
                8
            } else {
                dice.between(8, most as u64) as usize
            },
            window: dice.between(1, 20) as usize,
            receives: dice.between(1, 40) as usize,
            cores: (dice.next() as usize, dice.next() as usize),
            attributes: ConnectAttributes {
                timeout_ns: dice.between(20_000, 500_000),
                retry_count: dice.between(0, 7) as u8,
                receiver_not_ready_timer_ns: dice.between(1_000, 50_000),
                receiver_not_ready_retries: 7,
                ..ConnectAttributes::default()
            },
            pair: AtomicU32::new(0),
        }
    }

    pub(super) fn name(&self) -> String {
        format!(
            "{} {:?} of {} B, {} messages, window {}, {} -> {}",
            self.transport,
            self.kind,
            self.bytes,
            self.messages,
            self.window,
            self.from.number(),
            self.to.number()
        )
    }

    /// The sender's host and queue pair.
    pub(super) fn queue_pair(&self) -> Option<(HostId, u32)> {
        let number = self.pair.load(Ordering::Relaxed);
        (number != 0).then_some((self.from, number))
    }

    fn make_pair(
        &self,
        device: &SimDevice,
        domain: &dunlin_sim::SimProtectionDomain,
        queue: &SimCompletionQueue,
    ) -> SimQueuePair {
        let config = QueuePairConfig {
            transport: self.transport,
            send_completions: queue,
            receive_completions: queue,
            send_requests: self.window,
            receive_queue: ReceiveQueue::Own(self.receives),
            segments: 1,
            inline_bytes: 0,
        };
        let mut pair = device
            .create_queue_pair(domain, &config)
            .expect("within the limits");
        pair.to_init(Access::all()).expect("from Reset");
        pair
    }

    /// Connects and starts both threads.
    pub(super) fn start(&self, terrain: &Terrain) -> Arc<Mutex<Log>> {
        let log = Arc::new(Mutex::new(Log::default()));
        let devices = [self.from, self.to].map(|host| terrain.cluster.device(host));
        let domains = devices
            .each_ref()
            .map(|device| device.create_protection_domain().expect("a domain"));
        let queues = devices
            .each_ref()
            .map(|device| device.create_completion_queue(1024, None).expect("a queue"));
        let slot = self.bytes.next_multiple_of(8) + GRH_BYTES;
        let region = |side: usize, slots: usize| {
            devices[side]
                .allocate_region(&domains[side], slots * slot, Access::all())
                .expect("a region")
        };
        let (local, remote) = (
            region(0, self.messages),
            region(1, self.messages.max(self.receives)),
        );
        for message in 0..self.messages {
            let bytes = pattern(self.number, message, self.bytes);
            match self.kind {
                Kind::Read => remote.memory().write(message * slot, &bytes),
                Kind::FetchAndAdd => {}
                _ => local.memory().write(message * slot, &bytes),
            }
        }
        let [sends, receives] = queues;
        let mut pair = self.make_pair(&devices[0], &domains[0], &sends);
        let mut other = self.make_pair(&devices[1], &domains[1], &receives);
        self.pair.store(pair.number(), Ordering::Relaxed);
        let addresses = [other.address(), pair.address()];
        for (pair, address) in [&mut pair, &mut other].into_iter().zip(&addresses) {
            let address = (self.transport != Transport::UnreliableDatagram).then_some(address);
            pair.to_ready_to_receive(address, self.attributes)
                .expect("from Init");
            pair.to_ready_to_send().expect("from ReadyToReceive");
        }
        let handle = devices[0]
            .create_address_handle(&domains[0], &addresses[0])
            .expect("of this cluster");
        if self.kind == Kind::FetchAndAdd {
            log.lock().expect("nobody else has it").cell = Some(remote.clone());
        }
        let target = (handle, addresses[0]);
        self.start_sender(
            terrain,
            &log,
            pair,
            sends,
            (local, remote.remote(), slot),
            target,
        );
        self.start_receiver(terrain, &log, other, receives, (remote, slot));
        log
    }

    fn start_sender(
        &self,
        terrain: &Terrain,
        log: &Arc<Mutex<Log>>,
        mut pair: SimQueuePair,
        mut queue: SimCompletionQueue,
        (local, remote, slot): (SimRegion, dunlin_verbs::RemoteAddress, usize),
        (handle, address): (dunlin_sim::SimAddressHandle, dunlin_verbs::EndpointAddress),
    ) {
        let (number, kind, bytes, messages, window) = (
            self.number,
            self.kind,
            self.bytes,
            self.messages,
            self.window,
        );
        let datagram = self.transport == Transport::UnreliableDatagram;
        let log = Arc::clone(log);
        let core = self.cores.0 % terrain.cores[self.from.number()];
        terrain.cluster.spawn(self.from, core, move |_now: u64| {
            let mut log = log.lock().expect("steps do not panic");
            let mut some = [Completion::EMPTY; 8];
            let count = queue.poll(&mut some).expect("the queue holds all");
            for completion in &some[..count] {
                let (message, good) = (completion.id as usize, completion.is_success());
                log.completions.push((message, good));
                if good && kind == Kind::Read {
                    let mut found = vec![0; bytes];
                    local.memory().read(message * slot, &mut found);
                    log.received
                        .push((message, found == pattern(number, message, bytes)));
                }
                if good && kind == Kind::FetchAndAdd {
                    let old = local
                        .memory()
                        .atomic_u64(message * slot)
                        .load(Ordering::Acquire);
                    log.olds.push(old);
                }
            }
            let out = log.posted - log.completions.len();
            if log.posted < messages && out < window {
                let message = log.posted;
                let remote = remote.plus((message * slot) as u64);
                let operation = match kind {
                    Kind::Send => Operation::Send {
                        immediate: Some(message as u32),
                    },
                    Kind::WriteWithImmediate => Operation::Write {
                        remote,
                        immediate: Some(message as u32),
                    },
                    Kind::Read => Operation::Read { remote },
                    Kind::FetchAndAdd => Operation::FetchAndAdd {
                        remote: remote.plus(0u64.wrapping_sub((message * slot) as u64)),
                        add: 1,
                    },
                };
                let segments = [Segment {
                    region: &local,
                    offset: message * slot,
                    length: bytes,
                }];
                let mut request = SendRequest::new(
                    message as u64,
                    operation,
                    Payload::Segments(&segments),
                    SendFlags::SIGNALED,
                );
                if datagram {
                    request.destination = Some(Destination {
                        handle: &handle,
                        queue_pair: address.queue_pair,
                        queue_key: address.queue_key,
                    });
                }
                pair.post_send(&[request])
                    .expect("the window fits the queue");
                log.posted += 1;
                return Next::Again;
            }
            if log.completions.len() == messages {
                return Next::Done;
            }
            if count > 0 {
                Next::Again
            } else {
                Next::Poll
            }
        });
    }

    fn start_receiver(
        &self,
        terrain: &Terrain,
        log: &Arc<Mutex<Log>>,
        mut pair: SimQueuePair,
        mut queue: SimCompletionQueue,
        (region, slot): (SimRegion, usize),
    ) {
        let (number, kind, bytes, depth) = (self.number, self.kind, self.bytes, self.receives);
        let header = if self.transport == Transport::UnreliableDatagram {
            GRH_BYTES
        } else {
            0
        };
        let log = Arc::clone(log);
        let core = self.cores.1 % terrain.cores[self.to.number()];
        let mut free: VecDeque<usize> = (0..depth).collect();
        terrain.cluster.spawn(self.to, core, move |_now: u64| {
            let mut some = [Completion::EMPTY; 8];
            let count = queue.poll(&mut some).expect("the queue holds all");
            let mut log = log.lock().expect("steps do not panic");
            let mut failed = false;
            for completion in &some[..count] {
                let place = completion.id as usize;
                if !completion.is_success() {
                    failed = true;
                    continue;
                }
                let message = completion.immediate.expect("each message has a number") as usize;
                let at = if kind == Kind::WriteWithImmediate {
                    message
                } else {
                    place
                };
                let mut found = vec![0; bytes];
                region.memory().read(at * slot + header, &mut found);
                let right = found == pattern(number, message, bytes);
                log.received.push((message, right));
                free.push_back(place);
            }
            if failed {
                return Next::Done;
            }
            // Messages posted from now on find the RECEIVEs of this step.
            let posted = log.posted;
            log.ready.get_or_insert(posted);
            drop(log);
            while let Some(place) = free.pop_front() {
                let segments = [Segment {
                    region: &region,
                    offset: place * slot,
                    length: slot,
                }];
                pair.post_receive(&[ReceiveRequest {
                    id: place as u64,
                    segments: &segments,
                }])
                .expect("as many as fit");
            }
            if count > 0 {
                Next::Again
            } else {
                Next::Poll
            }
        });
    }
}
