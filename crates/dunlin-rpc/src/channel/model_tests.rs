//! Outbox and inbox against a model: every message arrives once, in order and complete, however the bytes arrive and
//! however late consumption is reported.

use std::collections::VecDeque;

use dunlin_verbs::{Access, Device, Region};
use proptest::prelude::*;

use super::batch::{self, Canaries, Form, LINE_BYTES};
use super::inbox::Inbox;
use super::message::{self, Header, Kind, ShortKind};
use super::outbox::Outbox;
use super::ChannelError;

/// Offset of the ring in its region; the bytes before and after it must not change.
const START: usize = 4096;
const FENCE: u8 = 0xa5;
const SEED: u64 = 12;

/// The actions of a scheduler.
#[derive(Clone, Debug)]
enum Action {
    /// Encode a message of this many bytes, if there is room.
    Push(usize),
    /// Write the batch to the wire.
    Flush,
    /// Let this many words of 8 bytes arrive, in order.
    Deliver(usize),
    /// Take at most this many messages.
    Receive(usize),
    /// Tell the writer what was consumed, as of the last report or now.
    Tell { late: bool },
}

fn actions(eager: usize) -> impl Strategy<Value = Vec<Action>> {
    let action = prop_oneof![
        4 => prop_oneof![0..=100usize, 0..=eager, Just(eager), Just(32), Just(33)].prop_map(Action::Push),
        2 => Just(Action::Flush),
        3 => (1..400usize).prop_map(Action::Deliver),
        1 => (1..10usize).prop_map(Action::Deliver),
        3 => (1..10usize).prop_map(Action::Receive),
        2 => any::<bool>().prop_map(|late| Action::Tell { late }),
    ];
    proptest::collection::vec(action, 50..600)
}

fn forms() -> impl Strategy<Value = Form> {
    prop::sample::select(vec![Form::Twice, Form::Sealed])
}

/// The payload of the message with this number.
fn payload(number: u64, length: usize) -> Vec<u8> {
    (0..length as u64)
        .map(|i| (number.wrapping_mul(0x9e37_79b9).wrapping_add(i * 131) >> 3) as u8)
        .collect()
}

/// Words in flight, in the order of their WRITEs, and the lines that were ever written.
#[derive(Default)]
struct Wire {
    words: VecDeque<Flying>,
    lines: u64,
}

/// A word in flight: the line that it belongs to, counted since the start of the connection, its offset in the ring,
/// its content.
struct Flying {
    line: u64,
    offset: usize,
    word: [u8; 8],
}

fn flush(outbox: &mut Outbox, wire: &mut Wire, lines: usize, consumed: u64, form: Form) {
    if outbox.is_flushed() {
        return;
    }
    let base = wire.lines;
    let (mut bytes, mut writes) = (0, 0);
    for piece in outbox.pieces(consumed).expect("room") {
        bytes += piece.bytes.len();
        writes += usize::from(!piece.bytes.is_empty());
        let mut words: Vec<_> = piece.bytes.chunks(8).enumerate().collect();
        if form == Form::Twice {
            // Any order within a WRITE: this one is the opposite of what the other kind of device guarantees.
            words.reverse();
        }
        for (i, word) in words {
            let offset = piece.offset + i * 8;
            // A batch is shorter than the ring, so its base and the place in the ring give the position.
            let beyond = (offset / LINE_BYTES + lines - base as usize % lines) % lines;
            wire.words.push_back(Flying {
                line: base + beyond as u64,
                offset,
                word: word.try_into().unwrap(),
            });
        }
    }
    assert_eq!(bytes % LINE_BYTES, 0);
    if form == Form::Sealed {
        let wraps = base as usize % lines + bytes / LINE_BYTES > lines;
        assert_eq!(writes, 1 + usize::from(wraps));
    }
    wire.lines += (bytes / LINE_BYTES) as u64;
    outbox.written();
}

