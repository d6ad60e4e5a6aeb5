//! RPC by datagrams: request and response are SENDs on one UD queue pair a thread (FaSST §4, HERD's and eRPC's way
//! too).

use std::collections::VecDeque;
use std::sync::Arc;

use dunlin_sim::{
    Cluster, HostId, Next, SimAddressHandle, SimCompletionQueue, SimDevice, SimQueuePair, SimRegion,
};
use dunlin_verbs::{
    Access, Completion, CompletionOpcode, CompletionQueue, ConnectAttributes, Destination, Device,
    EndpointAddress, Operation, Payload, QueuePair, QueuePairConfig, ReceiveQueue, ReceiveRequest,
    Segment, SendFlags, SendRequest, Transport, Work, GRH_BYTES,
};

use super::Answers;

/// How the threads do it.
#[derive(Clone, Copy, Debug)]
pub struct Datagrams {
    /// Bytes of request and response.
    pub bytes: usize,
    /// Requests outstanding of each requesting thread.
    pub window: usize,
    /// Whether requests, and responses, that are ready together go with one doorbell.
    pub batch: bool,
    /// User-level threads: a switch for each response.
    pub coroutines: bool,
    /// What a handler computes, in nanoseconds.
    pub handler_ns: u64,
}

/// What an RPC does for a datagram that it sends, and for one that it takes, beside verbs: as the RPC itself is charged
/// (`effort` of `dunlin-rpc`).
const DATAGRAM: Work = Work::Instructions(520);
/// RECEIVEs kept posted.
const RECEIVES: usize = 512;
/// Entries of the send queue, and the share that is signaled. A signaled completion may stand behind as many messages
/// as there are RECEIVEs, each of which is answered by a send.
const SENDS: usize = 1024;
const SIGNAL_EVERY: u64 = 64;
/// Set in the immediate of a response.
const RESPONSE: u32 = 1 << 31;

/// A thread on a host.
struct Member {
    device: SimDevice,
    pair: SimQueuePair,
    queue: SimCompletionQueue,
    region: SimRegion,
}

/// Starts threads that request (`requesters`: host and core) of threads that answer (`servers`); a thread in both lists
/// does both. Gives what is known of the responses.
///
/// # Panics
/// When a device refuses.
pub fn datagram_rpc(
    cluster: &Cluster,
    requesters: &[(HostId, usize)],
    servers: &[(HostId, usize)],
    plan: Datagrams,
) -> Arc<Answers> {
    let mut places: Vec<(HostId, usize)> = servers.to_vec();
    places.extend(requesters.iter().filter(|place| !servers.contains(place)));
    let mut members = Vec::new();
    let mut addresses: Vec<(SimAddressHandle, EndpointAddress)> = Vec::new();
    for &(host, _) in &places {
        let member = member(cluster, host);
        let address = member.pair.address();
        let domain = member.device.create_protection_domain().expect("a domain");
        let handle = member
            .device
            .create_address_handle(&domain, &address)
            .expect("of this cluster");
        addresses.push((handle, address));
        members.push(member);
    }
    let addresses = Arc::new(addresses);
    let answers = Arc::new(Answers::default());
    for (number, (member, &(host, core))) in members.into_iter().zip(&places).enumerate() {
        let requests = requesters.contains(&(host, core));
        let others: Vec<usize> = (0..servers.len())
            .filter(|&server| places[server].0 != host)
            .collect();
        let worker = Worker {
            number: number as u32,
            others: if requests { others } else { Vec::new() },
            plan,
            addresses: Arc::clone(&addresses),
            answers: Arc::clone(&answers),
            begun: vec![VecDeque::new(); if requests { servers.len() } else { 0 }],
            member,
            outstanding: 0,
            sent: 0,
            free: (0..RECEIVES as u64).collect(),
            random: (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15),
        };
        cluster.spawn(host, core, worker);
    }
    answers
}

fn member(cluster: &Cluster, host: HostId) -> Member {
    let device = cluster.device(host);
    let domain = device.create_protection_domain().expect("a domain");
    let region = device
        .allocate_region(&domain, (RECEIVES + 1) * 4160, Access::LOCAL_WRITE)
        .expect("a region");
    let queue = device
        .create_completion_queue(RECEIVES + SENDS, None)
        .expect("a queue");
    let config = QueuePairConfig {
        transport: Transport::UnreliableDatagram,
        send_completions: &queue,
        receive_completions: &queue,
        send_requests: SENDS,
        receive_queue: ReceiveQueue::Own(RECEIVES),
        segments: 1,
        inline_bytes: 64,
    };
    let mut pair = device
        .create_queue_pair(&domain, &config)
        .expect("within the limits");
    pair.to_init(Access::LOCAL_WRITE).expect("from Reset");
    pair.to_ready_to_receive(None, ConnectAttributes::default())
        .expect("from Init");
    pair.to_ready_to_send().expect("from ReadyToReceive");
    Member {
        device,
        pair,
        queue,
        region,
    }
}

