//! Tests of single polls: only the test polls, and the peer is a plain socket.

use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use dunlin_verbs::conformance::{piece, wait, Endpoint, Options};
use dunlin_verbs::{
    Access, CompletionStatus, Device, EndpointAddress, QueuePair, ReceiveRequest, Region,
    RemoteAddress, SharedReceiveQueue, Transport,
};

use super::raw_peer::{address, habits, peer, peer_that_takes, send, THERE};
use super::{with_train, Inbound, Port};
use crate::address::Peer;
use crate::config::RoceConfig;
use crate::packet::{parse, Header, Operation, Psn, RemoteRange, Service, DEFAULT_PARTITION_KEY};
use crate::socket::{Count, Path, Socket, Train};
use crate::sync::lock;
use crate::{RoceDevice, RoceProtectionDomain, RoceRegion, RoceSharedReceiveQueue};

/// Maximum payload on loopback for peers that accept no more.
const MTU: usize = 4096;

/// More than 64 turns of answers.
const READ_BYTES: usize = 128 << 20;
const SEND: dunlin_verbs::Operation = dunlin_verbs::Operation::Send { immediate: None };

struct Here {
    device: RoceDevice,
    domain: RoceProtectionDomain,
    region: RoceRegion,
    port: Arc<Port>,
}

impl Here {
    fn open(region_bytes: usize) -> Self {
        let device = RoceDevice::open(RoceConfig {
            omit_icrc: true,
            ..RoceConfig::default()
        })
        .unwrap();
        let domain = device.create_protection_domain().unwrap();
        let region = device.allocate_region(&domain, region_bytes, Access::all());
        Self {
            region: region.unwrap(),
            domain,
            port: Arc::clone(device.inner()),
            device,
        }
    }

    fn range(&self, bytes: usize) -> RemoteRange {
        let RemoteAddress { address, key } = self.region.remote();
        RemoteRange {
            address,
            key: key.0,
            bytes: bytes as u32,
        }
    }

    /// A peer's READ of its memory.
    fn read(&self, bytes: usize) -> Operation {
        let source = self.range(bytes);
        Operation::ReadRequest { source }
    }

    /// A peer's WRITE to it.
    fn written(&self, bytes: usize) -> Operation {
        Operation::WriteOnly {
            target: self.range(bytes),
            immediate: None,
        }
    }

    /// Keeps everyone else from polling, including the device's thread.
    fn look_alone(&self) -> Alone<'_> {
        Alone {
            port: &self.port,
            inbound: lock(&self.port.inbound),
        }
    }

    fn connected(&self, transport: Transport, peer: &EndpointAddress) -> Endpoint<RoceDevice> {
        self.connected_on(None, transport, peer)
    }

    fn connected_on(
        &self,
        queue: Option<&RoceSharedReceiveQueue>,
        transport: Transport,
        peer: &EndpointAddress,
    ) -> Endpoint<RoceDevice> {
        let options = Options::new(transport);
        let mut endpoint = Endpoint::new(&self.device, &self.domain, &options, queue).unwrap();
        let peer = (transport != Transport::UnreliableDatagram).then_some(peer);
        endpoint.connect(peer, options.attributes).unwrap();
        endpoint
    }
}

struct Alone<'a> {
    port: &'a Port,
    inbound: MutexGuard<'a, Inbound>,
}

impl Alone<'_> {
    /// Polls once; returns the number of long packets sent.
    fn look(&mut self) -> u32 {
        let sent = || with_train(|train| train.long_payloads());
        let before = sent();
        self.port.look(&mut self.inbound);
        sent().wrapping_sub(before)
    }

    /// Polls until this many datagrams have arrived.
    fn take(&mut self, datagrams: u64) {
        let mut taken = 0;
        wait("the peer's packets", || {
            taken += self.port.look(&mut self.inbound).0;
            (taken >= datagrams).then_some(())
        });
    }
}

