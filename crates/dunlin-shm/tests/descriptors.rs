//! What wake-ups cost in descriptors: one pair for each session and channel, however many queue pairs use it, and
//! nothing when they are gone. A file of its own with one test, because it counts what the whole process has open.
#![allow(missing_docs)]

mod common;

use std::time::Duration;

use common::{wait, Side};
use dunlin_shm::{ShmConfig, ShmDevice, ShmSharedReceiveQueue};
use dunlin_verbs::{
    CompletionChannel, CompletionQueue, Device, Notify, Operation, QueuePair, QueuePairConfig,
    ReceiveQueue, Transport,
};

const RC: Transport = Transport::ReliableConnection;
const SEND: Operation = Operation::Send { immediate: None };

/// Descriptors by which somebody could be woken.
fn wake_descriptors() -> usize {
    let all = std::fs::read_dir("/proc/self/fd").unwrap();
    let links = all.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    links
        .filter(|link| {
            let link = link.to_string_lossy();
            link.starts_with("socket:") || link.contains("eventfd")
        })
        .count()
}

#[test]
fn wake_ups_take_one_pair_for_each_session_and_channel() {
    let here = ShmDevice::open(ShmConfig::default()).unwrap();
    let there = ShmDevice::open(ShmConfig::default()).unwrap();
    let channel = here.create_completion_channel().unwrap();
    let connected = || {
        let (mut a, mut b) = (Side::on(&there, RC), Side::on(&here, RC));
        b.receives = here.create_completion_queue(16, Some(&channel)).unwrap();
        let config = QueuePairConfig {
            transport: RC,
            send_completions: &b.sends,
            receive_completions: &b.receives,
            send_requests: 16,
            receive_queue: ReceiveQueue::<ShmSharedReceiveQueue>::Own(16),
            segments: 1,
            inline_bytes: 64,
        };
        b.pair = here.create_queue_pair(&b.domain, &config).unwrap();
        let (at_a, at_b) = (a.pair.address(), b.pair.address());
        a.connect(&at_b);
        b.connect(&at_a);
        b.receive(1, 0, 64);
        b.receives.request_notify(Notify::Next).unwrap();
        common::quiet(&mut b.receives);
        a.post_inline(1, SEND, b"wake up");
        wait(|| channel.wait(Duration::from_secs(600)).unwrap());
        assert!(b.received().is_success());
        assert!(a.sent().is_success());
        (a, b)
    };
    // The first makes the sessions, which stay.
    drop(connected());
    let asleep = || !channel.wait(Duration::from_millis(1)).unwrap();
    wait(asleep);
    let none = wake_descriptors();
    for _ in 0..3 {
        let first = connected();
        let one = wake_descriptors();
        let more: Vec<_> = (0..64).map(|_| connected()).collect();
        // 65 have no more than one. The control threads may have had a socket open for a moment when either was
        // counted.
        wait(|| wake_descriptors() <= one);
        drop((first, more));
        // The peer's end is gone with the last, and so is ours, once somebody has looked.
        wait(|| {
            asleep();
            wake_descriptors() <= none
        });
        wait(asleep);
    }
}
