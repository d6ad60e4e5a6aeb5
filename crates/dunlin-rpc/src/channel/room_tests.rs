//! Room: what the peer's ring and the own send queue hold, and what happens to messages that find none.

use std::time::{Duration, Instant};

use dunlin_shm::{ShmConfig, ShmDevice};
use dunlin_verbs::Device;

use super::batch::Form;
use super::carrier::SLEEP_AT;
use super::message::{Header, Kind};
use super::outbox::Outbox;
use super::ring::{RingChannel, UnconnectedRing};
use super::Channel;
use crate::ChannelConfig;

const PATIENCE: Duration = Duration::from_secs(20);

fn pair() -> (RingChannel<ShmDevice>, RingChannel<ShmDevice>) {
    let device = ShmDevice::open(ShmConfig::default()).unwrap();
    let ring = || {
        let wake = device.create_completion_channel().unwrap();
        UnconnectedRing::new(&device, &wake, &ChannelConfig::default()).unwrap()
    };
    let (dialled, called) = (ring(), ring());
    let told = (dialled.address(), dialled.parameters());
    let answer = (called.address(), called.parameters());
    let called = called.join(&told.0, &told.1).unwrap();
    (dialled.connect(&answer.0, &answer.1).unwrap(), called)
}

/// Whoever forgets to ask for room is told, instead of writing over what the peer has not read.
#[test]
fn a_batch_without_room_is_an_error() {
    for form in [Form::Sealed, Form::FirstLineLast, Form::Twice] {
        let mut outbox = Outbox::new(256, 4096, 7, form);
        let header = || Header::new(Kind::Response, 0, 1, 4096);
        let mut lines = 256usize;
        while outbox.fits(4096) {
            outbox.push(header(), &[1; 4096]);
            assert!(outbox.pieces(0).is_ok());
            outbox.written();
            lines -= 65;
        }
        assert!(lines < 65);
        outbox.push(header(), &[1; 4096]);
        let error = outbox.pieces(0).unwrap_err();
        assert!(!error.is_violation(), "it is our own fault: {error}");
    }
}

/// A peer that takes no wake-up stops the send queue: nobody waits for it, and when it goes on everything comes.
#[test]
fn a_full_send_queue_is_no_room() {
    let (mut peer, mut writer) = pair();
    let mut pushed = 0u64;
    let mut refused = 0;
    // Each announced sleep is answered by a wake-up, for which the peer has a few RECEIVEs and posts no more.
    for sleep in 1..2000u64 {
        peer.write_word(SLEEP_AT, &sleep.to_le_bytes(), false)
            .unwrap();
        if !writer.make_room(8).unwrap() {
            refused += 1;
            if refused > 100 {
                break;
            }
            continue;
        }
        writer.push(Kind::Response, 0, pushed, &pushed.to_le_bytes());
        pushed += 1;
        writer.flush().unwrap();
        writer.tell_consumed().unwrap();
        writer.probe().unwrap();
    }
    assert!(
        refused > 100,
        "the send queue never filled: {pushed} messages"
    );
    assert!(!writer.prepare_sleep().unwrap(), "it has something to send");
    let started = Instant::now();
    let mut taken = 0;
    while taken < pushed {
        assert!(started.elapsed() < PATIENCE, "{taken} of {pushed} came");
        peer.progress().unwrap();
        while let Some(header) = peer.receive().unwrap() {
            assert_eq!((header.kind, header.call), (Kind::Response, taken));
            assert_eq!(peer.payload(header), taken.to_le_bytes());
            taken += 1;
        }
        peer.tell_consumed().unwrap();
        assert!(writer.receive().unwrap().is_none());
    }
}
