//! Clients that make the calls of streams themselves, and keep no rules.

use std::sync::atomic::Ordering;

use crate::common::flow_client::FlowBlockingClient;
use crate::common::flow_server::FlowServer;
use crate::common::{until, FlowCount};
use crate::flowing::{note, start, still, Flowing};
use crate::wire_v1::{bytes, number_of, DIRECTORY, PULL, PUSH, QUESTION};
use dunlin::Client;
use dunlin_service::{Method, Server};

const OPEN: u8 = 1;
const MESSAGE: u8 = 2;
const END: u8 = 3;
/// What a push is answered with that was taken, and one that broke the rules.
const TAKEN: u8 = 0;
const VIOLATION: u8 = 2;
/// One of a client more than may have streams.
const TOO_MANY: u8 = 3;

/// Seven bits a byte.
fn put_number(target: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        target.push(number as u8 | 0x80);
        number >>= 7;
    }
    target.push(number as u8);
}

fn put_frame(target: &mut Vec<u8>, kind: u8, stream: u64, body: &[u8]) {
    target.push(kind);
    put_number(target, stream);
    put_number(target, body.len() as u64);
    target.extend_from_slice(body);
}

/// A client with a session of its own, which never pulls.
struct Pusher {
    client: Client,
    session: [u8; 16],
    number: u32,
}

impl Pusher {
    fn new(address: &str) -> Self {
        Self::of(Client::connect(address).unwrap(), 9)
    }

    fn of(client: Client, session: u128) -> Self {
        let session = session.to_le_bytes();
        Self {
            client,
            session,
            number: 0,
        }
    }

    fn push(&mut self, frames: &[u8]) -> u8 {
        self.number += 1;
        let push = [&self.session[..], &self.number.to_le_bytes(), frames].concat();
        self.client.call(PUSH, &push).unwrap()[0]
    }

    fn pull(&self, has: u32) -> Vec<u8> {
        let pull = [&self.session[..], &has.to_le_bytes()].concat();
        self.client.call(PULL, &pull).unwrap().to_vec()
    }

    /// Frames that open streams of a method whose handler makes notes without end.
    fn count(&self, streams: u64, credit: u64, note_bytes: usize) -> Vec<u8> {
        self.count_to(1_000_000, streams, credit, note_bytes)
    }

    /// The same for a handler that makes so many.
    fn count_to(&self, notes: u64, streams: u64, credit: u64, note_bytes: usize) -> Vec<u8> {
        let directory = self.client.call(DIRECTORY, &bytes(QUESTION)).unwrap();
        let method = number_of(&directory, "/test.Flow/Count");
        let mut open = method.to_le_bytes().to_vec();
        open.extend_from_slice(&FlowCount::CHECK.to_le_bytes());
        put_number(&mut open, credit);
        let request = prost::Message::encode_to_vec(&note(notes, note_bytes));
        let mut frames = Vec::new();
        for stream in 1..=streams {
            put_frame(&mut frames, OPEN, stream, &open);
            put_frame(&mut frames, MESSAGE, stream, &request);
            put_frame(&mut frames, END, stream, &[]);
        }
        frames
    }
}

/// Others have their streams all the same.
fn others_go_on(address: &str) {
    let client = FlowBlockingClient::connect(address).unwrap();
    let counted = client.count(note(3, 10)).unwrap().into_inner();
    assert_eq!(counted.map(Result::unwrap).count(), 3);
}

#[test]
fn who_opens_streams_and_never_hears_their_ends_is_stopped() {
    let (_server, address) = start(&Flowing::default());
    let mut pusher = Pusher::new(&address);
    // Streams of no method, one number again and again.
    let frames = [OPEN, 5, 0].repeat(1000);
    assert_eq!(pusher.push(&frames), VIOLATION);
    // Each of a number of its own.
    let mut pusher = Pusher::new(&address);
    let mut stream = 0;
    let mut answers = (0..200).map(|_| {
        let mut frames = Vec::new();
        for _ in 0..2000 {
            stream += 1;
            put_frame(&mut frames, OPEN, stream, &[]);
        }
        pusher.push(&frames)
    });
    assert_eq!(answers.next(), Some(TAKEN));
    assert!(answers.any(|answer| answer == VIOLATION));
    others_go_on(&address);
}