/// Does what a channel does: returns the count in the batch that is opened, and its next message.
fn receive(
    inbox: &mut Inbox,
    memory: &dunlin_verbs::Memory,
) -> Result<Option<(Header, Option<u32>)>, ChannelError> {
    let mut told = None;
    if inbox.messages() == 0 {
        told = inbox.open(memory)?;
        if told.is_none() {
            return Ok(None);
        }
    }
    let mut messages = inbox.short_messages();
    let short = match messages.is_empty() {
        true => None,
        false => messages.take(ShortKind::Request)?,
    };
    drop(messages);
    let header = match short {
        Some((short, _)) => Some(short.as_header(ShortKind::Request)),
        None => inbox.take()?,
    };
    Ok(header.map(|header| (header, told)))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn every_message_arrives_once_in_order_and_whole(
        shift in 6u32..9, eager_share in 0..3usize, mut script in actions(1000), repeat in 1..6usize, form in forms()
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
        let mut outbox = Outbox::new(lines, eager, SEED, form);
        let mut inbox = Inbox::new(START, lines, eager, SEED, form);
        let mut wire = Wire::default();
        let mut sent = VecDeque::new();
        let (mut number, mut told, mut taken) = (0u64, 0u64, 0u64);
        // The script several times, so that the ring wraps around often, and then the rest.
        let script_end = [Action::Flush, Action::Deliver(1 << 15), Action::Receive(1 << 12), Action::Tell { late: false }];
        let once = std::mem::take(&mut script);
        for _ in 0..repeat {
            script.extend(once.iter().cloned());
        }
        script.extend(script_end);
        for action in script {
            match action {
                Action::Push(length) => {
                    let length = length.min(eager);
                    if !outbox.fits(length) {
                        flush(&mut outbox, &mut wire, lines, number.wrapping_mul(77), form);
                    }
                    prop_assert!(outbox.fits(length) || outbox.is_flushed());
                    if !outbox.fits(length) {
                        continue;
                    }
                    let body = payload(number, length);
                    // A name of more than 32 bits has a long header.
                    let call = number | (number % 5 / 4) << 40;
                    let header = Header { length: length as u32, handler: number as u16, kind: Kind::Request, call };
                    if number % 2 == 0 {
                        outbox.place().put(header, &body);
                    } else {
                        let mut place = outbox.place();
                        place.payload(length).copy_from_slice(&body);
                        place.commit(header, length);
                    }
                    sent.push_back((header, body));
                    number += 1;
                }
                Action::Flush => flush(&mut outbox, &mut wire, lines, number.wrapping_mul(77), form),
                Action::Deliver(count) => {
                    for _ in 0..count {
                        let Some(Flying { line, offset, word }) = wire.words.pop_front() else { break };
                        prop_assert!(line >= inbox.consumed(), "a line is taken before it is whole");
                        prop_assert!(line - inbox.consumed() < lines as u64, "an unread line is overwritten");
                        memory.write(START + offset, &word);
                    }
                }
                Action::Receive(count) => {
                    for _ in 0..count {
                        let Some((header, told)) = receive(&mut inbox, memory).unwrap() else { break };
                        let (expected, body) = sent.pop_front().expect("a message that nobody sent");
                        prop_assert_eq!(header, expected);
                        prop_assert_eq!(inbox.payload(header), &body[..]);
                        if let Some(told) = told {
                            // What the writer stated when it wrote the batch: after this message, and before the next
                            // batch.
                            prop_assert_eq!(told % 77, 0);
                            prop_assert!(u64::from(told) > taken * 77 && u64::from(told) <= number * 77);
                        }
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
    fn any_bytes_in_the_ring_are_messages_or_an_error(
        noise: Vec<u8>,
        form in forms(),
        batches in prop::collection::vec((1..70usize, 0..200u32, prop::collection::vec((0..1100u32, 0..12u8), 0..20)), 1..6)
    ) {
        let (lines, eager) = (64usize, 1000usize);
        let device = crate::devices::shared_memory().unwrap();
        let domain = device.create_protection_domain().unwrap();
        let region = device.allocate_region(&domain, START + lines * LINE_BYTES, Access::LOCAL_WRITE).unwrap();
        let memory = region.memory();
        memory.write(START, &noise[..noise.len().min(lines * LINE_BYTES)]);
        // Batches with correct head and commit word, and headers that are almost correct.
        let mut canaries = Canaries::new(SEED);
        let mut line = 0;
        for (length, messages, headers) in batches {
            let end = (line + length).min(lines);
            if line == end { break }
            let mut content = Vec::new();
            for (length, kind) in headers {
                let low = u64::from(length) | u64::from(kind) << 48;
                content.extend(low.to_le_bytes());
                content.resize(content.len() - 8 + message::message_bytes(length as usize), 7);
            }
            content.resize(batch::content_of(end - line), 0);
            for (offset, bytes) in batch::lay_out(form, canaries.current(), (length, messages), &content, 5) {
                memory.write(START + (line * LINE_BYTES + offset) % (lines * LINE_BYTES), &bytes);
            }
            canaries.advance();
            line = end;
        }
        let mut inbox = Inbox::new(START, lines, eager, SEED, form);
        while let Ok(Some((header, _))) = receive(&mut inbox, memory) {
            prop_assert!(inbox.payload(header).len() <= eager);
            prop_assert!(inbox.consumed() <= 2 * lines as u64);
        }
    }
}

#[test]
fn counts_that_lie_are_violations() {
    let mut outbox = Outbox::new(64, 100, SEED, Form::Twice);
    let header = Header {
        length: 0,
        handler: 1,
        kind: Kind::Request,
        call: 1,
    };
    outbox.place().put(header, &[]);
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
    assert!(outbox.is_flushed() && outbox.fits(100));
}
