//! UD: datagrams, their keys, and what is dropped.
#![allow(missing_docs)]

mod common;

use common::{quiet, wait, Side};
use dunlin_shm::{ShmConfig, ShmDevice};
use dunlin_verbs::{
    Completion, CompletionQueue, Destination, Device, EndpointAddress, Operation, Payload,
    QueuePair, Region, SendFlags, SendRequest, Transport, GRH_BYTES,
};

fn side() -> Side {
    let mut side = Side::new(Transport::UnreliableDatagram);
    let address = side.pair.address();
    side.connect(&address);
    side
}

fn send(side: &mut Side, id: u64, to: &EndpointAddress, queue_key: u32, bytes: &[u8]) {
    let handle = side.device.create_address_handle(&side.domain, to).unwrap();
    let mut request = SendRequest::new(
        id,
        Operation::Send { immediate: Some(9) },
        Payload::Inline(bytes),
        SendFlags::SIGNALED,
    );
    request.destination = Some(Destination {
        handle: &handle,
        queue_pair: to.queue_pair,
        queue_key,
    });
    side.pair.post_send(&[request]).unwrap();
    let sent = side.sent();
    assert!(sent.is_success() && sent.id == id);
}

/// A device with many senders does not take all places: others have theirs.
#[test]
fn one_device_does_not_take_all_places_of_senders() {
    const PLACES: usize = 8;
    let mut config = ShmConfig::default();
    config.max_datagram_senders = PLACES;
    let ready = |device: &ShmDevice| {
        let mut side = Side::on(device, Transport::UnreliableDatagram);
        let address = side.pair.address();
        side.connect(&address);
        side
    };
    let mut to = ready(&ShmDevice::open(config).unwrap());
    let address = to.pair.address();
    for id in 0..64 {
        to.receive(id, 0, 64);
    }
    let many = ShmDevice::open(ShmConfig::default()).unwrap();
    let mut theirs: Vec<_> = (0..2 * PLACES).map(|_| ready(&many)).collect();
    for (id, side) in theirs.iter_mut().enumerate() {
        send(side, id as u64, &address, address.queue_key, b"many");
    }
    for _ in 0..PLACES - PLACES / 4 {
        assert_eq!(to.received().bytes, GRH_BYTES + 4);
    }
    let mut others = [side(), side()];
    for (id, side) in others.iter_mut().enumerate() {
        send(side, id as u64, &address, address.queue_key, b"another");
        assert_eq!(to.received().bytes, GRH_BYTES + 7);
    }
}

#[test]
fn datagrams_arrive_behind_their_header_and_name_their_sender() {
    let (mut a, mut b, mut c) = (side(), side(), side());
    let to = b.pair.address();
    for i in 0..4 {
        b.receive(i, i as usize * 5000, 5000);
    }
    send(&mut a, 1, &to, to.queue_key, b"from a");
    send(&mut c, 2, &to, to.queue_key, b"from c");
    send(&mut a, 3, &to, to.queue_key, &[7; 4096]);
    let mut seen = Vec::new();
    for _ in 0..3 {
        let received = b.received();
        assert!(received.is_success());
        assert_eq!(received.immediate, Some(9));
        let mut bytes = vec![0; received.bytes - GRH_BYTES];
        b.region
            .memory()
            .read(received.id as usize * 5000 + GRH_BYTES, &mut bytes);
        seen.push((received.source_queue_pair.unwrap(), bytes));
    }
    seen.sort();
    let mut expected = vec![
        (a.pair.number(), b"from a".to_vec()),
        (a.pair.number(), vec![7; 4096]),
        (c.pair.number(), b"from c".to_vec()),
    ];
    expected.sort();
    assert_eq!(seen, expected);
    quiet(&mut b.receives);
}

#[test]
fn wrong_keys_and_missing_receives_are_silence() {
    let (mut a, mut b) = (side(), side());
    let to = b.pair.address();
    // The first waits for the port, and may come later than the next RECEIVE.
    b.receive(0, 0, 200);
    send(&mut a, 0, &to, to.queue_key, b"first");
    assert_eq!(b.received().bytes, GRH_BYTES + 5);
    // Nothing posted: dropped, also when a RECEIVE comes later.
    send(&mut a, 1, &to, to.queue_key, b"dropped");
    b.receive(1, 0, 200);
    send(&mut a, 2, &to, to.queue_key ^ 1, b"wrong key");
    let mut nobody = to;
    nobody.queue_pair ^= 1 << 20;
    send(&mut a, 3, &nobody, to.queue_key, b"nobody");
    nobody.gid[3] ^= 1;
    send(&mut a, 4, &nobody, to.queue_key, b"no device");
    send(&mut a, 5, &to, to.queue_key, b"delivered");
    assert_eq!(b.received().bytes, GRH_BYTES + 9);
    quiet(&mut b.receives);
}

#[test]
fn those_who_refused_leave_room_for_others() {
    let (mut a, mut b) = (side(), side());
    let to = b.pair.address();
    // More than one queue pair keeps.
    for number in 0..5000 {
        let mut nobody = to;
        nobody.queue_pair = 1 << 22 | number;
        send(&mut a, 1, &nobody, to.queue_key, b"nobody");
    }
    b.receive(1, 0, 200);
    wait(|| {
        send(&mut a, 2, &to, to.queue_key, b"delivered");
        b.receives.poll(&mut [Completion::EMPTY]).unwrap() == 1
    });
}
