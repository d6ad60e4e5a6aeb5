//! Both sides connected by a network that loses, duplicates and delays packets, in virtual time.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::client::{Driver, Heard, Response};
use super::server::{Answerer, Step};
use super::{pieces, Part, PART_BYTES};
use crate::channel::call_id::{call_id, generation_of, slot_of};
use crate::channel::datagram::packet::{Cursor, Head, Packet};
use crate::channel::datagram::spare::Spare;
use crate::channel::message::{Header, Kind};

const PACKET: usize = 256;
const PIECE: usize = 200;
const CALLS: usize = 6;

/// Packets in flight, by arrival time.
#[derive(Default)]
struct Network {
    on_the_way: BTreeMap<(u64, u64), (bool, Vec<u8>)>,
    state: u64,
    count: u64,
    /// Percentage; `None`: nothing is lost, duplicated or late.
    lost: Option<u64>,
}

impl Network {
    fn random(&mut self) -> u64 {
        self.state = self
            .state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        self.state >> 33
    }

    fn carry(&mut self, to_server: bool, packet: &mut Packet, now: u64) {
        packet.seal(Head {
            cookie: 0,
            session: 0,
            ..Head::default()
        });
        let rough = self.lost.is_some();
        let copies = if rough && self.random() % 20 == 0 {
            2
        } else {
            1
        };
        for _ in 0..copies {
            if self.lost.is_some_and(|lost| self.random() % 100 < lost) {
                continue;
            }
            let late = match (rough, self.random() % 10) {
                (false, _) => 0,
                (true, 0) => 300_000,
                (true, _) => self.random() % 1_000,
            };
            let arrives = now + 2_000 + late;
            self.count += 1;
            self.on_the_way
                .insert((arrives, self.count), (to_server, packet.bytes().to_vec()));
        }
        packet.clear();
    }
}

fn messages(bytes: &[u8]) -> Vec<(Header, Vec<u8>)> {
    let mut cursor = Cursor::new(Head::read(bytes.first_chunk().unwrap()).unwrap());
    let mut all = Vec::new();
    while let Some((header, range)) = cursor.take(bytes).unwrap() {
        all.push((header, bytes[range].to_vec()));
    }
    all
}

fn request_of(call: u64, length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| (at as u64 * 31 + call * 7 + (call >> 32)) as u8)
        .collect()
}

fn response_of(request: &[u8], call: u64) -> Vec<u8> {
    let length = (call as usize * 977 + request.len() * 3) % 1500;
    (0..length)
        .map(|at| {
            request
                .get(at % request.len().max(1))
                .map_or(7, |b| b ^ at as u8)
        })
        .collect()
}

/// A server's handling of the driver's packets.
struct Server {
    answerer: Answerer,
    next: Vec<u32>,
    executed: BTreeMap<u64, u32>,
    /// Calls that workers have, and when they are completed.
    working: Vec<(u64, u64, Vec<u8>)>,
    answers: u64,
    heard: u64,
}

impl Server {
    fn take(&mut self, bytes: &[u8], now: u64, network: &mut Network) {
        for (header, payload) in messages(bytes) {
            self.heard += 1;
            let mut packet = Packet::new(PACKET);
            let slot = slot_of(header.call);
            if header.kind == Kind::ResponseRequest {
                let number = super::number_in(&payload).unwrap();
                self.answerer.put(header.call, number, &mut packet);
                self.send(packet, now, network);
                continue;
            }
            let generation = generation_of(header.call);
            let is_new = generation.wrapping_sub(self.next[slot]) as i32 >= 0;
            match self.answerer.take(header, &payload, is_new).unwrap() {
                Step::Nothing | Step::AtWork => {}
                Step::Credit(number) => {
                    let header = Header::new(Kind::CreditReturn, 0, header.call, 4);
                    packet.push(header, &number.to_le_bytes());
                }
                Step::Starved(bytes) => panic!("no memory for {bytes} bytes"),
                Step::Again => assert!(self.answerer.put(header.call, 0, &mut packet)),
                Step::Run(whole) => {
                    self.next[slot] = generation.wrapping_add(1);
                    *self.executed.entry(header.call).or_default() += 1;
                    let request = whole
                        .map_or_else(|| payload[PART_BYTES..].to_vec(), |whole| whole.to_vec());
                    let done = now + if header.call % 3 == 0 { 7_000_000 } else { 0 };
                    self.working.push((done, header.call, request));
                }
            }
            self.send(packet, now, network);
        }
    }

