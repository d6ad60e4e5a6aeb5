//! Fairness between the senders of one datagram queue pair: one that floods it must not keep the others waiting.

use std::time::{Duration, Instant};

use dunlin_verbs::{
    Access, Completion, CompletionChannel, CompletionQueue, ConnectAttributes, Destination, Device,
    EndpointAddress, Notify, Operation, Payload, QueuePair, ReceiveRequest, Segment, SendFlags,
    SendRequest, Transport,
};

use crate::fuzzing::Side;
use crate::receive::RECORDS_PER_TURN;
use crate::{ShmCompletionChannel, ShmConfig, ShmDevice};

/// A datagram queue pair whose arrivals raise events of the channel.
fn datagram_side() -> (Side, ShmCompletionChannel) {
    let device = ShmDevice::open(ShmConfig::default()).unwrap();
    let channel = device.create_completion_channel().unwrap();
    let mut side = Side::on(device, Transport::UnreliableDatagram, Some(&channel));
    side.pair.to_init(Access::all()).unwrap();
    side.pair
        .to_ready_to_receive(None, ConnectAttributes::default())
        .unwrap();
    side.pair.to_ready_to_send().unwrap();
    (side, channel)
}

/// Sends a datagram, which has been sent when this returns, unless it is the first to its destination.
pub(crate) fn send_datagram(side: &mut Side, to: &EndpointAddress, bytes: usize) {
    let domain = side.device.create_protection_domain().unwrap();
    let handle = side.device.create_address_handle(&domain, to).unwrap();
    let send = Operation::Send { immediate: None };
    let mut request = SendRequest::new(
        1,
        send,
        Payload::Inline(&[7; 256][..bytes]),
        SendFlags::SIGNALED,
    );
    request.destination = Some(Destination {
        handle: &handle,
        queue_pair: to.queue_pair,
        queue_key: to.queue_key,
    });
    side.pair.post_send(&[request]).unwrap();
    let start = Instant::now();
    while side.queue.poll(&mut [Completion::EMPTY]).unwrap() == 0 {
        assert!(start.elapsed() < Duration::from_secs(60));
    }
}

#[test]
fn a_sender_of_what_nobody_takes_has_turns_like_others() {
    const FLOOD: usize = 1000;
    let ((mut flood, _), (mut good, _), (mut b, channel)) =
        (datagram_side(), datagram_side(), datagram_side());
    let to = b.pair.address();
    let mut completions = [Completion::EMPTY; 8];
    // Datagrams that wait for a port are sent some time later: first both get theirs, and the last to arrive has the
    // next turn.
    for sender in [&mut good, &mut flood] {
        b.receive();
        send_datagram(sender, &to, 20);
        let start = Instant::now();
        while b.queue.poll(&mut completions).unwrap() == 0 {
            assert!(start.elapsed() < Duration::from_secs(60));
        }
    }
    let before = b.pair.taken_for_tests();
    // With their header they are longer than the RECEIVE, so they are dropped and the RECEIVE stays.
    let segments = [Segment {
        region: &b.region,
        offset: 0,
        length: 100,
    }];
    let request = ReceiveRequest {
        id: 1,
        segments: &segments,
    };
    b.pair.post_receive(&[request]).unwrap();
    (0..FLOOD).for_each(|_| send_datagram(&mut flood, &to, 200));
    send_datagram(&mut good, &to, 20);
    let record = 16 + 208;
    let all = [before[0] + 48, before[1] + FLOOD as u64 * record];
    let mut made = b.queue.poll(&mut completions).unwrap();
    let first = b.pair.taken_for_tests();
    assert!(
        first[1] <= before[1] + RECORDS_PER_TURN as u64 * record,
        "{first:?} of {all:?}"
    );
    // The other is served as well, and a thread that sleeps meanwhile is notified to poll again.
    while b.pair.taken_for_tests()[1] < all[1] {
        b.queue.request_notify(Notify::Next).unwrap();
        made += b.queue.poll(&mut completions).unwrap();
        let over = b.pair.taken_for_tests()[1] == all[1];
        assert!(channel.wait(Duration::ZERO).unwrap() || over);
        assert_eq!(made, 1, "the other waits");
    }
    // If there is no RECEIVE at all, all of it is dropped in one step.
    assert_eq!(b.pair.taken_for_tests(), all);
    (0..FLOOD).for_each(|_| send_datagram(&mut flood, &to, 200));
    assert_eq!(b.queue.poll(&mut completions).unwrap(), 0);
    assert_eq!(b.pair.taken_for_tests()[1], 2 * all[1] - before[1]);
}