/// The header of a raw peer's packet to a connected queue pair.
fn header(to: &Endpoint<RoceDevice>, psn: u32, operation: Operation) -> Header {
    Header {
        service: match to.queue_pair.transport() {
            Transport::ReliableConnection => Service::Reliable,
            Transport::UnreliableConnection => Service::Unreliable,
            Transport::UnreliableDatagram => Service::Datagram {
                queue_key: to.queue_pair.address().queue_key,
                source_queue_pair: 1 << 20,
            },
        },
        operation,
        solicited: false,
        acknowledge: false,
        partition_key: DEFAULT_PARTITION_KEY,
        queue_pair: to.queue_pair.number(),
        psn: Psn::new(psn),
    }
}

/// A peer READs a lot, and then WRITEs without requesting an acknowledgement, which becomes overdue before the answers
/// are sent.
#[test]
fn an_overdue_acknowledgement_behind_many_answers_takes_no_turn_of_others() {
    let here = Here::open(READ_BYTES);
    let (socket, address) = peer_that_takes(MTU);
    let (_silent, silent_address) = peer();
    let reader = here.connected(Transport::ReliableConnection, &address);
    let mut other = here.connected(Transport::ReliableConnection, &silent_address);
    let mut alone = here.look_alone();
    let read = here.read(READ_BYTES);
    send(&socket, &here.device, &header(&reader, 1, read), 0);
    alone.take(1);
    let behind = 1 + (READ_BYTES / MTU) as u32;
    let write = here.written(8);
    send(&socket, &here.device, &header(&reader, behind, write), 8);
    other.post(1, SEND, &[piece(&here.region, 0, 8)]);
    alone.take(1);
    assert_eq!(here.device.count(Count::Gap), 0);
    // By then the acknowledgement is overdue, and so is the answer to the other's request.
    std::thread::sleep(Duration::from_millis(50));
    let retransmissions = || here.device.count(Count::Retransmission);
    let before = retransmissions();
    let answers = alone.look();
    assert!(answers <= 256, "{answers} in one look");
    assert!(retransmissions() > before, "the other's turn did not come");
}

/// A train has packets of two queue pairs alternately, and the first of them is for a long READ.
#[test]
fn a_queue_pair_has_one_turn_for_all_its_packets_of_a_train() {
    let here = Here::open(READ_BYTES);
    let socket = Socket::bind(&RoceConfig {
        local_address: Some(THERE.into()),
        ..RoceConfig::default()
    })
    .unwrap();
    let address = address(socket.port(), MTU);
    let ends = [0, 1].map(|_| here.connected(Transport::ReliableConnection, &address));
    let to = Peer::new(&ends[0].queue_pair.address(), &habits(socket.port())).unwrap();
    let path = Path {
        local: THERE.into(),
        peer: to,
    };
    let mut alone = here.look_alone();
    let mut train = Train::new();
    let mut next = [1; 2];
    for number in 0..20 {
        let bytes = if number == 0 { READ_BYTES } else { 8 };
        let next = &mut next[number % 2];
        let read = header(&ends[number % 2], *next, here.read(bytes));
        *next += bytes.div_ceil(MTU) as u32;
        train.add(&socket, &path, &read, 0, |_| Ok(())).unwrap();
    }
    train.send(&socket);
    let sent = wait("the train", || Some(alone.look()).filter(|&sent| sent > 0));
    // A turn for its deadline is allowed, too.
    assert!(sent <= 2 * 256, "{sent} in one look");
}

/// A peer does not answer, and unrequested acknowledgements become due meanwhile: each time an earlier deadline
/// replaces the same later one.
#[test]
fn deadlines_that_were_replaced_take_no_turns() {
    const WRITES: u32 = 30;
    let here = Here::open(READ_BYTES);
    let (socket, address) = peer_that_takes(MTU);
    let mut endpoint = here.connected(Transport::ReliableConnection, &address);
    let mut alone = here.look_alone();
    endpoint.post(1, SEND, &[piece(&here.region, 0, 8)]);
    for psn in 1..=WRITES {
        send(
            &socket,
            &here.device,
            &header(&endpoint, psn, here.written(8)),
            8,
        );
        alone.take(1);
        std::thread::sleep(Duration::from_micros(250));
        alone.look();
    }
    let read = header(&endpoint, WRITES + 1, here.read(READ_BYTES));
    send(&socket, &here.device, &read, 0);
    alone.take(1);
    // By then all deadlines so far have expired.
    std::thread::sleep(Duration::from_millis(100));
    let answers = alone.look();
    assert!(answers <= 256, "{answers} in one look");
}