    fn send(&mut self, mut packet: Packet, now: u64, network: &mut Network) {
        if !packet.is_empty() {
            self.answers += 1;
            network.carry(false, &mut packet, now);
        }
    }

    fn work(&mut self, now: u64, network: &mut Network) {
        while let Some(at) = self.working.iter().position(|&(done, ..)| done <= now) {
            let (_, call, request) = self.working.swap_remove(at);
            assert_eq!(request, request_of(call, request.len()), "another request");
            self.answerer
                .answer(call, response_of(&request, call & 0xffff), false, true);
            let mut packet = Packet::new(PACKET);
            assert!(self.answerer.put(call, 0, &mut packet));
            self.send(packet, now, network);
        }
    }
}

/// Makes calls of these lengths to completion; returns how long that took and how many packets the driver sent.
fn run(
    lengths: &[usize],
    credits: usize,
    lost: Option<u64>,
    seed: u64,
    controlled: bool,
) -> (u64, u64) {
    let mut network = Network {
        state: seed | 1,
        lost,
        ..Network::default()
    };
    let mut driver = Driver::new(
        CALLS,
        credits,
        (PIECE, 1 << 20),
        controlled,
        &Spare::default(),
    );
    let mut server = Server {
        answerer: Answerer::new(CALLS, PIECE, 1 << 20, &Spare::default()),
        next: vec![0; CALLS],
        executed: BTreeMap::new(),
        working: Vec::new(),
        answers: 0,
        heard: 0,
    };
    let (mut generations, mut free): (Vec<u32>, Vec<usize>) =
        (vec![0; CALLS], (0..CALLS).collect());
    let mut waiting: Vec<usize> = lengths.to_vec();
    let (mut out, mut now, mut sent) = (BTreeMap::new(), 0u64, 0);
    while !waiting.is_empty() || !out.is_empty() {
        now += 1_000;
        assert!(
            now < 3_600_000_000_000,
            "an hour of virtual time, and calls are out"
        );
        while let (Some(&length), Some(&slot)) = (waiting.last(), free.last()) {
            waiting.pop();
            free.pop();
            let call = call_id(slot as u32, generations[slot]);
            driver.begin(call, 1, &request_of(call, length));
            out.insert(call, length);
        }
        driver.go_back(now);
        let mut packet = Packet::new(PACKET);
        while driver.put(&mut packet, now) {
            sent += 1;
            network.carry(true, &mut packet, now);
        }
        assert!(driver.unanswered() <= credits);
        server.work(now, &mut network);
        while network
            .on_the_way
            .first_key_value()
            .is_some_and(|(&(at, _), _)| at <= now)
        {
            let (_, (to_server, bytes)) = network.on_the_way.pop_first().unwrap();
            if to_server {
                server.take(&bytes, now, &mut network);
                continue;
            }
            for (header, payload) in messages(&bytes) {
                if driver.hear(header, &payload, now).unwrap() != Heard::Whole {
                    continue;
                }
                let length = out.remove(&header.call).expect("it ends once");
                let expected = response_of(&request_of(header.call, length), header.call & 0xffff);
                match driver.take_response(header.call) {
                    Response::Short(bytes) => assert_eq!(bytes, expected),
                    Response::Long(bytes) => assert_eq!(*bytes.unwrap(), expected),
                    Response::Failure(_) => panic!("nothing fails"),
                }
                let slot = slot_of(header.call);
                generations[slot] += 1;
                free.push(slot);
            }
        }
    }
    assert_eq!(server.executed.len(), lengths.len());
    assert!(
        server.executed.values().all(|&times| times == 1),
        "a call was executed twice"
    );
    assert!(
        server.answers <= server.heard,
        "a packet of the client is answered by one at most"
    );
    assert!(!driver.is_busy() && driver.unanswered() == 0);
    (now, sent)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_call_is_executed_once_and_answered(
        lengths in prop::collection::vec(0usize..3000, 1..25), credits in 1usize..33, lost in 0u64..30, seed: u64, controlled: bool
    ) {
        run(&lengths, credits, Some(lost), seed, controlled);
    }

    #[test]
    fn any_part_is_taken_or_refused(payload in prop::collection::vec(any::<u8>(), 0..300), total in 0u32..3000, number in 0u32..20) {
        let part = Part { total, number, flags: 0 };
        let mut almost = part.encode().to_vec();
        almost.extend_from_slice(&payload);
        for bytes in [&payload, &almost] {
            if let Ok((part, body)) = Part::read(bytes, PIECE, 2000) {
                prop_assert!(part.number < pieces(part.total as usize, PIECE));
                prop_assert!(part.total <= 2000 && body.len() <= PIECE);
            }
            for kind in [Kind::CreditReturn, Kind::ResponsePart] {
                let mut driver = Driver::new(2, 4, (PIECE, 2000), true, &Spare::default());
                driver.begin(0, 1, &[0; 500]);
                driver.put(&mut Packet::new(PACKET), 0);
                let _ = driver.hear(Header::new(kind, 0, 0, bytes.len()), bytes, 5);
                let mut answerer = Answerer::new(2, PIECE, 2000, &Spare::default());
                for is_new in [true, false] {
                    let _ = answerer.take(Header::new(Kind::RequestPart, 1, 1, bytes.len()), bytes, is_new);
                }
            }
        }
    }
}

