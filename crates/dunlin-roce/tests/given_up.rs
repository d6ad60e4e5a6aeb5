//! What goes on and what does not when something is given up that others stand on: the device, a region, a queue pair.

use std::net::Ipv4Addr;

use dunlin_roce::{RoceConfig, RoceDevice, RoceProtectionDomain, RoceRegion};
use dunlin_verbs::conformance::{pattern, piece, wait, Endpoint, Options};
use dunlin_verbs::{
    Access, CompletionStatus, ConnectAttributes, Device, Operation, QueuePair, Region, Transport,
};

const SEND: Operation = Operation::Send { immediate: None };
const BYTES: usize = 100;
/// An acknowledgement that waits for company goes out by itself sooner or later than the end that follows.
const ROUNDS: usize = 20;

struct End {
    endpoint: Endpoint<RoceDevice>,
    region: RoceRegion,
}

fn open(transport: Transport) -> (End, RoceDevice, RoceProtectionDomain) {
    let mut config = RoceConfig::from_environment().expect("the environment");
    config.local_address = Some(Ipv4Addr::LOCALHOST.into());
    let device = RoceDevice::open(config).expect("a device");
    let domain = device.create_protection_domain().expect("a domain");
    let options = Options::new(transport);
    let end = End {
        endpoint: Endpoint::new(&device, &domain, &options, None).expect("an endpoint"),
        region: device
            .allocate_region(&domain, BYTES, Access::all())
            .expect("a region"),
    };
    (end, device, domain)
}

fn connect(ends: [&mut End; 2]) {
    let addresses = [0, 1].map(|end| ends[end].endpoint.queue_pair.address());
    for (end, remote) in ends.into_iter().zip([&addresses[1], &addresses[0]]) {
        end.endpoint
            .connect(Some(remote), ConnectAttributes::default())
            .expect("a connection");
    }
}

#[test]
fn a_queue_pair_answers_its_peer_although_nobody_polls_and_the_device_was_dropped() {
    let (mut ours, our_device, our_domain) = open(Transport::ReliableConnection);
    let (mut theirs, _device, _domain) = open(Transport::ReliableConnection);
    connect([&mut ours, &mut theirs]);
    ours.endpoint.receive(1, &[piece(&ours.region, 0, BYTES)]);
    drop((our_device, our_domain));
    let bytes = pattern(1, BYTES);
    theirs.region.memory().write(0, &bytes);
    let place = piece(&theirs.region, 0, BYTES);
    theirs.endpoint.post(2, SEND, &[place]);
    let completion = wait("an acknowledgement", || theirs.endpoint.poll());
    assert_eq!(completion.status, CompletionStatus::Success);
    let mut received = [0; BYTES];
    ours.region.memory().read(0, &mut received);
    assert_eq!(received[..], bytes);
}

#[test]
fn a_request_whose_region_has_ended_sends_nothing() {
    let (mut ours, device, domain) = open(Transport::ReliableConnection);
    let (mut theirs, _device, _domain) = open(Transport::ReliableConnection);
    connect([&mut ours, &mut theirs]);
    theirs
        .endpoint
        .receive(1, &[piece(&theirs.region, 0, BYTES)]);
    let other = device
        .allocate_region(&domain, BYTES, Access::all())
        .expect("a region");
    // It waits, and does not lie in one piece.
    let drained = ours.endpoint.queue_pair.to_send_queue_drained();
    drained.expect("it may be drained");
    let places = [piece(&ours.region, 0, 8), piece(&other, 0, 8)];
    ours.endpoint.post(2, SEND, &places);
    drop(other);
    let sends = ours.endpoint.queue_pair.to_ready_to_send();
    sends.expect("it may send again");
    let completion = wait("the failure", || ours.endpoint.poll());
    assert_eq!(completion.status, CompletionStatus::LocalProtection);
    theirs.endpoint.queue_pair.to_error();
    let completion = wait("the RECEIVE", || theirs.endpoint.poll());
    assert_eq!(completion.status, CompletionStatus::Flushed);
}

/// As the channels of RPC close: the message was taken, so its sender is told so, whatever comes next.
#[test]
fn who_takes_a_message_and_gives_its_queue_pair_up_has_acknowledged_it() {
    for round in 0..ROUNDS {
        let (mut ours, _device, _domain) = open(Transport::ReliableConnection);
        let (mut theirs, _their_device, _their_domain) = open(Transport::ReliableConnection);
        connect([&mut ours, &mut theirs]);
        ours.endpoint.receive(1, &[piece(&ours.region, 0, BYTES)]);
        let place = piece(&theirs.region, 0, BYTES);
        theirs.endpoint.post(2, SEND, &[place]);
        wait("the message", || ours.endpoint.poll());
        ours.endpoint.queue_pair.to_error();
        drop(ours);
        let completion = wait("an acknowledgement", || theirs.endpoint.poll());
        assert_eq!(completion.status, CompletionStatus::Success, "{round}");
    }
}
