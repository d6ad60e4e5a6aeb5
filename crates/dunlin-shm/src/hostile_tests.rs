//! A peer that scribbles over every word it may write, and an owner that does.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dunlin_verbs::{
    Access, Completion, CompletionChannel, CompletionQueue, ConnectAttributes, Destination, Device,
    EndpointAddress, Notify, Operation, Payload, QueuePair, QueuePairConfig, QueuePairState,
    ReceiveQueue, ReceiveRequest, Segment, SendFlags, SendRequest, Transport,
};

use crate::port::{PortMap, Record, RecordKind};
use crate::receive::RECORDS_PER_TURN;
use crate::{
    ShmAddressHandle, ShmCompletionChannel, ShmCompletionQueue, ShmConfig, ShmDevice, ShmQueuePair,
    ShmRegion, ShmSharedReceiveQueue,
};

struct Side {
    device: ShmDevice,
    region: ShmRegion,
    queue: ShmCompletionQueue,
    pair: ShmQueuePair,
}

fn side() -> Side {
    let device = ShmDevice::open(ShmConfig::default()).unwrap();
    let domain = device.create_protection_domain().unwrap();
    let region = device
        .allocate_region(&domain, 1 << 16, Access::all())
        .unwrap();
    let queue = device.create_completion_queue(256, None).unwrap();
    let pair = device
        .create_queue_pair(
            &domain,
            &QueuePairConfig {
                transport: Transport::ReliableConnection,
                send_completions: &queue,
                receive_completions: &queue,
                send_requests: 32,
                receive_queue: ReceiveQueue::<ShmSharedReceiveQueue>::Own(16),
                segments: 2,
                inline_bytes: 256,
            },
        )
        .unwrap();
    Side {
        device,
        region,
        queue,
        pair,
    }
}

fn connect(a: &mut Side, b: &mut Side) {
    let (at_a, at_b) = (a.pair.address(), b.pair.address());
    for (side, remote) in [(a, at_b), (b, at_a)] {
        side.pair.to_reset();
        side.pair.to_init(Access::all()).unwrap();
        side.pair
            .to_ready_to_receive(Some(&remote), ConnectAttributes::default())
            .unwrap();
        side.pair.to_ready_to_send().unwrap();
    }
}

fn send(side: &mut Side) {
    let request = SendRequest::<_, ShmAddressHandle>::new(
        1,
        Operation::Send { immediate: None },
        Payload::Inline(&[7; 200]),
        SendFlags::SIGNALED,
    );
    let _ = side.pair.post_send(&[request]);
}

fn receive(side: &mut Side) {
    let region = side.region.clone();
    let segments = [Segment {
        region: &region,
        offset: 1000,
        length: 3000,
    }];
    let _ = side.pair.post_receive(&[ReceiveRequest {
        id: 1,
        segments: &segments,
    }]);
}

