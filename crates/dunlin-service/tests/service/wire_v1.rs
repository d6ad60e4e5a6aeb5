//! The wire of version 1, as it was written down when it was made: what a client of then says is answered by the server
//! of today as it was then, and the client of today understands a server of then. The bytes here do not change; a later
//! version has recordings of its own beside these (`docs/compatibility.md`).

use std::sync::{Arc, Mutex};
use std::time::Instant;

use crate::common::flow_client::FlowClient;
use crate::common::flow_server::{Flow, FlowServer};
use crate::common::probe_client::ProbeClient;
use crate::common::probe_server::{SyncProbe, SyncProbeServer};
use crate::common::{Note, PATIENCE};
use dunlin::{Client, OwnedResponder};
use dunlin_service::{Channel, Code, Request, Response, Server, Status, Streaming};
use futures_util::stream::{self, BoxStream, StreamExt};

pub const DIRECTORY: u16 = 1024;
pub const PUSH: u16 = 1025;
pub const PULL: u16 = 1026;

/// Versions 1 to 1, features 1 (streams).
pub const QUESTION: &str = "444c4e01 0100 0100 0100000000000000";
/// Version 1, the server's versions 1 to 1, features 1.
pub const ANSWERED: &str = "01 0100 0100 0100 0100000000000000";
/// `/test.Probe/Echo` with "hi" and 5, and its answer.
const ECHO: &str = "00c54e35 0a026869 1005";
const ECHOED: &str = "00 0a026869 1005";
/// The same with a deadline of a second and `x-user: ada`; its answer has `x-greeted: ada`.
const ECHO_WITH: &str = "01c54e35 12 0103c0843d 020b 06782d75736572 03616461 0a026869 1005";
const ECHOED_WITH: &str = "01 0e 09782d67726565746564 03616461 0a026869 1005";
/// `/test.Probe/Fail` with "no" and 5 (NOT_FOUND), and the status, with `x-why: asked for`.
const FAIL: &str = "003ca995 0a026e6f 1005";
const FAILED: &str = "02 05 026e6f 00 05782d776879 0961736b656420666f72";
/// A request that came to another method's number.
const OTHER_METHOD: &str = "03";
/// A session, and pushes and pulls of it by number.
pub const SESSION: &str = "0102030405060708090a0b0c0d0e0f10";
pub const FIRST: &str = "01000000";
/// What a client says of a stream behind the method's number: check, 64 KiB of credit, a message, the end.
pub const OPEN_CHECK: &str = "00dfcd07 808004";
const SAID: &str = "0201 06 0a026869 1005 0301 00";
/// What the server says: head, message, end with OK; and somewhere before the end it may give credit.
const HEARD: &str = "0601 00 0201 06 0a026869 1005 0301 03 000000";
const CREDIT: u8 = 5;

pub fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|digit| *digit != b' ').collect();
    let pairs = digits
        .chunks(2)
        .map(|pair| std::str::from_utf8(pair).unwrap());
    pairs
        .map(|pair| u8::from_str_radix(pair, 16).unwrap())
        .collect()
}

fn note() -> Note {
    Note {
        number: 5,
        ..Note::new("hi")
    }
}

/// An entry of the directory.
pub fn entry(path: &str, number: u16, kind: u8) -> Vec<u8> {
    let mut entry = vec![path.len() as u8 + 4, path.len() as u8];
    entry.extend_from_slice(path.as_bytes());
    entry.extend_from_slice(&number.to_le_bytes());
    entry.push(kind);
    entry
}

/// The number of a method in a directory.
pub fn number_of(directory: &[u8], path: &str) -> u16 {
    let at = directory
        .windows(path.len())
        .position(|window| window == path.as_bytes());
    let after = at.unwrap() + path.len();
    u16::from_le_bytes([directory[after], directory[after + 1]])
}

struct Now;

