//! Channels between two threads over devices of each kind: whatever the form of the batches, every message arrives
//! complete.

use std::time::{Duration, Instant};

use dunlin_shm::{ShmConfig, ShmDevice};
use dunlin_verbs::{Device, Placement};

use super::message::Kind;
use super::opening::Opening;
use super::ring::RingChannel;
use super::Channel;
use crate::ChannelConfig;

fn device(placement: Placement, writes_are_messages: bool) -> ShmDevice {
    let mut config = ShmConfig::default();
    config.placement = placement;
    config.writes_are_messages = writes_are_messages;
    ShmDevice::open(config).unwrap()
}

fn unconnected(device: &ShmDevice) -> Opening<RingChannel<ShmDevice>> {
    let wake = device.create_completion_channel().unwrap();
    let config = ChannelConfig {
        ring_bytes: 16 << 10,
        ..ChannelConfig::default()
    };
    RingChannel::open(device, &wake, &config).unwrap()
}

fn bytes_of(number: u64) -> Vec<u8> {
    let length = [0, 1, 32, 33, 64, 500, 4000][number as usize % 7];
    (0..length).map(|i| (number * 31 + i) as u8).collect()
}

/// Takes what has arrived, from a peer that writes at the same time.
fn take(channel: &mut RingChannel<ShmDevice>, next: &mut u64) {
    while let Some(header) = channel.receive().unwrap() {
        assert_eq!(header.call, *next);
        assert_eq!(channel.payload(header), bytes_of(*next));
        *next += 1;
    }
    channel.tell_consumed().unwrap();
    channel.progress().unwrap();
}

#[test]
fn messages_that_are_written_twice_come_whole() {
    let device = || device(Placement::Unordered, true);
    come_whole(&device(), &device());
}

#[test]
fn messages_in_one_write_come_whole() {
    let device = || device(Placement::InOrder, true);
    come_whole(&device(), &device());
}

#[test]
fn a_writer_of_messages_and_one_that_stores_understand_each_other() {
    let (wire, memory) = (
        device(Placement::InOrder, true),
        device(Placement::InOrder, false),
    );
    come_whole(&wire, &memory);
    come_whole(&memory, &wire);
}

/// Many messages of many lengths from `left` to `right`, which reads while they are written.
fn come_whole(left: &ShmDevice, right: &ShmDevice) {
    const MESSAGES: u64 = 5000;
    let (dialled, called) = (unconnected(left), unconnected(right));
    let (address, parameters) = (called.address, called.parameters);
    let mut called = (called.join)(&dialled.address, &dialled.parameters).unwrap();
    let mut dialled = (dialled.join)(&address, &parameters).unwrap();
    dialled.greet().unwrap();
    let patience = Instant::now() + Duration::from_secs(60);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut next = 0;
            while next < MESSAGES {
                take(&mut called, &mut next);
                assert!(Instant::now() < patience, "{next} of {MESSAGES} came");
            }
        });
        for number in 0..MESSAGES {
            let bytes = bytes_of(number);
            while !dialled.make_room(bytes.len()).unwrap() {
                dialled.progress().unwrap();
                std::thread::yield_now();
                assert!(Instant::now() < patience, "no room for {number}");
            }
            dialled.push(Kind::Request, 1, number, &bytes);
            dialled.flush().unwrap();
        }
    });
}
