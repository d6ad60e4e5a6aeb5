//! What ends the handlers of streams whose client says nothing more of them.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use crate::common::flow_client::FlowClient;
use crate::common::{until, PATIENCE};
use crate::flowing::{start, Flowing};
use crate::wire_v1::{
    bytes, entry, number_of, ANSWERED, DIRECTORY, FIRST, OPEN_CHECK, PULL, PUSH, QUESTION, SESSION,
};
use dunlin::{Client, OwnedResponder};
use dunlin_service::Code;
use futures_util::stream;

/// The header of a call that has a second.
const A_SECOND: &str = "0103c0843d";
/// Kinds of frames.
const OPEN: u8 = 1;
const END: u8 = 3;
const RESET: u8 = 4;

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

/// How many frames of a push are of this kind.
fn frames(push: &[u8], kind: u8) -> usize {
    let mut frames = &push[20..];
    let mut count = 0;
    while let [found, _, length, rest @ ..] = frames {
        count += usize::from(*found == kind);
        frames = &rest[usize::from(*length)..];
    }
    count
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

/// A client whose runtime ends cannot pull any more, and a server waits long for the next pull of a client that is only
/// busy: it is told.
#[test]
fn a_client_whose_runtime_ends_gives_its_streams_up() {
    let pushed = Arc::<Mutex<Vec<Vec<u8>>>>::default();
    let (pushes, parked) = (
        Arc::clone(&pushed),
        Mutex::new(Vec::<OwnedResponder>::new()),
    );
    let server = dunlin::Server::bind("dunlin://127.0.0.1:0")
        .unwrap()
        .handle(DIRECTORY, |_, reply| {
            reply.write(&[bytes(ANSWERED), entry("/test.Flow/Chat", 2002, 3)].concat())
        })
        .handle(PUSH, move |request, reply| {
            pushes.lock().unwrap().push(request.payload().to_vec());
            reply.write(&[0])
        })
        .handle_deferred(PULL, move |_, responder| {
            parked.lock().unwrap().push(responder)
        })
        .serve()
        .unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let address = server.address().to_string();
    let client = runtime.block_on(FlowClient::connect(&address)).unwrap();
    for _ in 0..2 {
        let client = client.clone();
        runtime.spawn(async move { client.chat(stream::pending()).await.map(drop) });
    }
    let said = |kind| {
        let pushed = pushed.lock().unwrap();
        pushed.iter().map(|push| frames(push, kind)).sum::<usize>()
    };
    until("both are open", || said(OPEN) == 2);
    // What has no driver any more: its pull is given up, and there is no next.
    drop(runtime);
    until("both are given up", || said(RESET) == 2);
    drop(client);
}