impl SyncProbe for Now {
    fn echo(&self, request: &mut Request<Note>, reply: &mut Response<Note>) -> Result<(), Status> {
        reply.get_mut().clone_from(request.get_ref());
        if let Some(user) = request.metadata().get("x-user") {
            assert!(request.deadline().unwrap() > Instant::now());
            reply.metadata_mut().insert("x-greeted", user).unwrap();
        }
        Ok(())
    }

    fn fail(&self, request: &mut Request<Note>, _: &mut Response<Note>) -> Result<(), Status> {
        let note = request.get_ref();
        let mut status = Status::new(Code::from_number(note.number as u32), note.words.clone());
        status.metadata_mut().insert("x-why", "asked for").unwrap();
        Err(status)
    }

    fn sleep(&self, _: &mut Request<Note>, _: &mut Response<Note>) -> Result<(), Status> {
        Ok(())
    }

    fn look(&self, _: &mut Request<Note>, _: &mut Response<Note>) -> Result<(), Status> {
        Ok(())
    }
}

type Notes = BoxStream<'static, Result<Note, Status>>;

#[dunlin_service::async_trait]
impl Flow for Now {
    type CountStream = Notes;
    type ChatStream = Notes;
    type HangStream = Notes;

    async fn count(&self, _: Request<Note>) -> Result<Response<Notes>, Status> {
        Ok(Response::new(stream::empty().boxed()))
    }

    async fn sum(&self, _: Request<Streaming<Note>>) -> Result<Response<Note>, Status> {
        Ok(Response::new(Note::default()))
    }

    async fn chat(&self, request: Request<Streaming<Note>>) -> Result<Response<Notes>, Status> {
        Ok(Response::new(request.into_inner().boxed()))
    }

    async fn hang(&self, _: Request<Streaming<Note>>) -> Result<Response<Notes>, Status> {
        Ok(Response::new(stream::empty().boxed()))
    }
}

/// The frames but those that give credit, which stand where the server likes.
fn without_credit(mut frames: &[u8]) -> Vec<u8> {
    let mut others = Vec::new();
    while let [kind, _, length, ..] = *frames {
        let (frame, rest) = frames.split_at(3 + usize::from(length));
        if kind != CREDIT {
            others.extend_from_slice(frame);
        }
        frames = rest;
    }
    others
}

#[test]
fn a_client_of_then_is_answered_as_it_was_then() {
    let server = Server::builder()
        .add_service(SyncProbeServer::inline(Now))
        .add_service(FlowServer::new(Now))
        .start("dunlin://127.0.0.1:0")
        .unwrap();
    let client = Client::builder().deadline(PATIENCE);
    let client = client.connect(&server.address().to_string()).unwrap();
    let directory = client.call(DIRECTORY, &bytes(QUESTION)).unwrap().to_vec();
    // A later server may speak more versions and have more features.
    assert_eq!(directory[..3], bytes(ANSWERED)[..3]);
    assert_eq!(directory[7] & 1, 1, "streams");
    let echo = number_of(&directory, "/test.Probe/Echo");
    let fail = number_of(&directory, "/test.Probe/Fail");
    for (number, said, answered) in [
        (echo, ECHO, ECHOED),
        (echo, ECHO_WITH, ECHOED_WITH),
        (fail, FAIL, FAILED),
        (echo, FAIL, OTHER_METHOD),
    ] {
        let answer = client.call(number, &bytes(said)).unwrap();
        assert_eq!(answer[..], bytes(answered), "{said}");
    }
    let chat = number_of(&directory, "/test.Flow/Chat");
    let open = [&chat.to_le_bytes()[..], &bytes(OPEN_CHECK)].concat();
    let opened = [&[1, 1, open.len() as u8], &open[..]].concat();
    let push = [bytes(SESSION), bytes(FIRST), opened, bytes(SAID)].concat();
    assert_eq!(client.call(PUSH, &push).unwrap()[..], [0]);
    // Once more: it was taken already.
    assert_eq!(client.call(PUSH, &push).unwrap()[..], [0]);
    let mut heard = Vec::new();
    let mut has = 0u32;
    while !heard.ends_with(&bytes("0301 03 000000")) {
        let pull = [bytes(SESSION), has.to_le_bytes().to_vec()].concat();
        let answer = client.call(PULL, &pull).unwrap();
        has += 1;
        assert_eq!(answer[..5], [&[0][..], &has.to_le_bytes()].concat());
        // Once more: the answer was lost.
        assert_eq!(client.call(PULL, &pull).unwrap()[..], answer[..]);
        heard.extend_from_slice(&without_credit(&answer[5..]));
    }
    assert_eq!(heard, bytes(HEARD));
    // A session that the server does not know.
    let unknown = [&[7; 16][..], &2u32.to_le_bytes()].concat();
    assert_eq!(client.call(PUSH, &unknown).unwrap()[..], [1]);
    assert_eq!(client.call(PULL, &unknown).unwrap()[..], [1]);
}

