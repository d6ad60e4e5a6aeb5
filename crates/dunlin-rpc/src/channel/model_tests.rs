//! Outbox and inbox against a model: every message once, in order, whole, however the bytes arrive and however late
//! consumption is told.

use std::collections::VecDeque;

use dunlin_verbs::{Access, Device, Region};
use proptest::prelude::*;

use super::inbox::{Arrival, Inbox};
use super::line::{self, Header, Kind, BODY_BYTES, LINE_BYTES};
use super::outbox::Outbox;

/// Where the ring begins in its region; the bytes before and after it must stay as they are.
const START: usize = 4096;
const FENCE: u8 = 0xa5;

/// What a scheduler may choose.
#[derive(Clone, Debug)]
enum Action {
    /// Encode a message of this many bytes, if there is room.
    Push(usize),
    /// Hand the batch to the wire.
    Flush,
    /// Let this many lines of the wire arrive, in order.
    Deliver(usize),
    /// Let the body of the next line arrive, up to a byte before its tag is complete.
    DeliverPart(usize),
    /// Take at most this many messages.
    Receive(usize),
    /// Tell the writer what was consumed, as it was at the last telling or now.
    Tell { late: bool },
}

fn actions(eager: usize) -> impl Strategy<Value = Vec<Action>> {
    let action = prop_oneof![
        4 => prop_oneof![0..=100usize, 0..=eager, Just(eager), Just(40), Just(41)].prop_map(Action::Push),
        2 => Just(Action::Flush),
        3 => (1..40usize).prop_map(Action::Deliver),
        1 => (1..LINE_BYTES).prop_map(Action::DeliverPart),
        3 => (1..10usize).prop_map(Action::Receive),
        2 => any::<bool>().prop_map(|late| Action::Tell { late }),
    ];
    proptest::collection::vec(action, 50..600)
}

/// Bytes that belong to the message of this number.
fn payload(number: u64, length: usize) -> Vec<u8> {
    (0..length as u64)
        .map(|i| (number.wrapping_mul(0x9e37_79b9).wrapping_add(i * 131) >> 3) as u8)
        .collect()
}

/// Lines on their way: offset in the ring and content.
type Wire = VecDeque<(usize, Vec<u8>)>;