struct Worker {
    number: u32,
    /// Servers of whom it requests.
    others: Vec<usize>,
    plan: Datagrams,
    addresses: Arc<Vec<(SimAddressHandle, EndpointAddress)>>,
    answers: Arc<Answers>,
    /// When each request that is out began, by server: a server answers in the order of arrival.
    begun: Vec<VecDeque<u64>>,
    member: Member,
    outstanding: usize,
    sent: u64,
    /// Places of the region without a RECEIVE.
    free: Vec<u64>,
    random: u64,
}

impl Worker {
    fn next_server(&mut self) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.others[(self.random >> 11) as usize % self.others.len()]
    }

    /// A response has come from this server.
    fn answered(&mut self, server: usize, now_ns: u64) {
        let begun = self.begun[server].pop_front();
        self.answers.add(1);
        self.answers.time_of(now_ns - begun.expect("it was asked"));
    }

    /// Posts a RECEIVE to each free place.
    fn post_receives(&mut self) {
        while let Some(place) = self.free.pop() {
            let segments = [Segment {
                region: &self.member.region,
                offset: place as usize * 4160,
                length: GRH_BYTES + self.plan.bytes,
            }];
            let request = ReceiveRequest {
                id: place,
                segments: &segments,
            };
            self.member
                .pair
                .post_receive(&[request])
                .expect("as many as fit");
        }
    }

    /// Sends to each `(member, immediate)`, with one doorbell or one each.
    fn send(&mut self, to: &[(usize, u32)]) {
        let bytes = [0u8; 64];
        let segments = [Segment {
            region: &self.member.region,
            offset: RECEIVES * 4160,
            length: self.plan.bytes,
        }];
        let payload = if self.plan.bytes <= 60 {
            Payload::Inline(&bytes[..self.plan.bytes])
        } else {
            Payload::Segments(&segments)
        };
        let mut list = Vec::with_capacity(to.len());
        for &(member, immediate) in to {
            let (handle, address) = &self.addresses[member];
            self.sent += 1;
            let mut flags = SendFlags::empty();
            flags.set(SendFlags::SIGNALED, self.sent % SIGNAL_EVERY == 0);
            let operation = Operation::Send {
                immediate: Some(immediate),
            };
            let mut request = SendRequest::new(u64::MAX, operation, payload, flags);
            request.destination = Some(Destination {
                handle,
                queue_pair: address.queue_pair,
                queue_key: address.queue_key,
            });
            list.push(request);
        }
        if self.plan.batch {
            self.member
                .pair
                .post_send(&list)
                .expect("signaled often enough");
        } else {
            for request in &list {
                self.member
                    .pair
                    .post_send(std::slice::from_ref(request))
                    .expect("signaled often enough");
            }
        }
    }
}

impl dunlin_sim::Step for Worker {
    fn step(&mut self, now_ns: u64) -> Next {
        if self.answers.are_enough() {
            return Next::Done;
        }
        let mut some = [Completion::EMPTY; 16];
        let count = self
            .member
            .queue
            .poll(&mut some)
            .expect("the queue holds all");
        let mut send = Vec::new();
        for completion in &some[..count] {
            if completion.opcode != CompletionOpcode::Receive {
                continue;
            }
            self.free.push(completion.id);
            let immediate = completion.immediate.expect("each has one");
            SimDevice::charge(Work::Arrived);
            SimDevice::charge(DATAGRAM);
            if immediate & RESPONSE != 0 {
                self.outstanding -= 1;
                self.answered((immediate & !RESPONSE) as usize, now_ns);
                if self.plan.coroutines {
                    SimDevice::charge(Work::Switch);
                }
            } else {
                SimDevice::charge(Work::Compute(self.plan.handler_ns));
                send.push((immediate as usize, self.number | RESPONSE));
            }
        }
        self.post_receives();
        if !self.others.is_empty() {
            // Not all at once, so that a step stays short.
            for _ in self.outstanding..self.plan.window.min(self.outstanding + 8) {
                let server = self.next_server();
                self.begun[server].push_back(now_ns);
                send.push((server, self.number));
                self.outstanding += 1;
            }
        }
        for _ in &send {
            SimDevice::charge(DATAGRAM);
        }
        if !send.is_empty() {
            self.send(&send);
        }
        if count == 0 && send.is_empty() {
            Next::Poll
        } else {
            Next::Again
        }
    }
}
