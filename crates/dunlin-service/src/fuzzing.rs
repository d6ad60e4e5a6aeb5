//! Internals for the fuzz targets in `/fuzz`. Not part of the public API; nothing else may use it.

use std::task::Waker;

use crate::directory::{self, Directory};
use crate::stream::frame::{self, Open, FIRST_CREDIT, MAX_MESSAGE_BYTES, MESSAGE_COST, WINDOW};
use crate::stream::mux::{Mux, News, Side};
use crate::wire::{self, Header};
use crate::Status;

/// The check of a method, which a peer knows.
const CHECK: u32 = 0xabcd_ef00;
/// Number of streams that the fuzzed side opens or accepts.
const STREAMS: usize = 8;

/// Decodes these bytes as a request, an answer, a question for the directory and a directory.
pub fn unary(bytes: &[u8]) {
    let _ = wire::read_request(bytes, CHECK);
    let with_header = [&(CHECK | 1).to_le_bytes()[..], bytes].concat();
    let _ = wire::read_request(&with_header, CHECK);
    if let Some(header) = Header::decode(bytes) {
        let mut again = Vec::new();
        header.encode(&mut again);
        assert_eq!(
            Header::decode(&again).as_ref(),
            Some(&header),
            "what was read is written alike"
        );
    }
    let _ = wire::read_answer(bytes);
    let _ = Directory::decode(bytes);
    let _ = directory::answer(bytes, &[]);
}

/// Runs one side of a session, whose peer sends parts of these bytes as the frames of its calls.
///
/// # Panics
/// If more is held than the windows allow, or a server opens streams of its client.
pub fn streams(bytes: &[u8]) {
    let Some((&choice, mut rest)) = bytes.split_first() else {
        return;
    };
    let side = if choice % 2 == 0 {
        Side::Client
    } else {
        Side::Server
    };
    let mut mux = Mux::new(side);
    if side == Side::Client {
        for _ in 0..STREAMS {
            mux.open(&[], FIRST_CREDIT, WINDOW);
        }
    }
    while let Some((&[act, id, length], behind)) = rest.split_first_chunk() {
        let (frames, behind) = behind.split_at(behind.len().min(length.into()));
        rest = behind;
        if !act_on(&mut mux, side, act, id.into(), frames) {
            return;
        }
        let each = WINDOW + MAX_MESSAGE_BYTES + MESSAGE_COST;
        assert!(
            mux.held_bytes() <= STREAMS * each,
            "{} bytes are held",
            mux.held_bytes()
        );
        assert!(mux.len() <= STREAMS, "{} streams", mux.len());
    }
}

/// Returns `false` if the peer violated the protocol, which ends the session.
fn act_on(mux: &mut Mux, side: Side, act: u8, id: u64, bytes: &[u8]) -> bool {
    match act % 10 {
        0..=3 => {
            let taken = mux.receive(bytes, |mux, opened| {
                assert_eq!(side, Side::Server);
                match Open::decode(&opened.body) {
                    Some(open) if mux.len() < STREAMS => {
                        let _ = mux.accept(opened.stream, open.credit, FIRST_CREDIT, WINDOW);
                    }
                    _ => mux.refuse(opened.stream, &Status::resource_exhausted("too many")),
                }
            });
            if taken.is_err() {
                mux.end_all(&Status::cancelled("the peer broke the rules of streams"));
                return false;
            }
        }
        4 => while let Some(News::Head(_) | News::Message(_)) = mux.next(id, Waker::noop()) {},
        5 if mux.may_send(id, Waker::noop()) == Some(true) => mux.send(id, bytes),
        6 if side == Side::Client => mux.half_close(id),
        6 => mux.stop_reading(id),
        7 if side == Side::Client => mux.release(id),
        7 => mux.finish(id, &Status::aborted("so be it")),
        8 => drop(frame::read_prefix(bytes)),
        _ => while mux.take_chunk().is_some() {},
    }
    true
}