fn flush(outbox: &mut Outbox, wire: &mut Wire) {
    if outbox.is_flushed() {
        return;
    }
    let (first, second) = outbox.pieces();
    for piece in std::iter::once(first).chain(second) {
        for (i, bytes) in piece.bytes.chunks(LINE_BYTES).enumerate() {
            wire.push_back((piece.offset + i * LINE_BYTES, bytes.to_vec()));
        }
    }
    outbox.written();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn every_message_arrives_once_in_order_and_whole(
        shift in 6u32..9, eager_share in 0..3usize, mut script in actions(1000), repeat in 1..6usize
    ) {
        let lines = 1usize << shift;
        let eager = [64, 500, 1000][eager_share].min(lines * LINE_BYTES / 4);
        let device = crate::devices::shared_memory().unwrap();
        let domain = device.create_protection_domain().unwrap();
        let bytes = START + lines * LINE_BYTES + 4096;
        let region = device.allocate_region(&domain, bytes, Access::LOCAL_WRITE).unwrap();
        let memory = region.memory();
        memory.fill(0, START, FENCE);
        memory.fill(START + lines * LINE_BYTES, 4096, FENCE);
        let mut outbox = Outbox::new(lines, eager);
        let mut inbox = Inbox::new(START, lines, eager);
        let mut wire = Wire::new();
        let mut sent = VecDeque::new();
        let (mut number, mut told, mut taken) = (0u64, 0u64, 0u64);
        // Lines that were delivered and not yet consumed, by position: nobody may write them.
        let mut delivered = 0u64;
        // The script several times, so that the ring wraps around often, and then everything that is left.
        let script_end = [Action::Flush, Action::Deliver(1 << 12), Action::Receive(1 << 12), Action::Tell { late: false }];
        let once = std::mem::take(&mut script);
        for _ in 0..repeat {
            script.extend(once.iter().cloned());
        }
        script.extend(script_end);
        for action in script {
            match action {
                Action::Push(length) => {
                    let length = length.min(eager);
                    let needed = line::lines_for(length);
                    if !outbox.batch_fits(needed) {
                        flush(&mut outbox, &mut wire);
                    }
                    if outbox.room() < needed {
                        continue;
                    }
                    let body = payload(number, length);
                    let header = Header { length: length as u32, handler: number as u16, kind: Kind::Request, call: number };
                    outbox.push(header, &body, number.wrapping_mul(77));
                    sent.push_back((header, body, number.wrapping_mul(77) as u32));
                    number += 1;
                }
                Action::Flush => flush(&mut outbox, &mut wire),
                Action::Deliver(count) => {
                    for _ in 0..count {
                        let Some((offset, bytes)) = wire.pop_front() else { break };
                        prop_assert_eq!(offset / LINE_BYTES, delivered as usize % lines);
                        prop_assert!(delivered - inbox.consumed() < lines as u64, "an unread line is overwritten");
                        memory.write(START + offset, &bytes);
                        delivered += 1;
                    }
                }
                Action::DeliverPart(count) => {
                    if let Some((offset, bytes)) = wire.front() {
                        // The tag arrives as one word.
                        let count = count.min(BODY_BYTES);
                        prop_assert!(delivered - inbox.consumed() < lines as u64, "an unread line is overwritten");
                        memory.write(START + offset, &bytes[..count]);
                    }
                }
                Action::Receive(count) => {
                    for _ in 0..count {
                        let Some(Arrival { header, peer_consumed }) = inbox.receive(memory).unwrap() else { break };
                        let (expected, body, consumed) = sent.pop_front().expect("a message that nobody sent");
                        prop_assert_eq!(header, expected);
                        prop_assert_eq!(inbox.payload(header), &body[..]);
                        prop_assert_eq!(peer_consumed, consumed);
                        prop_assert!(inbox.consumed() <= delivered, "a message was taken before it was whole");
                        taken += 1;
                    }
                }
                Action::Tell { late } => {
                    if !late {
                        told = inbox.consumed();
                    }
                    outbox.peer_consumed(told as u32).unwrap();
                    prop_assert_eq!(outbox.known_consumed(), told);
                }
            }
        }
        prop_assert!(sent.is_empty(), "{} messages were lost", sent.len());
        prop_assert_eq!(taken, number);
        let mut fence = vec![0; START];
        memory.read(0, &mut fence);
        prop_assert!(fence.iter().all(|&byte| byte == FENCE));
        memory.read(START + lines * LINE_BYTES, &mut fence);
        prop_assert!(fence.iter().all(|&byte| byte == FENCE));
    }

    #[test]
    fn any_bytes_in_the_ring_are_messages_or_an_error(noise: Vec<u8>, laps in prop::collection::vec(0..3u32, 64), kinds in prop::collection::vec(0..12u8, 64)) {
        let (lines, eager) = (64usize, 1000usize);
        let device = crate::devices::shared_memory().unwrap();
        let domain = device.create_protection_domain().unwrap();
        let region = device.allocate_region(&domain, START + lines * LINE_BYTES, Access::LOCAL_WRITE).unwrap();
        let memory = region.memory();
        for (i, chunk) in noise.chunks(BODY_BYTES).take(lines).enumerate() {
            memory.write(START + i * LINE_BYTES, chunk);
        }
        for i in 0..lines {
            let at = START + i * LINE_BYTES;
            memory.write(at + 6, &[kinds[i], 0]);
            memory.write(at + 2, &[0, 0]);
            memory.write(at + BODY_BYTES, &line::tag(laps[i], 5).to_le_bytes());
        }
        let mut inbox = Inbox::new(START, lines, eager);
        while let Ok(Some(arrival)) = inbox.receive(memory) {
            prop_assert!(inbox.payload(arrival.header).len() <= eager);
            prop_assert!(inbox.consumed() <= 2 * lines as u64);
        }
    }
}

#[test]
fn counts_that_lie_are_violations() {
    let mut outbox = Outbox::new(64, 100);
    let header = Header {
        length: 0,
        handler: 1,
        kind: Kind::Request,
        call: 1,
    };
    outbox.push(header, &[], 0);
    assert!(
        outbox.peer_consumed(1).is_err(),
        "the batch was not even written"
    );
    outbox.written();
    assert!(outbox.peer_consumed(2).is_err());
    assert!(
        outbox.peer_consumed(u32::MAX).is_err(),
        "a count that goes back"
    );
    outbox.peer_consumed(1).unwrap();
    assert!(outbox.peer_consumed(0).is_err(), "a count that goes back");
    assert_eq!(outbox.room(), 64);
}
