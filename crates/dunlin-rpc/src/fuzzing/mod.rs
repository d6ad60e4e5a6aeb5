//! What the fuzz targets in `/fuzz` need of the inside. Not part of the interface; nothing else may use it.

mod handshake;
mod pools;
mod words;

use dunlin_verbs::{Access, Device, Memory, Region};

use crate::channel::batch::{self, Canaries, Form, LINE_BYTES};
use crate::channel::call_id::{generation_of, slot_of};
use crate::channel::datagram::driven::client::Driver;
use crate::channel::datagram::driven::server::Answerer;
use crate::channel::datagram::fate;
use crate::channel::datagram::packet::{Cursor, Head, Packet, HEAD_BYTES};
use crate::channel::datagram::segments::Incoming;
use crate::channel::datagram::spare::Spare;
use crate::channel::inbox::Inbox;
use crate::channel::message::{Descriptor, Header, ShortKind, HEADER_BYTES};
use crate::channel::outbox::Outbox;
use crate::error::WireFailure;

pub use handshake::FuzzedHandshake;
pub use pools::FuzzedPools;
pub use words::{credits, figures, grant};

/// Lines of the ring that is fuzzed.
const LINES: usize = 64;
/// Where it begins in its region.
const START: usize = 4096;
/// Longest payload in it.
const EAGER: usize = 1000;
/// Its canaries, which a peer knows.
const SEED: u64 = 1;

/// A ring that bytes are written into.
#[derive(Debug)]
pub struct FuzzedRing {
    region: <dunlin_shm::ShmDevice as Device>::Region,
}

impl Default for FuzzedRing {
    fn default() -> Self {
        Self::new()
    }
}

impl FuzzedRing {
    /// Zeros.
    ///
    /// # Panics
    /// When this machine gives no memory.
    pub fn new() -> Self {
        let device = crate::devices::shared_memory().expect("a device");
        let domain = device.create_protection_domain().expect("a domain");
        let region = device
            .allocate_region(&domain, START + LINES * LINE_BYTES, Access::LOCAL_WRITE)
            .expect("a region");
        Self { region }
    }

    fn memory(&self) -> &Memory {
        self.region.memory()
    }

    /// Receives from a ring that holds batches made of `bytes`, whose first says in which form they cross: of each, two
    /// bytes say how many lines and messages it claims to have (from 250 on: more than it has), and what follows stands
    /// in it. So the reader gets beyond the canaries, which no fuzzer guesses.
    ///
    /// # Panics
    /// When a received message breaks a promise of the inbox.
    pub fn receive(&self, mut bytes: &[u8]) {
        let memory = self.memory();
        memory.fill(START, LINES * LINE_BYTES, 0);
        let Some((choice, rest)) = bytes.split_first() else {
            return;
        };
        bytes = rest;
        let form = Form::between(choice & 1 == 1, choice & 2 == 0);
        let mut canaries = Canaries::new(SEED);
        let mut line = 0;
        while let ([length, messages, rest @ ..], true) = (bytes, line < LINES) {
            let lines = (usize::from(*length) % 20 + 1).min(LINES - line);
            let body = rest.len().min(batch::content_of(lines));
            let mut content = rest[..body].to_vec();
            content.resize(batch::content_of(lines), 0);
            let claimed = match length {
                250.. => LINES * usize::from(length - 249),
                _ => lines,
            };
            let (canary, messages) = (canaries.current(), u32::from(*messages));
            let claims = (claimed, messages);
            for (offset, bytes) in batch::lay_out(form, canary, claims, &content, messages.into()) {
                let offset = (line * LINE_BYTES + offset) % (LINES * LINE_BYTES);
                memory.write(START + offset, &bytes);
            }
            canaries.advance();
            line += lines;
            bytes = &rest[body..];
        }
        let mut inbox = Inbox::new(START, LINES, EAGER, SEED, form);
        let mut outbox = Outbox::new(LINES, EAGER, SEED, form);
        loop {
            if inbox.messages() == 0 {
                let Ok(Some(peer_consumed)) = inbox.open(memory) else {
                    return;
                };
                let _ = outbox.peer_consumed(peer_consumed);
                assert!(inbox.consumed() <= LINES as u64, "each line is of one lap");
            }
            // Answers, and what has a long header, are left to `take` below.
            let mut messages = inbox.short_messages();
            while !messages.is_empty() {
                match messages.take(ShortKind::Request) {
                    Ok(Some((_, payload))) => assert!(payload.len() <= EAGER),
                    Ok(None) => break,
                    Err(_) => return,
                }
            }
            drop(messages);
            match inbox.take() {
                Ok(Some(header)) => {
                    let payload = inbox.payload(header);
                    assert!(payload.len() <= EAGER);
                    assert_eq!(payload.len(), header.length as usize);
                    failure(payload);
                    descriptor(payload);
                }
                // A batch without messages is nothing.
                Ok(None) => {}
                Err(_) => return,
            }
        }
    }
}

