//! RC and UC between two devices of one process.
#![allow(missing_docs)]

mod common;

use common::{pair_of, quiet, Side};
use dunlin_shm::ShmSharedReceiveQueue;
use dunlin_verbs::{
    Completion, CompletionOpcode, CompletionQueue, CompletionStatus, Device, Operation,
    PostErrorKind, QueuePair, QueuePairConfig, QueuePairState, ReceiveQueue, ReceiveRequest,
    Region, Segment, Transport,
};

fn read(side: &common::Side, offset: usize, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    side.region.memory().read(offset, &mut bytes);
    bytes
}

#[test]
fn write_read_and_atomics() {
    let (mut a, mut b) = pair_of(Transport::ReliableConnection);
    let write = |remote| Operation::Write {
        remote,
        immediate: None,
    };
    a.post_inline(1, write(b.remote(100)), b"hello");
    let sent = a.sent();
    assert_eq!((sent.id, sent.status), (1, CompletionStatus::Success));
    assert_eq!(read(&b, 100, 5), b"hello");

    b.region.memory().write(200, b"from b");
    a.post(
        2,
        Operation::Read {
            remote: b.remote(200),
        },
        10,
        6,
    );
    assert!(a.sent().is_success());
    assert_eq!(read(&a, 10, 6), b"from b");

    b.region
        .memory()
        .atomic_u64(800)
        .store(40, std::sync::atomic::Ordering::SeqCst);
    a.post(
        3,
        Operation::FetchAndAdd {
            remote: b.remote(800),
            add: 2,
        },
        0,
        8,
    );
    assert!(a.sent().is_success());
    assert_eq!(read(&a, 0, 8), 40u64.to_ne_bytes());
    a.post(
        4,
        Operation::CompareAndSwap {
            remote: b.remote(800),
            compare: 42,
            swap: 7,
        },
        0,
        8,
    );
    assert!(a.sent().is_success());
    assert_eq!(read(&a, 0, 8), 42u64.to_ne_bytes());
    assert_eq!(read(&b, 800, 8), 7u64.to_ne_bytes());

    b.post_inline(5, write(a.remote(0)), b"back");
    assert!(b.sent().is_success());
    assert_eq!(read(&a, 0, 4), b"back");
}

#[test]
fn messages_arrive_in_order_with_their_immediates() {
    for transport in [
        Transport::ReliableConnection,
        Transport::UnreliableConnection,
    ] {
        let (mut a, mut b) = pair_of(transport);
        for i in 0..8 {
            b.receive(i, i as usize * 1000, 1000);
        }
        a.post_inline(1, Operation::Send { immediate: None }, b"first");
        a.post_inline(
            2,
            Operation::Send {
                immediate: Some(77),
            },
            b"second",
        );
        let remote = b.remote(5000);
        a.post_inline(
            3,
            Operation::Write {
                remote,
                immediate: Some(78),
            },
            b"third",
        );
        for _ in 0..3 {
            assert!(a.sent().is_success());
        }
        let first = b.received();
        assert_eq!((first.id, first.bytes, first.immediate), (0, 5, None));
        let second = b.received();
        assert_eq!(
            (second.id, second.bytes, second.immediate),
            (1, 6, Some(77))
        );
        assert_eq!(second.opcode, CompletionOpcode::Receive);
        let third = b.received();
        assert_eq!((third.id, third.bytes, third.immediate), (2, 5, Some(78)));
        assert_eq!(third.opcode, CompletionOpcode::ReceiveWriteWithImmediate);
        assert_eq!(read(&b, 0, 5), b"first");
        assert_eq!(read(&b, 1000, 6), b"second");
        assert_eq!(read(&b, 5000, 5), b"third");
        quiet(&mut b.receives);
    }
}

