//! What the tests share: a device with a queue pair, and waiting with a limit.
#![allow(dead_code, missing_docs, unreachable_pub)]

use std::time::{Duration, Instant};

use dunlin_shm::{
    ShmAddressHandle, ShmCompletionQueue, ShmConfig, ShmDevice, ShmProtectionDomain, ShmQueuePair,
    ShmRegion, ShmSharedReceiveQueue,
};
use dunlin_verbs::{
    Access, Completion, CompletionQueue, ConnectAttributes, Device, EndpointAddress, Operation,
    Payload, QueuePair, QueuePairConfig, ReceiveQueue, ReceiveRequest, Region, RemoteAddress,
    Segment, SendFlags, SendRequest, Transport,
};

pub mod addresses;
pub mod process;

pub const SIZE: usize = 64 << 10;

/// One side of a connection.
pub struct Side {
    pub device: ShmDevice,
    pub domain: ShmProtectionDomain,
    pub region: ShmRegion,
    pub sends: ShmCompletionQueue,
    pub receives: ShmCompletionQueue,
    pub pair: ShmQueuePair,
}

pub fn all() -> Access {
    Access::all()
}

impl Side {
    pub fn new(transport: Transport) -> Self {
        Self::on(&ShmDevice::open(ShmConfig::default()).unwrap(), transport)
    }

    pub fn on(device: &ShmDevice, transport: Transport) -> Self {
        let domain = device.create_protection_domain().unwrap();
        let region = device.allocate_region(&domain, SIZE, all()).unwrap();
        let sends = device.create_completion_queue(256, None).unwrap();
        let receives = device.create_completion_queue(256, None).unwrap();
        let pair = device
            .create_queue_pair(
                &domain,
                &QueuePairConfig {
                    transport,
                    send_completions: &sends,
                    receive_completions: &receives,
                    send_requests: 64,
                    receive_queue: ReceiveQueue::<ShmSharedReceiveQueue>::Own(64),
                    segments: 4,
                    inline_bytes: 4096,
                },
            )
            .unwrap();
        Self {
            device: device.clone(),
            domain,
            region,
            sends,
            receives,
            pair,
        }
    }

    pub fn connect(&mut self, remote: &EndpointAddress) {
        self.connect_with(remote, ConnectAttributes::default());
    }

    pub fn connect_with(&mut self, remote: &EndpointAddress, attributes: ConnectAttributes) {
        self.pair.to_init(all()).unwrap();
        let remote = (self.pair.transport() != Transport::UnreliableDatagram).then_some(remote);
        self.pair.to_ready_to_receive(remote, attributes).unwrap();
        self.pair.to_ready_to_send().unwrap();
    }

    pub fn segment(&self, offset: usize, length: usize) -> Segment<'_, ShmRegion> {
        Segment {
            region: &self.region,
            offset,
            length,
        }
    }

    pub fn receive(&mut self, id: u64, offset: usize, length: usize) {
        let region = self.region.clone();
        let segments = [Segment {
            region: &region,
            offset,
            length,
        }];
        self.pair
            .post_receive(&[ReceiveRequest {
                id,
                segments: &segments,
            }])
            .unwrap();
    }

    /// Posts a signaled request with the segment `offset .. offset + length` of our region.
    pub fn post(&mut self, id: u64, operation: Operation, offset: usize, length: usize) {
        let region = self.region.clone();
        let segments = [Segment {
            region: &region,
            offset,
            length,
        }];
        self.pair
            .post_send(&[SendRequest::new(
                id,
                operation,
                Payload::Segments(&segments),
                SendFlags::SIGNALED,
            )])
            .unwrap();
    }

    pub fn post_inline(&mut self, id: u64, operation: Operation, bytes: &[u8]) {
        self.pair
            .post_send(&[SendRequest::<_, ShmAddressHandle>::new(
                id,
                operation,
                Payload::Inline(bytes),
                SendFlags::SIGNALED,
            )])
            .unwrap();
    }

    pub fn remote(&self, offset: u64) -> RemoteAddress {
        self.region.remote().plus(offset)
    }

    pub fn sent(&mut self) -> Completion {
        poll_one(&mut self.sends)
    }

    pub fn received(&mut self) -> Completion {
        poll_one(&mut self.receives)
    }
}

pub fn pair_of(transport: Transport) -> (Side, Side) {
    let (mut a, mut b) = (Side::new(transport), Side::new(transport));
    let (at_a, at_b) = (a.pair.address(), b.pair.address());
    a.connect(&at_b);
    b.connect(&at_a);
    (a, b)
}

pub fn poll_one(queue: &mut ShmCompletionQueue) -> Completion {
    let mut one = [Completion::EMPTY];
    let mut found = None;
    wait(|| {
        if queue.poll(&mut one).unwrap() == 1 {
            found = Some(one[0]);
        }
        found.is_some()
    });
    found.unwrap()
}

/// Polls `done` until it is true; a hang is a failure.
pub fn wait(mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(60), "waited in vain");
        std::thread::yield_now();
    }
}

pub fn quiet(queue: &mut ShmCompletionQueue) {
    let mut one = [Completion::EMPTY];
    assert_eq!(queue.poll(&mut one).unwrap(), 0, "{one:?}");
}
