//! Event mode, shared receive queues, and the books of the send queue.
#![allow(missing_docs)]

mod common;

use std::time::Duration;

use common::{pair_of, poll_one, Side};
use dunlin_shm::{ShmAddressHandle, ShmCompletionChannel, ShmSharedReceiveQueue};
use dunlin_verbs::{
    Access, AsyncEvent, Completion, CompletionChannel, CompletionQueue, CompletionQueueError,
    CompletionStatus, Device, Notify, Operation, Payload, PostErrorKind, QueuePair,
    QueuePairConfig, QueuePairState, ReceiveQueue, ReceiveRequest, Segment, SendFlags, SendRequest,
    SharedReceiveQueue, Transport,
};

const SEND: Operation = Operation::Send { immediate: None };

/// Gives the side a completion queue with a channel, and a queue pair that receives by it.
fn with_channel(b: &mut Side) -> ShmCompletionChannel {
    let channel = b.device.create_completion_channel().unwrap();
    b.receives = b
        .device
        .create_completion_queue(16, Some(&channel))
        .unwrap();
    b.pair = b
        .device
        .create_queue_pair(
            &b.domain,
            &QueuePairConfig {
                transport: Transport::ReliableConnection,
                send_completions: &b.sends,
                receive_completions: &b.receives,
                send_requests: 16,
                receive_queue: ReceiveQueue::<ShmSharedReceiveQueue>::Own(16),
                segments: 1,
                inline_bytes: 64,
            },
        )
        .unwrap();
    channel
}

#[test]
fn an_armed_queue_raises_one_event() {
    let (mut a, mut b) = (
        Side::new(Transport::ReliableConnection),
        Side::new(Transport::ReliableConnection),
    );
    let channel = with_channel(&mut b);
    // Armed before there is a connection.
    b.receives.request_notify(Notify::Next).unwrap();
    let (at_a, at_b) = (a.pair.address(), b.pair.address());
    a.connect(&at_b);
    b.connect(&at_a);
    for id in 0..8 {
        b.receive(id, 0, 64);
    }
    assert!(!channel.wait(Duration::from_millis(10)).unwrap());
    a.post_inline(1, SEND, b"wake");
    assert!(channel.wait(Duration::from_secs(60)).unwrap());
    assert!(b.received().is_success());
    // One shot.
    a.post_inline(2, SEND, b"sleep on");
    assert!(a.sent().is_success() && a.sent().is_success());
    assert!(!channel.wait(Duration::from_millis(10)).unwrap());
    assert!(b.received().is_success());
    // Solicited only.
    b.receives.request_notify(Notify::Solicited).unwrap();
    a.post_inline(3, SEND, b"sleep on");
    assert!(!channel.wait(Duration::from_millis(10)).unwrap());
    let request = SendRequest::<_, ShmAddressHandle>::new(
        4,
        SEND,
        Payload::Inline(b"now"),
        SendFlags::SOLICITED,
    );
    a.pair.post_send(&[request]).unwrap();
    assert!(channel.wait(Duration::from_secs(60)).unwrap());
    // By hand, and by an error.
    channel.wake();
    assert!(channel.wait(Duration::from_secs(60)).unwrap());
    b.receives.request_notify(Notify::Solicited).unwrap();
    drop(a);
    assert!(channel.wait(Duration::from_secs(60)).unwrap());
    // A wait may end without an event.
    let started = std::time::Instant::now();
    while b.pair.state() != QueuePairState::Error {
        assert!(started.elapsed() < Duration::from_secs(60), "not in error");
        let _ = channel.wait(Duration::from_millis(10)).unwrap();
    }
}

/// A message longer than the port crosses while the receiver takes pieces, so it has to be woken before it is complete;
/// and what is solicited may be behind many that are not.
#[test]
fn a_sender_without_room_wakes_the_receiver() {
    for (notify, length, count) in [(Notify::Next, 1 << 20, 1), (Notify::Solicited, 30_000, 16)] {
        let (mut a, mut b) = (
            Side::new(Transport::ReliableConnection),
            Side::new(Transport::ReliableConnection),
        );
        let channel = with_channel(&mut b);
        for side in [&mut a, &mut b] {
            side.region = side
                .device
                .allocate_region(&side.domain, length, Access::all())
                .unwrap();
        }
        let (at_a, at_b) = (a.pair.address(), b.pair.address());
        a.connect(&at_b);
        b.connect(&at_a);
        for id in 0..count {
            b.receive(id, 0, length);
        }
        b.receives.request_notify(notify).unwrap();
        for id in 0..count {
            a.post(id, SEND, 0, length);
        }
        let (mut received, mut one) = (0, [Completion::EMPTY]);
        // Only after an event: a receiver that sleeps in vain is the failure.
        assert!(channel.wait(Duration::from_secs(60)).unwrap());
        while received < count {
            b.receives.request_notify(notify).unwrap();
            while b.receives.poll(&mut one).unwrap() == 1 {
                assert!(one[0].is_success() && one[0].bytes == length);
                received += 1;
            }
            // Unsolicited messages that all have room now wake nobody.
            if received < count && notify == Notify::Next {
                assert!(channel.wait(Duration::from_secs(60)).unwrap());
            }
        }
    }
}

