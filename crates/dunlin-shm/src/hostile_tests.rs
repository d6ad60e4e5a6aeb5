//! A peer that overwrites every word that it may write, and an owner that does.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dunlin_verbs::{
    Access, Completion, CompletionQueue, ConnectAttributes, Device, QueuePair, QueuePairState,
    Transport,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::control::message::{Message, MESSAGE_BYTES, VERSION};
use crate::fuzzing::{connect, meet, FuzzedPort, Side};
use crate::port::{PortMap, Record, RecordKind};

fn random(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

/// One round: `b`'s port is overwritten while `b` receives and `a` sends into it.
fn round(a: &mut Side, b: &mut Side, seed: &mut u64) -> bool {
    let port = meet(a, b);
    let stop = Arc::new(AtomicBool::new(false));
    let scribbler = {
        let (port, stop, mut seed) = (Arc::clone(&port), Arc::clone(&stop), random(seed));
        std::thread::spawn(move || scribble(&port, &stop, &mut seed))
    };
    let end = Instant::now() + Duration::from_millis(100);
    while Instant::now() < end {
        b.receive();
        a.send(b);
        a.poll();
        b.poll();
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
            // The control words, with values that are nearly valid, or arbitrary ones.
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
    let transport = Transport::ReliableConnection;
    let (mut a, mut b) = (Side::new(transport), Side::new(transport));
    let mut seed = 0x9e37_79b9_7f4a_7c15;
    let failed = (0..100)
        .filter(|_| round(&mut a, &mut b, &mut seed))
        .count();
    assert!(failed > 50, "only {failed} of 100 rounds were noticed");
    assert!(b.device.poll_async_event().is_some());
    // The rest of the device is unaffected.
    connect(&mut a, &mut b);
    b.receive();
    a.send(&b);
    let mut completions = [Completion::EMPTY; 8];
    let start = Instant::now();
    let mut good = 0;
    while good < 2 {
        for queue in [&mut a.queue, &mut b.queue] {
            let n = queue.poll(&mut completions).unwrap();
            good += completions[..n].iter().filter(|c| c.is_success()).count();
        }
        assert!(start.elapsed() < Duration::from_secs(60));
    }
}

/// The same as the fuzz target, with random input: it does not replace the target, but shows that it works.
#[test]
fn a_fuzzed_port_takes_noise() {
    let mut seed = 7;
    for transport in 0..3 {
        let mut port = FuzzedPort::new(transport);
        for _ in 0..40 {
            let noise: Vec<u8> = (0..400).map(|_| random(&mut seed) as u8).collect();
            port.receive(&noise);
        }
    }
}

/// Makes a datagram queue pair ready.
fn ready(side: &mut Side) {
    side.pair.to_init(Access::all()).unwrap();
    side.pair
        .to_ready_to_receive(None, ConnectAttributes::default())
        .unwrap();
    side.pair.to_ready_to_send().unwrap();
}

fn wait(mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(60), "waited in vain");
    }
}

/// A session without a device to that of `side`.
fn session_to(side: &Side) -> OwnedFd {
    let kind = SocketType::SEQPACKET;
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None).unwrap();
    let address = crate::control::socket::address(side.pair.address().gid).unwrap();
    rustix::net::connect(&socket, &address).unwrap();
    let hello = Message::Hello {
        version: VERSION,
        uid: [1; 16],
    };
    rustix::io::write(&socket, &hello.encode()).unwrap();
    socket
}

#[test]
fn a_sender_of_datagrams_that_writes_nonsense_keeps_no_pages_of_ours() {
    let mut side = Side::new(Transport::UnreliableDatagram);
    ready(&mut side);
    side.receive();
    let session = session_to(&side);
    let target = side.pair.address();
    for request in 0..3 {
        let question = Message::AttachDatagram {
            request,
            requester: request,
            target: target.queue_pair,
            queue_key: target.queue_key,
        };
        rustix::io::write(&session, &question.encode()).unwrap();
        let mut answer = [0; MESSAGE_BYTES];
        rustix::io::read(&session, &mut answer).unwrap();
        assert!(matches!(Message::decode(&answer), Ok(Message::Port { .. })));
        let port = side.pair.inbound_port().unwrap();
        port.tail().store(8, Ordering::SeqCst);
        let port = {
            let kept = Arc::downgrade(&port);
            drop(port);
            kept
        };
        wait(|| {
            side.poll();
            port.strong_count() == 0
        });
    }
}

#[test]
fn who_writes_nonsense_where_nobody_receives_hides_no_other_sender() {
    let sides = || Side::new(Transport::UnreliableDatagram);
    let (mut bad, mut good, mut b) = (sides(), sides(), sides());
    for side in [&mut bad, &mut good, &mut b] {
        ready(side);
    }
    let port = {
        let arrives = |from: &mut Side, b: &mut Side| {
            b.receive();
            from.send(b);
            wait(|| b.poll() == 1);
        };
        arrives(&mut bad, &mut b);
        let port = b.pair.inbound_port().unwrap();
        arrives(&mut good, &mut b);
        port
    };
    port.tail().store(8, Ordering::SeqCst);
    // No RECEIVE is posted yet, so posting the first one removes the port of the bad sender.
    b.receive();
    good.send(&b);
    wait(|| b.poll() == 1);
}