#[test]
fn a_receiver_that_is_late_is_waited_for() {
    let (mut a, mut b) = pair_of(Transport::ReliableConnection);
    a.post_inline(1, Operation::Send { immediate: None }, b"early");
    std::thread::sleep(std::time::Duration::from_millis(20));
    quiet(&mut a.sends);
    b.receive(9, 0, 64);
    assert!(a.sent().is_success());
    assert_eq!(b.received().id, 9);
    assert_eq!(read(&b, 0, 5), b"early");
}

#[test]
fn too_long_a_message_is_an_error_on_both_sides() {
    let (mut a, mut b) = pair_of(Transport::ReliableConnection);
    b.receive(1, 0, 4);
    b.receive(2, 0, 4);
    a.post_inline(7, Operation::Send { immediate: None }, b"longer");
    assert_eq!(a.sent().status, CompletionStatus::RemoteInvalidRequest);
    assert_eq!(b.received().status, CompletionStatus::LocalLength);
    assert_eq!(b.received().status, CompletionStatus::Flushed);
    assert_eq!(a.pair.state(), QueuePairState::Error);
    assert_eq!(b.pair.state(), QueuePairState::Error);
    a.post_inline(8, Operation::Send { immediate: None }, b"x");
    assert_eq!(a.sent().status, CompletionStatus::Flushed);
}

#[test]
fn bad_keys_and_ranges_are_refused() {
    for offset in [common::SIZE as u64 - 3, u64::MAX - 1, common::SIZE as u64] {
        let (mut a, mut b) = pair_of(Transport::ReliableConnection);
        let write = |remote| Operation::Write {
            remote,
            immediate: None,
        };
        a.post_inline(1, write(b.remote(0)), b"good");
        assert!(a.sent().is_success());
        a.post_inline(2, write(b.remote(offset)), b"evil");
        assert_eq!(a.sent().status, CompletionStatus::RemoteAccess);
        assert_eq!(a.pair.state(), QueuePairState::Error);
        quiet(&mut b.receives);
    }
    let (mut a, b) = pair_of(Transport::ReliableConnection);
    let mut remote = b.remote(0);
    remote.key.0 ^= 0x5000;
    a.post_inline(
        1,
        Operation::Write {
            remote,
            immediate: None,
        },
        b"x",
    );
    assert_eq!(a.sent().status, CompletionStatus::RemoteAccess);
}

#[test]
fn large_messages_cross_in_pieces() {
    let (mut a, mut b) = pair_of(Transport::ReliableConnection);
    let big = 3 << 20;
    let all = common::all();
    use dunlin_verbs::{Device, Payload, ReceiveRequest, Segment, SendFlags, SendRequest};
    let from = a.device.allocate_region(&a.domain, big, all).unwrap();
    let to = b.device.allocate_region(&b.domain, big, all).unwrap();
    let pattern: Vec<u8> = (0..big).map(|i| (i * 31 / 7) as u8).collect();
    from.memory().write(0, &pattern);
    let segments = [
        Segment {
            region: &to,
            offset: 0,
            length: 1000,
        },
        Segment {
            region: &to,
            offset: 1000,
            length: big - 1000,
        },
    ];
    b.pair
        .post_receive(&[ReceiveRequest {
            id: 1,
            segments: &segments,
        }])
        .unwrap();
    let segments = [
        Segment {
            region: &from,
            offset: 0,
            length: 777,
        },
        Segment {
            region: &from,
            offset: 777,
            length: big - 777,
        },
    ];
    a.pair
        .post_send(&[SendRequest::new(
            2,
            Operation::Send { immediate: None },
            Payload::Segments(&segments),
            SendFlags::SIGNALED,
        )])
        .unwrap();
    let received = b.received();
    assert!(received.is_success());
    assert_eq!(received.bytes, big);
    assert!(a.sent().is_success());
    let mut bytes = vec![0; big];
    to.memory().read(0, &mut bytes);
    assert!(bytes == pattern);
}