#[test]
fn a_shared_queue_serves_several() {
    let device = dunlin_shm::ShmDevice::open(dunlin_shm::ShmConfig::default()).unwrap();
    let mut b = Side::on(&device, Transport::ReliableConnection);
    let mut queue = device
        .create_shared_receive_queue(&b.domain, 16, 1)
        .unwrap();
    let mut pairs = Vec::new();
    let mut senders = Vec::new();
    for _ in 0..3 {
        let pair = device
            .create_queue_pair(
                &b.domain,
                &QueuePairConfig {
                    transport: Transport::ReliableConnection,
                    send_completions: &b.sends,
                    receive_completions: &b.receives,
                    send_requests: 16,
                    receive_queue: ReceiveQueue::Shared(&queue),
                    segments: 1,
                    inline_bytes: 64,
                },
            )
            .unwrap();
        let mut a = Side::new(Transport::ReliableConnection);
        b.pair = pair;
        let (at_a, at_b) = (a.pair.address(), b.pair.address());
        a.connect(&at_b);
        b.connect(&at_a);
        pairs.push(std::mem::replace(
            &mut b.pair,
            Side::on(&device, Transport::ReliableConnection).pair,
        ));
        senders.push(a);
    }
    for a in &mut senders {
        a.post_inline(1, SEND, b"to all");
        assert!(a.sent().is_success());
    }
    common::quiet(&mut b.receives);
    let region = b.region.clone();
    for id in 0..3 {
        let segments = [Segment {
            region: &region,
            offset: 0,
            length: 64,
        }];
        queue
            .post_receive(&[ReceiveRequest {
                id,
                segments: &segments,
            }])
            .unwrap();
    }
    let mut from: Vec<_> = (0..3)
        .map(|_| poll_one(&mut b.receives).queue_pair)
        .collect();
    from.sort_unstable();
    let mut expected: Vec<_> = pairs.iter().map(QueuePair::number).collect();
    expected.sort_unstable();
    assert_eq!(from, expected);
}

#[test]
fn entries_come_back_with_the_completion_that_is_polled() {
    let (mut a, b) = pair_of(Transport::ReliableConnection);
    let operation = Operation::Write {
        remote: b.remote(0),
        immediate: None,
    };
    let request =
        |flags| SendRequest::<_, ShmAddressHandle>::new(1, operation, Payload::Inline(b"x"), flags);
    for _ in 0..63 {
        a.pair.post_send(&[request(SendFlags::empty())]).unwrap();
    }
    a.pair.post_send(&[request(SendFlags::SIGNALED)]).unwrap();
    let error = a
        .pair
        .post_send(&[request(SendFlags::empty())])
        .unwrap_err();
    assert_eq!(error.kind, PostErrorKind::Full { limit: 64 });
    assert!(a.sent().is_success());
    for _ in 0..64 {
        a.pair.post_send(&[request(SendFlags::empty())]).unwrap();
    }
    assert!(a.pair.post_send(&[request(SendFlags::empty())]).is_err());
    // A reset gives all back.
    a.pair.to_reset();
    a.pair.to_init(common::all()).unwrap();
}

#[test]
fn drained_is_a_pause() {
    let (mut a, b) = pair_of(Transport::ReliableConnection);
    let operation = Operation::Write {
        remote: b.remote(0),
        immediate: None,
    };
    a.post_inline(1, operation, b"x");
    assert!(a.sent().is_success());
    a.pair.to_send_queue_drained().unwrap();
    a.post_inline(2, operation, b"x");
    a.post_inline(3, operation, b"x");
    std::thread::sleep(Duration::from_millis(5));
    common::quiet(&mut a.sends);
    a.pair.to_ready_to_send().unwrap();
    assert_eq!((a.sent().id, a.sent().id), (2, 3));
    a.pair.to_send_queue_drained().unwrap();
    a.post_inline(4, operation, b"x");
    a.pair.to_error();
    let flushed = a.sent();
    assert_eq!((flushed.id, flushed.status), (4, CompletionStatus::Flushed));
}

#[test]
fn an_overrun_queue_says_so() {
    let (mut a, b) = pair_of(Transport::ReliableConnection);
    let small = a.device.create_completion_queue(4, None).unwrap();
    a.pair = a
        .device
        .create_queue_pair(
            &a.domain,
            &QueuePairConfig {
                transport: Transport::ReliableConnection,
                send_completions: &small,
                receive_completions: &a.receives,
                send_requests: 16,
                receive_queue: ReceiveQueue::<ShmSharedReceiveQueue>::Own(16),
                segments: 1,
                inline_bytes: 64,
            },
        )
        .unwrap();
    a.sends = small;
    let mut b = Side::on(&b.device, Transport::ReliableConnection);
    let (at_a, at_b) = (a.pair.address(), b.pair.address());
    a.connect(&at_b);
    b.connect(&at_a);
    let operation = Operation::Write {
        remote: b.remote(0),
        immediate: None,
    };
    for id in 0..5 {
        a.post_inline(id, operation, b"x");
    }
    let mut completions = [Completion::EMPTY; 8];
    let mut result = Ok(0);
    common::wait(|| {
        // Polling brings the first requests, which had to wait for the mapping, to their end.
        std::thread::sleep(Duration::from_millis(20));
        result = a.sends.poll(&mut completions);
        result.is_err()
    });
    assert_eq!(result, Err(CompletionQueueError::Overrun { limit: 4 }));
    assert_eq!(a.pair.state(), QueuePairState::Error);
    let mut events = std::iter::from_fn(|| a.device.poll_async_event());
    assert!(events.any(|event| event == AsyncEvent::CompletionQueueOverrun));
}