#[tokio::test]
async fn a_server_of_then_is_understood_by_the_client_of_today() {
    let pushed = Arc::<Mutex<Vec<u8>>>::default();
    let parked = Mutex::new(Vec::<OwnedResponder>::new());
    let frames = Arc::clone(&pushed);
    let answers = |said: &'static str, answered: &'static str| {
        move |request: &dunlin::Request<'_>, reply: &mut dunlin::Responder<'_>| {
            assert_eq!(request.payload(), bytes(said), "{said}");
            reply.write(&bytes(answered))
        }
    };
    let server = dunlin::Server::bind("dunlin://127.0.0.1:0")
        .unwrap()
        .handle(DIRECTORY, |request, reply| {
            // A later client may speak more versions and ask for more.
            assert_eq!(request.payload()[..6], bytes(QUESTION)[..6]);
            reply.write(&bytes(ANSWERED))?;
            reply.write(&entry("/test.Probe/Echo", 2000, 0))?;
            reply.write(&entry("/test.Probe/Fail", 2001, 0))?;
            reply.write(&entry("/test.Flow/Chat", 2002, 3))
        })
        .handle(2000, answers(ECHO, ECHOED))
        .handle(2001, answers(FAIL, FAILED))
        .handle(PUSH, move |request, reply| {
            frames
                .lock()
                .unwrap()
                .extend_from_slice(&request.payload()[20..]);
            reply.write(&[0])
        })
        .handle_deferred(PULL, move |request, responder| {
            match request.payload()[16..] {
                [0, 0, 0, 0] => responder.reply([&[0][..], &bytes(FIRST), &bytes(HEARD)].concat()),
                _ => parked.lock().unwrap().push(responder),
            }
        })
        .serve()
        .unwrap();
    let channel = Channel::connect(&server.address().to_string())
        .await
        .unwrap();
    assert_eq!(channel.version(), 1);
    let probe = ProbeClient::new(channel.clone());
    assert_eq!(probe.echo(note()).await.unwrap().into_inner(), note());
    let status = probe
        .fail(Note {
            words: "no".into(),
            ..note()
        })
        .await
        .unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::NotFound, "no"));
    assert_eq!(status.metadata().get("x-why"), Some("asked for"));
    let status = probe.look(note()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
    let flow = FlowClient::new(channel);
    let notes = flow
        .chat(stream::iter([note()]))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        notes.map(Result::unwrap).collect::<Vec<_>>().await,
        [note()]
    );
    // What the client has said by now is its beginning; it may not have had the time for all of it.
    let open = [&2002u16.to_le_bytes()[..], &bytes(OPEN_CHECK)].concat();
    let said = [&[1, 1, open.len() as u8], &open[..], &bytes(SAID)].concat();
    let pushed = pushed.lock().unwrap().clone();
    assert!(
        pushed.len() >= 12 && said.starts_with(&pushed),
        "{pushed:x?} of {said:x?}"
    );
}