/// Reads a header from a peer and, when it is one, writes it again.
///
/// # Panics
/// When what was read is written as other bytes.
pub fn header(bytes: &[u8]) {
    if let Some((bytes, _)) = bytes.split_first_chunk::<HEADER_BYTES>() {
        if let Some(header) = Header::read(bytes) {
            // The last byte of the first word means nothing.
            let known = |bytes: &[u8; HEADER_BYTES]| u128::from_le_bytes(*bytes) & !(0xff << 56);
            assert_eq!(known(&header.encode()), known(bytes));
        }
    }
}

/// Reads a datagram from anybody: its head, its messages, and each message as a segment, as a question and as an answer
/// about calls.
///
/// # Panics
/// When what was read leaves the datagram, or is written as other bytes.
pub fn datagram(bytes: &[u8]) {
    let Some(head) = bytes.first_chunk().and_then(Head::read) else {
        return;
    };
    assert_eq!(head.encode(), bytes[..HEAD_BYTES]);
    let mut cursor = Cursor::new(head);
    // As a server bounds it.
    let mut incoming = Incoming::new(100, 1 << 20, &Spare::default());
    let mut answerer = Answerer::new(1, 100, 1 << 20, &Spare::default());
    let mut driver = Driver::new(1, 8, (100, 1 << 20), true, &Spare::default());
    driver.begin(0, 1, &[0; 250]);
    while driver.put(&mut Packet::new(256), 0) {}
    while let Ok(Some((header, payload))) = cursor.take(bytes) {
        assert!(payload.end <= bytes.len());
        let payload = &bytes[payload];
        assert_eq!(fate::asked(payload).count(), payload.len() / 8);
        assert!(fate::told(payload).count() <= payload.len() / 9);
        failure(payload);
        let _ = incoming.take(header, payload, || Ok(true));
        let _ = driver.hear(header, payload, 1);
        // As a session lets it pass: a call of a slot that there is.
        if slot_of(header.call) == 0 {
            let is_new = generation_of(header.call) != 0;
            let _ = answerer.take(header, payload, is_new);
            answerer.release(header.call);
        }
    }
}

/// Reads a descriptor from a peer.
///
/// # Panics
/// When what was read is written as another descriptor.
pub fn descriptor(bytes: &[u8]) {
    if let Some(descriptor) = Descriptor::decode(bytes) {
        assert_eq!(Descriptor::decode(&descriptor.encode()), Some(descriptor));
    }
}

/// Reads a failure from a peer.
///
/// # Panics
/// When writing what was read and reading it again changes its reason or number.
pub fn failure(bytes: &[u8]) {
    if let Some(failure) = WireFailure::decode(bytes) {
        let again = WireFailure::decode(&failure.encode()).expect("our own failures can be read");
        assert_eq!(
            (again.reason, again.number),
            (failure.reason, failure.number)
        );
        assert!(failure.message.starts_with(&again.message));
        let _ = failure.into_call_error().to_string();
    }
}