#[test]
fn without_loss_each_packet_is_sent_once() {
    for length in [0, 450, 2000] {
        let (_, sent) = run(&[length], 8, None, 1, false);
        // All parts of the request, and all of the response but the first, which the last part of the request triggers.
        let parts = pieces(response_of(&request_of(5, length), 5).len(), PIECE);
        assert_eq!(sent, u64::from(pieces(length, PIECE) + parts - 1));
    }
}

#[test]
fn a_server_that_changes_a_response_is_found_out() {
    let mut driver = Driver::new(1, 4, (PIECE, 2000), false, &Spare::default());
    driver.begin(0, 1, b"short");
    let mut packet = Packet::new(PACKET);
    assert!(driver.put(&mut packet, 0) && !driver.put(&mut Packet::new(PACKET), 0));
    let part = |total, number, bytes: usize| {
        let mut payload = Part {
            total,
            number,
            flags: 0,
        }
        .encode()
        .to_vec();
        payload.resize(PART_BYTES + bytes, 0);
        payload
    };
    let header = |payload: &[u8]| Header::new(Kind::ResponsePart, 0, 0, payload.len());
    let first = part(400, 0, PIECE);
    assert_eq!(
        driver.hear(header(&first), &first, 1).unwrap(),
        Heard::Progress
    );
    assert_eq!(
        driver.hear(header(&first), &first, 1).unwrap(),
        Heard::Nothing
    );
    let longer = part(900, 1, PIECE);
    assert!(driver
        .hear(header(&longer), &longer, 1)
        .unwrap_err()
        .is_violation());
    let credit = 0u32.to_le_bytes();
    let header = Header::new(Kind::CreditReturn, 0, 0, 4);
    assert!(driver.hear(header, &credit, 1).unwrap_err().is_violation());
}