fn random(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

/// One round: `b`'s port is scribbled on while `b` receives and `a` sends into it.
fn round(a: &mut Side, b: &mut Side, seed: &mut u64) -> bool {
    connect(a, b);
    receive(b);
    send(a);
    let mut completions = [Completion::EMPTY; 8];
    let start = Instant::now();
    let mut seen = 0;
    while seen < 2 {
        seen += a.queue.poll(&mut completions).unwrap();
        seen += b.queue.poll(&mut completions).unwrap();
        assert!(start.elapsed() < Duration::from_secs(10));
    }
    let port = b.pair.port_for_tests();
    let stop = Arc::new(AtomicBool::new(false));
    let scribbler = {
        let (port, stop, mut seed) = (Arc::clone(&port), Arc::clone(&stop), random(seed));
        std::thread::spawn(move || scribble(&port, &stop, &mut seed))
    };
    let end = Instant::now() + Duration::from_millis(10);
    while Instant::now() < end {
        receive(b);
        send(a);
        let n = a.queue.poll(&mut completions).unwrap();
        let m = b.queue.poll(&mut completions[n..]).unwrap();
        for completion in &completions[..n + m] {
            assert!(completion.bytes <= 3000, "{completion:?}");
        }
        if b.pair.state() == QueuePairState::Error && a.pair.state() == QueuePairState::Error {
            break;
        }
    }
    stop.store(true, Ordering::Relaxed);
    scribbler.join().unwrap();
    b.pair.state() == QueuePairState::Error
}

fn scribble(port: &PortMap, stop: &AtomicBool, seed: &mut u64) {
    let words = port.words_for_tests();
    while !stop.load(Ordering::Relaxed) {
        let value = random(seed);
        let place = match random(seed) % 4 {
            // The control words, with values that are nearly right, or with anything.
            0 => (random(seed) % 40) as usize,
            1 => 0,
            _ => (random(seed) % words as u64) as usize,
        };
        let word = port.word_for_tests(place);
        let value = match random(seed) % 4 {
            0 => value,
            1 => word.load(Ordering::Relaxed).wrapping_add(value % 8 * 16),
            2 => value % 4096,
            _ => Record {
                kind: RecordKind::Send,
                solicited: false,
                first: value & 6 != 0,
                more: value & 1 != 0,
                bytes: (value >> 8) as u32 % 5000,
                total: (value >> 32) as u32 % 5000,
                immediate: 0,
            }
            .encode()[(value & 1) as usize],
        };
        word.store(value, Ordering::Relaxed);
    }
}

#[test]
fn scribbling_costs_the_queue_pair_and_nothing_else() {
    let (mut a, mut b) = (side(), side());
    let mut seed = 0x9e37_79b9_7f4a_7c15;
    let failed = (0..100)
        .filter(|_| round(&mut a, &mut b, &mut seed))
        .count();
    assert!(failed > 50, "only {failed} of 100 rounds were noticed");
    assert!(b.device.poll_async_event().is_some());
    // The rest of the device is as it was.
    connect(&mut a, &mut b);
    receive(&mut b);
    send(&mut a);
    let mut completions = [Completion::EMPTY; 8];
    let start = Instant::now();
    let mut good = 0;
    while good < 2 {
        for queue in [&mut a.queue, &mut b.queue] {
            let n = queue.poll(&mut completions).unwrap();
            good += completions[..n].iter().filter(|c| c.is_success()).count();
        }
        assert!(start.elapsed() < Duration::from_secs(10));
    }
}

/// A datagram queue pair whose arrivals raise events of the channel.
fn datagram_side() -> (Side, ShmCompletionChannel) {
    let device = ShmDevice::open(ShmConfig::default()).unwrap();
    let domain = device.create_protection_domain().unwrap();
    let region = device
        .allocate_region(&domain, 1 << 16, Access::all())
        .unwrap();
    let channel = device.create_completion_channel().unwrap();
    let queue = device.create_completion_queue(64, Some(&channel)).unwrap();
    let config = QueuePairConfig {
        transport: Transport::UnreliableDatagram,
        send_completions: &queue,
        receive_completions: &queue,
        send_requests: 32,
        receive_queue: ReceiveQueue::<ShmSharedReceiveQueue>::Own(16),
        segments: 1,
        inline_bytes: 256,
    };
    let mut pair = device.create_queue_pair(&domain, &config).unwrap();
    pair.to_init(Access::all()).unwrap();
    pair.to_ready_to_receive(None, ConnectAttributes::default())
        .unwrap();
    pair.to_ready_to_send().unwrap();
    let side = Side {
        device,
        region,
        queue,
        pair,
    };
    (side, channel)
}

/// Sends a datagram, which has left when this returns.
fn send_datagram(side: &mut Side, to: &EndpointAddress, bytes: usize) {
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
        assert!(start.elapsed() < Duration::from_secs(10));
    }
}

#[test]
fn a_sender_of_what_nobody_takes_has_turns_like_others() {
    const FLOOD: usize = 1000;
    let ((mut flood, _), (mut good, _), (mut b, channel)) =
        (datagram_side(), datagram_side(), datagram_side());
    let to = b.pair.address();
    // With their header they are longer than the RECEIVE, so that they are dropped and it stays.
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
    let all = [FLOOD as u64 * record, 48];
    let mut completions = [Completion::EMPTY; 8];
    let mut made = b.queue.poll(&mut completions).unwrap();
    let first = b.pair.taken_for_tests();
    assert!(
        first[0] <= RECORDS_PER_TURN as u64 * record,
        "{first:?} of {all:?}"
    );
    // The other is served beside it, and who sleeps meanwhile is told to look again.
    while b.pair.taken_for_tests()[0] < all[0] {
        b.queue.request_notify(Notify::Next).unwrap();
        made += b.queue.poll(&mut completions).unwrap();
        let over = b.pair.taken_for_tests()[0] == all[0];
        assert!(channel.wait(Duration::ZERO).unwrap() || over);
        assert_eq!(made, 1, "the other waits");
    }
    // Where there is no RECEIVE at all it is one step, however much it was.
    assert_eq!(b.pair.taken_for_tests(), all);
    (0..FLOOD).for_each(|_| send_datagram(&mut flood, &to, 200));
    assert_eq!(b.queue.poll(&mut completions).unwrap(), 0);
    assert_eq!(b.pair.taken_for_tests()[0], 2 * all[0]);
}
