//! Two hosts with an RC connection between them.

// Each test file uses only a part of it.
#![allow(dead_code)]

use dunlin_sim::{
    Cluster, HostId, SimCompletionQueue, SimDevice, SimProtectionDomain, SimQueuePair, SimRegion,
};
use dunlin_verbs::{
    Access, Completion, CompletionQueue, ConnectAttributes, Device, Operation, Payload, QueuePair,
    QueuePairConfig, ReceiveQueue, Region, RemoteAddress, Segment, SendFlags, SendRequest,
    Transport,
};

/// Regions, completion queues and queue pairs of both hosts of a cluster.
pub(crate) type Ends = ([SimRegion; 2], [SimCompletionQueue; 2], [SimQueuePair; 2]);

/// An RC connection between both hosts of a cluster, with short timers.
pub(crate) fn connected(cluster: &Cluster) -> Ends {
    let hosts = cluster.hosts();
    connected_between(cluster, [hosts[0], hosts[1]], of_class(0))
}

/// Short timers, and packets of a traffic class.
pub(crate) fn of_class(traffic_class: u8) -> ConnectAttributes {
    ConnectAttributes {
        timeout_ns: 50_000,
        traffic_class,
        ..ConnectAttributes::default()
    }
}

/// An RC connection between two hosts of several.
pub(crate) fn connected_between(
    cluster: &Cluster,
    hosts: [HostId; 2],
    attributes: ConnectAttributes,
) -> Ends {
    let devices = hosts.map(|host| cluster.device(host));
    let domains = devices
        .each_ref()
        .map(|device| device.create_protection_domain().expect("a domain"));
    let regions = [0, 1].map(|i| {
        devices[i]
            .allocate_region(&domains[i], 1 << 16, Access::all())
            .expect("a region")
    });
    let queues = devices
        .each_ref()
        .map(|device| device.create_completion_queue(64, None).expect("a queue"));
    let mut pairs = [0, 1].map(|i| pair(&devices[i], &domains[i], &queues[i]));
    connect(&mut pairs, attributes);
    (regions, queues, pairs)
}

/// An RC queue pair in state Init.
pub(crate) fn pair(
    device: &SimDevice,
    domain: &SimProtectionDomain,
    completions: &SimCompletionQueue,
) -> SimQueuePair {
    let config = QueuePairConfig {
        transport: Transport::ReliableConnection,
        send_completions: completions,
        receive_completions: completions,
        send_requests: 512,
        receive_queue: ReceiveQueue::Own(1),
        segments: 1,
        inline_bytes: 0,
    };
    let mut pair = device.create_queue_pair(domain, &config).expect("a pair");
    pair.to_init(Access::all()).expect("Init");
    pair
}

/// Connects two queue pairs in state Init.
pub(crate) fn connect(pairs: &mut [SimQueuePair; 2], attributes: ConnectAttributes) {
    let addresses = pairs.each_ref().map(|pair| pair.address());
    for i in 0..2 {
        pairs[i]
            .to_ready_to_receive(Some(&addresses[1 - i]), attributes)
            .expect("RTR");
        pairs[i].to_ready_to_send().expect("RTS");
    }
}

/// Posts `count` WRITEs of `bytes` to the first host's end.
pub(crate) fn write(ends: &mut Ends, bytes: usize, count: u64) {
    let immediate = None;
    post(ends, bytes, count, |remote| Operation::Write {
        remote,
        immediate,
    });
}

/// Posts `count` READs of `bytes` to the first host's end.
pub(crate) fn read(ends: &mut Ends, bytes: usize, count: u64) {
    post(ends, bytes, count, |remote| Operation::Read { remote });
}

fn post(ends: &mut Ends, bytes: usize, count: u64, operation: impl Fn(RemoteAddress) -> Operation) {
    let (regions, _, [pair, _]) = ends;
    for id in 0..count {
        let segments = [Segment {
            region: &regions[0],
            offset: 0,
            length: bytes,
        }];
        let operation = operation(regions[1].remote());
        let payload = Payload::Segments(&segments);
        let request = SendRequest::new(id, operation, payload, SendFlags::SIGNALED);
        pair.post_send(&[request]).expect("room");
    }
}

/// Number of completions of the first host's end since the last call, all of which must be successful.
pub(crate) fn done(ends: &mut Ends) -> usize {
    let mut some = [Completion::EMPTY; 64];
    let count = ends.1[0].poll(&mut some).expect("no overrun");
    assert!(some[..count].iter().all(Completion::is_success));
    count
}