#[test]
fn two_queue_pairs_of_one_device_and_one_with_itself() {
    let mut a = common::Side::new(Transport::ReliableConnection);
    let mut b = common::Side::on(&a.device, Transport::ReliableConnection);
    let mut c = common::Side::on(&a.device, Transport::ReliableConnection);
    let (at_a, at_b, at_c) = (a.pair.address(), b.pair.address(), c.pair.address());
    a.connect(&at_b);
    b.connect(&at_a);
    c.connect(&at_c);
    let send = Operation::Send { immediate: None };
    b.receive(1, 0, 64);
    a.post_inline(2, send, b"neighbour");
    assert!(a.sent().is_success() && b.received().is_success());
    assert_eq!(read(&b, 0, 9), b"neighbour");
    c.receive(3, 0, 64);
    c.post_inline(4, send, b"myself");
    assert!(c.sent().is_success() && c.received().is_success());
    assert_eq!(read(&c, 0, 6), b"myself");
}

#[test]
fn a_request_outlives_its_region_with_an_error() {
    use dunlin_verbs::{Device, ReceiveRequest, Segment};
    let (mut a, mut b) = pair_of(Transport::ReliableConnection);
    let mut memory = vec![0u64; 64];
    let start = std::ptr::NonNull::new(memory.as_mut_ptr().cast()).unwrap();
    let access = dunlin_verbs::Access::LOCAL_WRITE;
    // SAFETY: the vector outlives the region and is not touched while it is registered.
    let raw = unsafe { b.device.register_raw(&b.domain, start, 512, access) }.unwrap();
    for id in 0..2 {
        let segments = [Segment {
            region: &raw,
            offset: 0,
            length: 64,
        }];
        b.pair
            .post_receive(&[ReceiveRequest {
                id,
                segments: &segments,
            }])
            .unwrap();
    }
    let send = Operation::Send { immediate: None };
    a.post_inline(1, send, &[1; 8]);
    assert!(a.sent().is_success() && b.received().is_success());
    drop(raw);
    a.post_inline(2, send, &[2; 8]);
    assert_eq!(b.received().status, CompletionStatus::LocalProtection);
    assert_eq!(memory[0], u64::from_ne_bytes([1; 8]));
    // SAFETY: as above; the call fails.
    let remote = unsafe { b.device.register_raw(&b.domain, start, 512, common::all()) };
    assert!(matches!(
        remote,
        Err(dunlin_verbs::VerbsError::Unsupported { .. })
    ));
}

/// A message longer than the port, and nobody takes it: without acknowledgements it is given up, and the next one
/// arrives.
#[test]
fn a_message_that_an_unreliable_sender_gives_up_leaves_no_trace() {
    use dunlin_verbs::{Device, Payload, ReceiveRequest, Segment, SendFlags, SendRequest};
    let (mut a, mut b) = pair_of(Transport::UnreliableConnection);
    let long = 4 << 20;
    let from = a
        .device
        .allocate_region(&a.domain, long, common::all())
        .unwrap();
    let to = b
        .device
        .allocate_region(&b.domain, long, common::all())
        .unwrap();
    let whole = |region| {
        [Segment {
            region,
            offset: 0,
            length: long,
        }]
    };
    b.pair
        .post_receive(&[ReceiveRequest {
            id: 1,
            segments: &whole(&to),
        }])
        .unwrap();
    a.pair
        .post_send(&[SendRequest::new(
            2,
            Operation::Send { immediate: None },
            Payload::Segments(&whole(&from)),
            SendFlags::SIGNALED,
        )])
        .unwrap();
    let given_up = a.sent();
    assert_eq!((given_up.id, given_up.is_success()), (2, true));
    quiet(&mut b.receives);
    a.post_inline(3, Operation::Send { immediate: None }, b"after it");
    assert!(a.sent().is_success());
    let received = b.received();
    assert!(received.is_success());
    assert_eq!((received.id, received.bytes), (1, 8));
    let mut bytes = [0; 8];
    to.memory().read(0, &mut bytes);
    assert_eq!(&bytes, b"after it");
}

