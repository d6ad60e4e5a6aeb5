//! Two sides of a session connected by a simulated wire, with a seeded random schedule: messages arrive in order and
//! exactly once, whatever the schedule; memory is bounded by the windows; every stream ends.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};

use proptest::prelude::*;

use super::frame::{
    Kind, Open, FIRST_CREDIT, MAX_MESSAGE_BYTES, MESSAGE_COST, MOST_CREDIT, PULL_PREFIX,
    PUSH_PREFIX,
};
use super::mux::{Mux, News, Side, Violation};
use super::outbox::{MOST_ENDS, MOST_WAITING};
use crate::{Code, Status};

const WINDOW: usize = 20 << 10;
const LONGEST: usize = 8 << 10;

/// Both sides, and the state of the wire.
struct Pair {
    client: Mux,
    server: Mux,
    /// Number of messages that each side has sent on each stream, and that the other has read.
    said: HashMap<(Side, u64), u64>,
    read: HashMap<(Side, u64), u64>,
    accepted: Vec<u64>,
}

/// A message that contains its number.
fn message(number: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![number as u8; 8 + length];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

impl Pair {
    fn new() -> Self {
        Self {
            client: Mux::new(Side::Client),
            server: Mux::new(Side::Server),
            said: HashMap::new(),
            read: HashMap::new(),
            accepted: Vec::new(),
        }
    }

    fn side(&mut self, side: Side) -> &mut Mux {
        match side {
            Side::Client => &mut self.client,
            Side::Server => &mut self.server,
        }
    }

    fn open(&mut self) -> u64 {
        let open = Open {
            method: 1,
            check: 0,
            credit: WINDOW,
            header: &[],
        };
        self.client.open(&open.encode(), FIRST_CREDIT, WINDOW)
    }

    /// Carries one side's frames to the other.
    fn carry(&mut self, from: Side) {
        let accepted = &mut self.accepted;
        match from {
            Side::Client => {
                if let Some(chunk) = self.client.take_chunk() {
                    let taken = self.server.receive(&chunk[PUSH_PREFIX..], |mux, opened| {
                        let open = Open::decode(&opened.body).unwrap();
                        assert!(mux.accept(opened.stream, open.credit, FIRST_CREDIT, WINDOW));
                        accepted.push(opened.stream);
                    });
                    taken.unwrap();
                }
            }
            Side::Server => {
                if let Some(chunk) = self.server.take_chunk() {
                    self.client
                        .receive(&chunk[PULL_PREFIX..], |_, _| unreachable!())
                        .unwrap();
                }
            }
        }
    }

    fn say(&mut self, side: Side, stream: u64, length: usize) -> bool {
        if self.side(side).may_send(stream, Waker::noop()) != Some(true) {
            return false;
        }
        let number = self.said.entry((side, stream)).or_default();
        let bytes = message(*number, length);
        *number += 1;
        self.side(side).send(stream, &bytes);
        true
    }

    /// Reads one message; returns `false` if there is none now.
    fn read(&mut self, side: Side, stream: u64) -> bool {
        match self.side(side).next(stream, Waker::noop()) {
            Some(News::Message(bytes)) => {
                let number = self.read.entry((side, stream)).or_default();
                assert_eq!(bytes[..8], number.to_le_bytes(), "in order, each once");
                assert!(bytes[8..].iter().all(|byte| *byte == *number as u8));
                *number += 1;
                true
            }
            Some(News::Head(_)) => true,
            Some(News::End(_)) | None => false,
        }
    }

    fn check(&self) {
        for mux in [&self.client, &self.server] {
            let each = WINDOW + LONGEST + 8 + MESSAGE_COST;
            assert!(
                mux.held_bytes() <= mux.len() * each,
                "{} bytes are held",
                mux.held_bytes()
            );
            // The limit of waiting frames, and a few bytes for each stream and each message.
            assert!(
                mux.waiting_bytes() <= 64 + (mux.len() + self.accepted.len() + 8) * (each + 64)
            );
        }
    }
}

proptest! {
    #[test]
    fn messages_come_in_order_and_memory_is_bounded(
        acts in prop::collection::vec((0u8..8, 0usize..6, 0usize..LONGEST), 1..400),
    ) {
        let mut pair = Pair::new();
        let streams: Vec<u64> = (0..6).map(|_| pair.open()).collect();
        for (act, at, length) in acts {
            let stream = streams[at];
            let is_accepted = pair.accepted.contains(&stream);
            match act {
                0 | 1 => drop(pair.say(Side::Client, stream, length)),
                2 | 3 if is_accepted => drop(pair.say(Side::Server, stream, length)),
                4 => drop(pair.read(Side::Client, stream)),
                5 if is_accepted => drop(pair.read(Side::Server, stream)),
                6 => pair.carry(Side::Client),
                7 => pair.carry(Side::Server),
                _ => {}
            }
            pair.check();
        }
        // In the end everything is read, and more can be sent.
        for _ in 0..200 {
            for side in [Side::Client, Side::Server] {
                pair.carry(side);
                for &stream in &streams {
                    while pair.read(side, stream) {}
                }
            }
        }
        for &stream in &streams {
            for (side, other) in [(Side::Client, Side::Server), (Side::Server, Side::Client)] {
                prop_assert_eq!(pair.said.get(&(side, stream)), pair.read.get(&(other, stream)));
                prop_assert_eq!(pair.side(side).may_send(stream, Waker::noop()), Some(true));
            }
            pair.client.half_close(stream);
            pair.carry(Side::Client);
            let ended = pair.server.next(stream, Waker::noop());
            prop_assert!(matches!(ended, Some(News::End(status)) if status.code() == Code::Ok));
            pair.server.finish(stream, &Status::aborted("so be it"));
            pair.carry(Side::Server);
            let ended = pair.client.next(stream, Waker::noop());
            prop_assert!(matches!(ended, Some(News::End(status)) if status.code() == Code::Aborted));
            pair.client.release(stream);
        }
        prop_assert_eq!((pair.client.len(), pair.server.len()), (0, 0));
        prop_assert!(!pair.client.has_chunk() && !pair.server.has_chunk());
    }

    #[test]
    fn anything_is_received_without_harm(any: Vec<u8>, kind in 0u8..8, body: Vec<u8>) {
        for side in [Side::Client, Side::Server] {
            let mut mux = Mux::new(side);
            mux.open(&[], FIRST_CREDIT, WINDOW);
            mux.accept(1, WINDOW, FIRST_CREDIT, WINDOW);
            let _ = mux.receive(&any, |_, _| {});
            let mut frame = vec![kind, 1];
            crate::varint::put_counted(&mut frame, &body);
            let _ = mux.receive(&frame, |_, _| {});
        }
    }
}

#[test]
fn who_sends_without_credit_breaks_the_rules() {
    let mut pair = Pair::new();
    let stream = pair.open();
    pair.carry(Side::Client);
    for number in 0.. {
        pair.client.send(stream, &message(number, 1000));
        let chunk = pair.client.take_chunk().unwrap();
        let taken = pair.server.receive(&chunk[PUSH_PREFIX..], |_, _| {});
        if taken.is_err() {
            assert!(matches!(taken, Err(Violation(_))));
            assert!(
                (FIRST_CREDIT / 1072..=FIRST_CREDIT / 1072 + 1).contains(&(number as usize)),
                "{number}"
            );
            return;
        }
    }
}

/// Streams that were woken, in order.
type Told = Arc<Mutex<VecDeque<u64>>>;

/// A writer of a stream.
struct Writer {
    stream: u64,
    told: Told,
}

impl Wake for Writer {
    fn wake(self: Arc<Self>) {
        self.told.lock().unwrap().push_back(self.stream);
    }
}

/// Takes one chunk, and records which streams are woken.
fn take_chunk(server: &mut Mux) -> bool {
    let is_there = server.take_chunk().is_some();
    let woken = std::mem::take(&mut server.woken);
    woken.into_iter().for_each(Waker::wake);
    is_there
}

/// A peer that has opened `streams` streams with the maximum credit, and takes nothing.
fn greedy(streams: u64) -> Mux {
    let mut server = Mux::new(Side::Server);
    let mut frames = Vec::new();
    for id in 1..=streams {
        super::frame::put(&mut frames, Kind::Open, id, &[]);
    }
    let opened = server.receive(&frames, |mux, opened| {
        assert!(mux.accept(opened.stream, MOST_CREDIT, FIRST_CREDIT, WINDOW));
    });
    opened.unwrap();
    server
}

#[test]
fn what_waits_to_leave_is_bounded_whatever_the_credit_and_all_have_their_turns() {
    const STREAMS: u64 = 300;
    let mut server = greedy(STREAMS);
    let mut said = HashMap::<u64, u64>::new();
    let told = Told::default();
    told.lock().unwrap().extend(1..=STREAMS);
    for _ in 0..2 * STREAMS {
        let looking = std::mem::take(&mut *told.lock().unwrap());
        for stream in looking {
            let waker = Waker::from(Arc::new(Writer {
                stream,
                told: Arc::clone(&told),
            }));
            while server.may_send(stream, &waker) == Some(true) {
                server.send(stream, &[0; 1000]);
                *said.entry(stream).or_default() += 1;
            }
        }
        assert!(server.waiting_bytes() <= MOST_WAITING + 1100);
        assert!(take_chunk(&mut server));
    }
    assert_eq!(said.len() as u64, STREAMS, "each had its turn");
    // Waiting streams are removed from the queue when they end.
    for stream in 1..=STREAMS {
        server.finish(stream, &Status::ok(""));
    }
    while take_chunk(&mut server) {}
    assert_eq!((server.len(), server.waiting_bytes()), (0, 0));
}

#[test]
fn who_waits_for_room_goes_on_where_those_before_have_nothing_to_say() {
    const STREAMS: u64 = 200;
    let mut server = greedy(STREAMS);
    let told = Told::default();
    while server.may_send(1, Waker::noop()) == Some(true) {
        server.send(1, &[0; 1000]);
    }
    for stream in 1..=STREAMS {
        let told = Arc::clone(&told);
        let waker = Waker::from(Arc::new(Writer { stream, told }));
        assert_eq!(server.may_send(stream, &waker), Some(false));
    }
    while take_chunk(&mut server) {}
    let told: Vec<u64> = told.lock().unwrap().drain(..).collect();
    assert_eq!(told, (1..=STREAMS).collect::<Vec<_>>());
}

#[test]
fn a_number_of_a_stream_comes_once_and_ends_must_be_heard() {
    let refuse = |mux: &mut Mux, opened: super::mux::Opened| {
        mux.refuse(opened.stream, &Status::unimplemented("no such method"));
    };
    let open = |ids: std::ops::Range<u64>| {
        let mut frames = Vec::new();
        for id in ids {
            super::frame::put(&mut frames, Kind::Open, id, &[]);
        }
        frames
    };
    let mut server = Mux::new(Side::Server);
    assert!(server.receive(&open(5..6), refuse).is_ok());
    assert!(server.receive(&open(5..6), refuse).is_err());
    assert!(server.receive(&open(3..4), refuse).is_err());
    assert!(server
        .receive(&open(u64::MAX - 1..u64::MAX), refuse)
        .is_ok());
    let mut last = Vec::new();
    super::frame::put(&mut last, Kind::Open, u64::MAX, &[]);
    assert!(server.receive(&last, refuse).is_err());
    // Streams opened and given up many times leave nothing behind.
    let mut server = greedy(0);
    let mut frames = Vec::new();
    for id in 1..10_000 {
        super::frame::put(&mut frames, Kind::Open, id, &[]);
        super::frame::put(&mut frames, Kind::Reset, id, &[]);
    }
    let accept = |mux: &mut Mux, opened: super::mux::Opened| {
        assert!(mux.accept(opened.stream, 0, FIRST_CREDIT, WINDOW));
    };
    server.receive(&frames, accept).unwrap();
    assert!(!server.has_chunk());
    // Streams may be refused many times, as long as the ends are taken.
    let many = MOST_ENDS as u64;
    for round in 0..3 {
        let ids = 10_000 + round * many..10_000 + (round + 1) * many;
        server.receive(&open(ids), refuse).unwrap();
        while server.take_chunk().is_some() {}
    }
    let ids = 1 << 40..(1 << 40) + 2 * many;
    assert!(server.receive(&open(ids), refuse).is_err());
    assert!(server.waiting_bytes() < 100 * MOST_ENDS);
}

#[test]
fn a_head_comes_once_before_the_messages_and_a_message_is_not_too_long() {
    let frame = |kind, body: &[u8]| {
        let mut frame = Vec::new();
        super::frame::put(&mut frame, kind, 1, body);
        frame
    };
    let (head, message) = (frame(Kind::Head, &[]), frame(Kind::Message, b"hello"));
    let long = frame(Kind::Message, &vec![0; MAX_MESSAGE_BYTES + 1]);
    let longest = frame(Kind::Message, &vec![0; MAX_MESSAGE_BYTES]);
    for (first, second, is_right) in [
        (&head, &message, true),
        (&head, &longest, true),
        (&head, &head, false),
        (&message, &head, false),
        (&head, &long, false),
    ] {
        let mut client = Mux::new(Side::Client);
        client.open(&[], FIRST_CREDIT, WINDOW);
        let taken = client.receive(&[&first[..], second].concat(), |_, _| {});
        assert_eq!(taken.is_ok(), is_right, "{taken:?}");
    }
    let mut server = Mux::new(Side::Server);
    assert!(server.accept(1, WINDOW, FIRST_CREDIT, WINDOW));
    assert!(server.receive(&long, |_, _| {}).is_err());
}

#[test]
fn a_stream_that_is_given_up_is_gone_at_both_sides() {
    let mut pair = Pair::new();
    let (first, second) = (pair.open(), pair.open());
    pair.say(Side::Client, first, 10);
    pair.carry(Side::Client);
    assert!(pair.say(Side::Server, first, 10));
    pair.client.release(first);
    pair.carry(Side::Client);
    // What the server sent before it saw the end arrives after it, and is ignored.
    pair.carry(Side::Server);
    assert!(!pair.server.is_wanted(first, Waker::noop()));
    assert!(pair.server.is_wanted(second, Waker::noop()));
    assert_eq!((pair.client.len(), pair.server.len()), (1, 1));
    pair.server
        .end_all(&Status::cancelled("the client has gone"));
    assert!(!pair.server.is_wanted(second, Waker::noop()));
}