#[test]
fn who_gives_credit_and_never_pulls_holds_the_handlers_back() {
    const NOTE_BYTES: u64 = 10_000;
    let flowing = Flowing::default();
    let (_server, address) = start(&flowing);
    let mut pusher = Pusher::new(&address);
    let frames = pusher.count(20, 16 << 20, NOTE_BYTES as usize);
    assert_eq!(pusher.push(&frames), TAKEN);
    until("the handlers speak", || {
        flowing.made.load(Ordering::SeqCst) as u64 * NOTE_BYTES >= 1 << 20
    });
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let made = runtime.block_on(still(&flowing.made)) as u64 * NOTE_BYTES;
    assert!(made < 4 << 20, "{made} bytes of messages wait");
    others_go_on(&address);
}

#[test]
fn who_makes_sessions_leaves_some_to_others() {
    const SESSIONS: usize = 30;
    let server = Server::builder()
        .max_sessions(SESSIONS)
        .max_sessions_per_connection(20)
        .add_service(FlowServer::new(Flowing::default()));
    let server = server.start("dunlin://127.0.0.1:0").unwrap();
    let address = server.address().to_string();
    // Those without streams are no loss.
    let clients = [(); 3].map(|()| Client::connect(&address).unwrap());
    let mut session = 0;
    let mut push = |client: &Client, streams| {
        session += 1;
        let mut pusher = Pusher::of(client.clone(), session);
        let frames = pusher.count(streams, 1000, 10);
        pusher.push(&frames)
    };
    for client in &clients {
        for _ in 0..2 * SESSIONS {
            assert_eq!(push(client, 0), TAKEN);
        }
    }
    others_go_on(&address);
    // Those with streams are a connection's own.
    let taken = (0..2 * SESSIONS).filter(|_| match push(&clients[0], 1) {
        TAKEN => true,
        answer => {
            assert_eq!(answer, TOO_MANY);
            false
        }
    });
    assert_eq!(taken.count(), 20);
    others_go_on(&address);
}

/// One whose handlers have ended is no session without streams, until its client has got what they said.
#[test]
fn a_session_keeps_its_place_until_its_client_has_heard_how_its_streams_ended() {
    let flowing = Flowing::default();
    let server = Server::builder()
        .max_sessions_per_connection(1)
        .add_service(FlowServer::new(flowing.clone()));
    let server = server.start("dunlin://127.0.0.1:0").unwrap();
    let client = Client::connect(&server.address().to_string()).unwrap();
    let [mut first, mut second] = [1, 2].map(|session| Pusher::of(client.clone(), session));
    let frames = first.count_to(3, 1, 1000, 10);
    assert_eq!(first.push(&frames), TAKEN);
    until("its handler has ended", || {
        flowing.begun() == 1 && flowing.running() == 0
    });
    assert_eq!(second.push(&[]), TOO_MANY);
    let mut heard = Vec::new();
    let mut has = 0;
    while !heard.ends_with(&[END, 1, 3, 0, 0, 0]) {
        heard.extend_from_slice(&first.pull(has)[5..]);
        // The answer may be lost.
        second.number = 0;
        assert_eq!(second.push(&[]), TOO_MANY);
        has += 1;
    }
    // It has heard all, and its next pull brings nothing.
    first.pull(has);
    second.number = 0;
    assert_eq!(second.push(&[]), TAKEN);
}

/// Who pushes by another connection makes no room for more on the first.
#[test]
fn sessions_are_their_makers_as_long_as_that_is_there() {
    let server = Server::builder()
        .max_sessions_per_connection(4)
        .add_service(FlowServer::new(Flowing::default()));
    let server = server.start("dunlin://127.0.0.1:0").unwrap();
    let address = server.address().to_string();
    let clients = [(); 2].map(|()| Client::connect(&address).unwrap());
    let mut taken = Vec::new();
    for session in 0..20 {
        let mut pusher = Pusher::of(clients[0].clone(), session);
        let frames = pusher.count(1, 1000, 10);
        if pusher.push(&frames) == TAKEN {
            pusher.client = clients[1].clone();
            assert_eq!(pusher.push(&[]), TAKEN);
            taken.push(pusher);
        }
    }
    assert_eq!(taken.len(), 4);
    // They outlive it by another.
    clients[0].close();
    for pusher in &mut taken {
        assert_eq!(pusher.push(&[]), TAKEN);
    }
}