/// A receive queue for RECEIVEs without bytes: more wake-ups than its small port holds at once, and nothing else.
#[test]
fn an_empty_receive_queue_takes_immediates_and_no_bytes() {
    let (mut a, mut b) = (
        Side::new(Transport::ReliableConnection),
        Side::new(Transport::ReliableConnection),
    );
    b.pair = b
        .device
        .create_queue_pair(
            &b.domain,
            &QueuePairConfig {
                transport: Transport::ReliableConnection,
                send_completions: &b.sends,
                receive_completions: &b.receives,
                send_requests: 64,
                receive_queue: ReceiveQueue::<ShmSharedReceiveQueue>::OwnEmpty(8),
                segments: 4,
                inline_bytes: 64,
            },
        )
        .unwrap();
    let (at_a, at_b) = (a.pair.address(), b.pair.address());
    a.connect(&at_b);
    b.connect(&at_a);
    let region = b.region.clone();
    let refused = b.pair.post_receive(&[ReceiveRequest {
        id: 0,
        segments: &[Segment {
            region: &region,
            offset: 0,
            length: 8,
        }],
    }]);
    assert_eq!(
        refused.unwrap_err().kind,
        PostErrorKind::Segments { count: 1, limit: 0 }
    );
    for number in 0..1000u32 {
        let receive = ReceiveRequest {
            id: number.into(),
            segments: &[],
        };
        b.pair.post_receive(&[receive]).unwrap();
        let send = Operation::Send {
            immediate: Some(number),
        };
        a.post_inline(number.into(), send, &[]);
        assert!(a.sent().is_success());
        let received = b.received();
        assert_eq!(
            (received.id, received.immediate),
            (number.into(), Some(number))
        );
    }
    let receive = ReceiveRequest {
        id: 7,
        segments: &[],
    };
    b.pair.post_receive(&[receive]).unwrap();
    a.post_inline(7, Operation::Send { immediate: None }, b"bytes");
    assert_eq!(a.sent().status, CompletionStatus::RemoteInvalidRequest);
    assert_eq!(b.received().status, CompletionStatus::LocalLength);
}

/// More than one turn takes: what the sender was told has arrived is there, and only then are RECEIVEs flushed.
#[test]
fn what_came_before_an_error_is_delivered_however_much_it_was() {
    const MESSAGES: u64 = 200;
    const RECEIVES: u64 = MESSAGES + 2;
    let (mut a, mut b) = [(); 2]
        .map(|()| Side::new(Transport::ReliableConnection))
        .into();
    let config = QueuePairConfig {
        transport: Transport::ReliableConnection,
        send_completions: &b.sends,
        receive_completions: &b.receives,
        send_requests: 1,
        receive_queue: ReceiveQueue::<ShmSharedReceiveQueue>::Own(RECEIVES as usize),
        segments: 1,
        inline_bytes: 0,
    };
    b.pair = b.device.create_queue_pair(&b.domain, &config).unwrap();
    let (at_a, at_b) = (a.pair.address(), b.pair.address());
    a.connect(&at_b);
    b.connect(&at_a);
    (0..RECEIVES).for_each(|id| b.receive(id, id as usize * 8, 8));
    for id in 0..MESSAGES {
        a.post_inline(id, Operation::Send { immediate: None }, &id.to_ne_bytes());
        assert!(a.sent().is_success());
    }
    b.pair.to_error();
    let mut found = Vec::new();
    common::wait(|| {
        let mut some = [Completion::EMPTY; 300];
        let count = b.receives.poll(&mut some).unwrap();
        found.extend_from_slice(&some[..count]);
        found.len() as u64 == RECEIVES
    });
    for (id, completion) in (0..).zip(&found) {
        let expected = match id < MESSAGES {
            true => CompletionStatus::Success,
            false => CompletionStatus::Flushed,
        };
        assert_eq!((completion.id, completion.status), (id, expected));
    }
    assert_eq!(read(&b, 8 * 199, 8), 199u64.to_ne_bytes());
    assert_eq!(b.device.poll_async_event(), None);
}
