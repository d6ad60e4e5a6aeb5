//! Two sides of a session with a wire between them that a seed plays: messages come in order, each once, whatever is
//! said when; what is held is bounded by the windows; all of it ends.

use std::collections::HashMap;
use std::task::Waker;

use proptest::prelude::*;

use super::frame::{Open, FIRST_CREDIT, MESSAGE_COST, PULL_PREFIX, PUSH_PREFIX};
use super::mux::{Mux, News, Side, Violation};
use crate::{Code, Status};

const WINDOW: usize = 20 << 10;
const LONGEST: usize = 8 << 10;

/// Both sides, and what is on its way.
struct Pair {
    client: Mux,
    server: Mux,
    /// Messages that each side has said of each stream, and those that the other has read.
    said: HashMap<(Side, u64), u64>,
    read: HashMap<(Side, u64), u64>,
    accepted: Vec<u64>,
}

/// A message that says its number.
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

    /// What one side has to say comes to the other.
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

    /// Reads one message; `false`: there is none now.
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
            // Those that wait, and a few bytes for each stream and each message.
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
        // All is read in the end, and more can be said.
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

#[test]
fn a_stream_that_is_given_up_is_gone_at_both_sides() {
    let mut pair = Pair::new();
    let (first, second) = (pair.open(), pair.open());
    pair.say(Side::Client, first, 10);
    pair.carry(Side::Client);
    assert!(pair.say(Side::Server, first, 10));
    pair.client.release(first);
    pair.carry(Side::Client);
    // What the server still said comes after the end, and is left out.
    pair.carry(Side::Server);
    assert!(!pair.server.is_wanted(first, Waker::noop()));
    assert!(pair.server.is_wanted(second, Waker::noop()));
    assert_eq!((pair.client.len(), pair.server.len()), (1, 1));
    pair.server
        .end_all(&Status::cancelled("the client has gone"));
    assert!(!pair.server.is_wanted(second, Waker::noop()));
}