/// The owner has seen the message and closes its queue pair at once, in each of the possible ways.
#[test]
fn what_was_delivered_is_acknowledged_before_the_queue_pair_is_given_up() {
    type End = fn(Endpoint<RoceDevice>);
    let ends: [(&str, End); 4] = [
        ("dropped", drop),
        ("reset", |mut end| end.queue_pair.to_reset()),
        ("in error", |mut end| end.queue_pair.to_error()),
        ("aborted", |end| end.queue_pair.aborter().unwrap()()),
    ];
    let here = Here::open(64);
    for (way, end) in ends {
        for asked in [true, false] {
            let (socket, address) = peer_that_takes(MTU);
            let mut endpoint = here.connected(Transport::ReliableConnection, &address);
            endpoint.receive(1, &[piece(&here.region, 0, 64)]);
            let mut alone = here.look_alone();
            let mut message = header(&endpoint, 1, Operation::SendOnly { immediate: None });
            message.acknowledge = asked;
            send(&socket, &here.device, &message, 64);
            alone.take(1);
            assert!(endpoint.poll().is_some(), "{way}: the message");
            end(endpoint);
            let mut answer = [0; 64];
            let length = socket.recv(&mut answer);
            let length = length.unwrap_or_else(|error| panic!("{way}, asked {asked}: {error}"));
            let (answer, _) = parse(&answer[..length]).unwrap();
            assert_eq!(answer.psn, Psn::new(1), "{way}, asked {asked}");
            assert!(matches!(answer.operation, Operation::Acknowledge { .. }));
        }
    }
}

/// The peer begins a message, or sends a datagram that is too long, and the queue pair is closed.
#[test]
fn a_receive_of_a_shared_queue_that_nothing_came_of_is_for_the_next_queue_pair() {
    let whole = Operation::SendOnly { immediate: None };
    let cases = [
        (Transport::ReliableConnection, Operation::SendFirst, 2 * MTU),
        (
            Transport::UnreliableConnection,
            Operation::SendFirst,
            2 * MTU,
        ),
        (Transport::UnreliableDatagram, whole, MTU),
    ];
    for (transport, beginning, receive_bytes) in cases {
        for is_dropped in [true, false] {
            let here = Here::open(2 * MTU);
            let mut queue = here
                .device
                .create_shared_receive_queue(&here.domain, 1, 1)
                .unwrap();
            let segments = &[piece(&here.region, 0, receive_bytes)];
            let request = ReceiveRequest { id: 5, segments };
            queue.post_receive(&[request]).unwrap();
            let (socket, address) = peer_that_takes(MTU);
            let mut endpoint = here.connected_on(Some(&queue), transport, &address);
            let mut alone = here.look_alone();
            send(&socket, &here.device, &header(&endpoint, 1, beginning), MTU);
            alone.take(1);
            assert_eq!(
                queue.queue().pop().map(|receive| receive.id),
                None,
                "{transport:?}"
            );
            if !is_dropped {
                endpoint.queue_pair.to_reset();
            }
            let kept = (!is_dropped).then_some(endpoint);
            let mut next = here.connected_on(Some(&queue), transport, &address);
            send(&socket, &here.device, &header(&next, 1, whole), 8);
            alone.take(1);
            let completion = next
                .poll()
                .map(|completion| (completion.id, completion.status));
            let expected = Some((5, CompletionStatus::Success));
            assert_eq!(completion, expected, "{transport:?}, dropped: {is_dropped}");
            drop(kept);
        }
    }
}
