//! Two processes, and what is left when one of them is killed.
#![allow(missing_docs)]

mod common;

use std::time::{Duration, Instant};

use common::addresses::{read_address, write_address};
use common::process::{listen, role, say, Other};
use common::{wait, Side};
use dunlin_verbs::{
    AsyncEvent, Completion, CompletionQueue, CompletionStatus, Device, Operation, Payload,
    QueuePair, QueuePairState, Region, RemoteAddress, SendFlags, SendRequest, Transport,
};

fn write(remote: RemoteAddress) -> Operation {
    Operation::Write {
        remote,
        immediate: None,
    }
}

/// In the other process: a connected side and the peer's memory.
fn other_side() -> (Side, RemoteAddress) {
    let mut side = Side::new(Transport::ReliableConnection);
    say(&write_address(&side.pair.address(), side.remote(0)));
    let (address, remote) = read_address(&listen().unwrap());
    side.connect(&address);
    (side, remote)
}

/// In the first process: a side connected to the other process.
fn connected(other: &mut Other) -> (Side, RemoteAddress) {
    let mut side = Side::new(Transport::ReliableConnection);
    let (address, remote) = read_address(&other.hear());
    other.say(&write_address(&side.pair.address(), side.remote(0)));
    side.connect(&address);
    (side, remote)
}

#[test]
fn two_processes_write_read_and_send() {
    if role().is_some() {
        let (mut side, _) = other_side();
        side.receive(1, 0, 4096);
        let received = side.received();
        assert!(received.is_success());
        let mut text = vec![0; received.bytes];
        side.region.memory().read(0, &mut text);
        side.post_inline(2, Operation::Send { immediate: Some(5) }, &text);
        assert!(side.sent().is_success());
        // The first process writes here when it has seen the answer.
        wait(|| {
            side.region
                .memory()
                .atomic_u64(8000)
                .load(std::sync::atomic::Ordering::Acquire)
                != 0
        });
        side.region.memory().write(9000, b"read me");
        say("done");
        listen().unwrap();
        return;
    }
    let mut other = Other::start("two_processes_write_read_and_send", "other", "");
    let (mut side, remote) = connected(&mut other);
    side.receive(7, 100, 100);
    side.post_inline(1, Operation::Send { immediate: None }, b"over there");
    assert!(side.sent().is_success());
    let received = side.received();
    assert_eq!(
        (received.id, received.bytes, received.immediate),
        (7, 10, Some(5))
    );
    let mut text = [0; 10];
    side.region.memory().read(100, &mut text);
    assert_eq!(&text, b"over there");
    side.post_inline(2, write(remote.plus(8000)), &1u64.to_ne_bytes());
    assert!(side.sent().is_success());
    assert_eq!(other.hear(), "done");
    let read = Operation::Read {
        remote: remote.plus(9000),
    };
    side.post(3, read, 0, 7);
    assert!(side.sent().is_success());
    let mut text = [0; 7];
    side.region.memory().read(0, &mut text);
    assert_eq!(&text, b"read me");
    other.say("bye");
}

/// The other writes and sends as fast as it can until it is killed; every message is the same byte over and over.
fn storm(side: &mut Side, remote: RemoteAddress) {
    let region = side.region.clone();
    let mut completions = [Completion::EMPTY; 64];
    for round in 1u64.. {
        let byte = round as u8;
        region.memory().fill(0, 2048, byte);
        let segments = [dunlin_verbs::Segment {
            region: &region,
            offset: 0,
            length: 2048,
        }];
        for operation in [write(remote), Operation::Send { immediate: None }] {
            let request = SendRequest::new(
                round,
                operation,
                Payload::Segments(&segments),
                SendFlags::SIGNALED,
            );
            while side.pair.post_send(&[request]).is_err() {
                let _ = side.sends.poll(&mut completions);
            }
        }
        // A segment is its request's until the completion.
        loop {
            let n = side.sends.poll(&mut completions).unwrap();
            if completions[..n]
                .iter()
                .any(|c| c.id == round && c.opcode == dunlin_verbs::CompletionOpcode::Send)
            {
                break;
            }
        }
    }
}

#[test]
fn a_killed_peer_is_noticed_and_everything_is_flushed() {
    if role().is_some() {
        let (mut side, remote) = other_side();
        say("storming");
        storm(&mut side, remote);
        return;
    }
    for round in 0..20u64 {
        survive(round);
    }
}

fn survive(round: u64) {
    let mut other = Other::start(
        "a_killed_peer_is_noticed_and_everything_is_flushed",
        "other",
        "",
    );
    let (mut side, _) = connected(&mut other);
    const RECEIVES: u64 = 16;
    for id in 0..RECEIVES {
        side.receive(id, 4096 + id as usize * 2048, 2048);
    }
    assert_eq!(other.hear(), "storming");
    let end = Instant::now() + Duration::from_micros(round * 337);
    let mut out = RECEIVES;
    let mut completions = [Completion::EMPTY; 16];
    let mut messages = 0u64;
    let mut handle = |side: &mut Side, again: bool| {
        let n = side.receives.poll(&mut completions).unwrap();
        for completion in &completions[..n] {
            out -= 1;
            if completion.status == CompletionStatus::Flushed {
                continue;
            }
            assert!(completion.is_success(), "{completion:?}");
            messages += 1;
            // Whole messages, in order: nothing torn, nothing lost.
            let mut bytes = [0; 2048];
            let at = 4096 + completion.id as usize * 2048;
            side.region.memory().read(at, &mut bytes);
            assert_eq!(completion.bytes, 2048);
            assert!(bytes.iter().all(|&b| b == messages as u8), "torn");
            if again && side.pair.state() == QueuePairState::ReadyToSend {
                side.receive(completion.id, at, 2048);
                out += 1;
            }
        }
        out
    };
    while Instant::now() < end {
        handle(&mut side, true);
    }
    other.kill();
    let mut event = None;
    wait(|| {
        handle(&mut side, false);
        event = side.device.poll_async_event();
        event.is_some()
    });
    assert!(matches!(event, Some(AsyncEvent::PeerGone(_))));
    // A peer that died before there was a session is in error with the first request, any other before it.
    side.post_inline(99, Operation::Send { immediate: None }, b"anyone?");
    assert!(matches!(
        side.sent().status,
        CompletionStatus::Flushed | CompletionStatus::RetryExceeded
    ));
    assert_eq!(side.pair.state(), QueuePairState::Error);
    wait(|| handle(&mut side, false) == 0);
}
