//! What ends the handlers of streams whose client says nothing more of them.

use std::time::Instant;

use crate::common::{until, PATIENCE};
use crate::flowing::{start, Flowing};
use crate::wire_v1::{
    bytes, number_of, DIRECTORY, FIRST, OPEN_CHECK, PULL, PUSH, QUESTION, SESSION,
};
use dunlin::Client;
use dunlin_service::Code;

/// The header of a call that has a second.
const A_SECOND: &str = "0103c0843d";
/// The kind of the frame that ends a stream.
const END: u8 = 3;

/// With what code a stream ends in these frames.
fn ended(mut frames: &[u8]) -> Option<u8> {
    while let [kind, _, length, rest @ ..] = frames {
        let (body, rest) = rest.split_at(usize::from(*length));
        if *kind == END {
            return body.first().copied();
        }
        frames = rest;
    }
    None
}

#[test]
fn the_handler_of_a_stream_ends_with_its_deadline_whatever_its_client_does() {
    let flowing = Flowing::default();
    let (_server, address) = start(&flowing);
    let client = Client::builder().deadline(PATIENCE);
    let client = client.connect(&address).unwrap();
    let directory = client.call(DIRECTORY, &bytes(QUESTION)).unwrap().to_vec();
    // It says nothing more of the stream, but goes on pulling, so that it is not taken for gone.
    let chat = number_of(&directory, "/test.Flow/Chat").to_le_bytes();
    let open = [&chat[..], &bytes(OPEN_CHECK), &bytes(A_SECOND)].concat();
    let push = [
        &bytes(SESSION)[..],
        &bytes(FIRST),
        &[1, 1, open.len() as u8],
        &open,
    ]
    .concat();
    assert_eq!(client.call(PUSH, &push).unwrap()[..], [0]);
    let began = Instant::now();
    let mut has = 0u32;
    let code = loop {
        assert!(began.elapsed() < PATIENCE, "its deadline ends the stream");
        let pull = [&bytes(SESSION)[..], &has.to_le_bytes()].concat();
        let answer = client.call(PULL, &pull).unwrap();
        has += 1;
        if let Some(code) = ended(&answer[5..]) {
            break code;
        }
    };
    assert_eq!(code, Code::DeadlineExceeded as u8);
    until("its handler is dropped", || flowing.running() == 0);
}
