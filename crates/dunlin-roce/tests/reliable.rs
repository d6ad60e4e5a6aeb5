//! A requester and a responder with a network between them that loses, doubles, delays and marks packets, in virtual
//! time: whatever it does, each request is carried out once, in order and whole. A seed replays its run:
//! `DUNLIN_ROCE_SEED=7 cargo test -p dunlin-roce --test reliable`, and `DUNLIN_ROCE_SEEDS=100000` tries more of them.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use dunlin_roce::packet::{
    encode, parse, AtomicTarget, Header, Operation, Psn, RemoteRange, Service,
    DEFAULT_PARTITION_KEY,
};
use dunlin_roce::reliable::{
    AccessError, Delivered, ReadPlacement, Request, Requester, RequesterConfig, Responder,
    ResponderConfig, Target, Verb,
};
use dunlin_verbs::{Access, CompletionStatus};

const KEY: u32 = 0x1234_5678;
/// What is written, what is only read, and a counter.
const WRITTEN: usize = 40_000;
const READ: usize = 40_000;
const COUNTER: u64 = (WRITTEN + READ) as u64;
const MEMORY: usize = WRITTEN + READ + 8;
const REQUESTS: usize = 60;

/// splitmix64 (Steele et al., OOPSLA '14).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// The responder's memory and RECEIVEs.
#[derive(Default)]
struct Host {
    memory: Vec<u8>,
    receives: u32,
    current: Option<Vec<u8>>,
    delivered: Vec<(Vec<u8>, Delivered)>,
}

impl Host {
    fn place(&self, address: u64, key: u32, bytes: usize) -> Result<usize, AccessError> {
        let end = address.checked_add(bytes as u64).ok_or(AccessError)?;
        (key == KEY && end <= self.memory.len() as u64)
            .then_some(address as usize)
            .ok_or(AccessError)
    }
}

impl Target for Host {
    fn check(&mut self, range: &RemoteRange, _: Access) -> Result<(), AccessError> {
        self.place(range.address, range.key, range.bytes as usize)
            .map(drop)
    }

    fn write(&mut self, address: u64, key: u32, bytes: &[u8]) -> Result<(), AccessError> {
        let at = self.place(address, key, bytes.len())?;
        self.memory[at..at + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn atomic(
        &mut self,
        target: &AtomicTarget,
        change: &dyn Fn(u64) -> Option<u64>,
    ) -> Result<u64, AccessError> {
        let at = self.place(target.address, target.key, 8)?;
        let word = &mut self.memory[at..at + 8];
        let old = u64::from_le_bytes(word.try_into().unwrap());
        if let Some(new) = change(old) {
            word.copy_from_slice(&new.to_le_bytes());
        }
        Ok(old)
    }

    fn take_receive(&mut self) -> Option<u64> {
        self.receives = self.receives.checked_sub(1)?;
        self.current = Some(Vec::new());
        Some(1 << 20)
    }

    fn fill_receive(&mut self, offset: u32, bytes: &[u8]) -> Result<(), AccessError> {
        let current = self.current.as_mut().expect("a RECEIVE was taken");
        assert_eq!(current.len(), offset as usize);
        current.extend_from_slice(bytes);
        Ok(())
    }

    fn deliver(&mut self, delivered: Delivered) {
        let bytes = self.current.take().expect("a RECEIVE was taken");
        self.delivered.push((bytes, delivered));
    }

    fn fail_receive(&mut self, _: bool) {
        panic!("an honest peer's message fits");
    }
}

/// What the responder's end says of marked packets.
const NOTIFICATION: Header = Header {
    service: Service::Congestion,
    operation: Operation::CongestionNotification,
    solicited: false,
    acknowledge: false,
    partition_key: DEFAULT_PARTITION_KEY,
    queue_pair: 17,
    psn: Psn::new(0),
};

/// What a packet does on its way, in so many of a thousand.
#[derive(Clone, Copy, Debug)]
struct Weather {
    lost: u64,
    doubled: u64,
    late: u64,
    marked: u64,
}

/// When a packet arrives, as which it left, whether to the responder, and its bytes.
type Flying = (u64, u64, bool, Vec<u8>);

/// Packets on their way.
#[derive(Default)]
struct Network {
    flying: BinaryHeap<Reverse<Flying>>,
    count: u64,
    dropped: u64,
}

impl Network {
    fn send(
        &mut self,
        now: u64,
        to_responder: bool,
        bytes: &[u8],
        weather: Weather,
        random: &mut Random,
    ) {
        let copies = 1 + u64::from(random.below(1000) < weather.doubled);
        for _ in 0..copies {
            if random.below(1000) < weather.lost {
                self.dropped += 1;
                continue;
            }
            let late = match random.below(1000) < weather.late {
                true => random.below(300_000),
                false => 0,
            };
            self.count += 1;
            self.flying.push(Reverse((
                now + 2_000 + late,
                self.count,
                to_responder,
                bytes.to_vec(),
            )));
        }
    }
}

fn wire(header: &Header, payload: &[u8]) -> Vec<u8> {
    let mut buffer = vec![0; 5_000];
    let fill = |place: &mut [u8]| place.copy_from_slice(payload);
    let length = encode(header, payload.len(), &mut buffer, fill).expect("it has a wire form");
    buffer.truncate(length);
    buffer
}

fn pattern(id: u64, bytes: u32) -> Vec<u8> {
    (0..bytes)
        .map(|at| {
            (id.wrapping_mul(0x9e37_79b9)
                .wrapping_add(u64::from(at) * 131)
                >> 3) as u8
        })
        .collect()
}

/// What is left of it when all is over.
struct Outcome {
    dropped: u64,
    not_ready: bool,
}

fn run(seed: u64) -> Outcome {
    let mut random = Random(seed);
    let weather = Weather {
        lost: random.below(60),
        doubled: random.below(60),
        late: random.below(60),
        marked: random.below(60),
    };
    let mtu_bytes = [256, 512, 1024, 1408, 2048, 4096][random.below(6) as usize];
    let first_psn = match random.below(3) {
        // Numbers wrap in the run.
        0 => Psn::new((1 << 24) - random.below(200) as u32),
        _ => Psn::new(random.next() as u32),
    };
    let max_outstanding_reads = 1 + random.below(8) as usize;
    let mut requester = Requester::new(RequesterConfig {
        peer_queue_pair: 17,
        first_psn,
        mtu_bytes,
        window_packets: 2 + random.below(100) as u32,
        requests: 16,
        max_outstanding_reads,
        timeout_ns: 1_000_000,
        retry_count: 200,
        receiver_not_ready_retries: 7,
        asks_for_each: random.below(2) == 0,
    });
    let mut responder = Responder::new(ResponderConfig {
        peer_queue_pair: 18,
        first_psn,
        mtu_bytes,
        max_outstanding_reads,
        receiver_not_ready_timer_ns: 10_000,
    });
    let mut host = Host {
        memory: vec![0; MEMORY],
        ..Host::default()
    };
    for (at, byte) in host.memory[WRITTEN..WRITTEN + READ].iter_mut().enumerate() {
        *byte = (at * 7 + at / 256) as u8;
    }

    // What is to come of it, request by request.
    let mut model = host.memory.clone();
    let mut messages = Vec::new();
    let mut answers: HashMap<u64, Vec<u8>> = HashMap::new();
    let mut requests = VecDeque::new();
    for id in 0..REQUESTS as u64 {
        let bytes = match random.below(4) {
            0 => random.below(64) as u32,
            1 => mtu_bytes * random.below(4) as u32,
            _ => random.below(12_000) as u32,
        };
        let immediate = (random.below(2) == 0).then_some(id as u32);
        let at = random.below(WRITTEN as u64 - 12_300);
        let (verb, bytes) = match random.below(5) {
            0 | 1 => {
                messages.push((pattern(id, bytes), bytes, immediate, false));
                (Verb::Send { immediate }, bytes)
            }
            2 => {
                model[at as usize..][..bytes as usize].copy_from_slice(&pattern(id, bytes));
                if immediate.is_some() {
                    messages.push((Vec::new(), bytes, immediate, true));
                }
                let verb = Verb::Write {
                    address: at,
                    key: KEY,
                    immediate,
                };
                (verb, bytes)
            }
            3 => {
                let from = WRITTEN + at as usize;
                answers.insert(id, model[from..][..bytes as usize].to_vec());
                let verb = Verb::Read {
                    address: from as u64,
                    key: KEY,
                };
                (verb, bytes)
            }
            _ => {
                let word = &mut model[COUNTER as usize..];
                let old = u64::from_le_bytes(word.try_into().unwrap());
                answers.insert(id, old.to_le_bytes().to_vec());
                word.copy_from_slice(&(old + id + 1).to_le_bytes());
                let target = AtomicTarget {
                    address: COUNTER,
                    key: KEY,
                };
                (
                    Verb::FetchAdd {
                        target,
                        add: id + 1,
                    },
                    8,
                )
            }
        };
        requests.push_back(Request {
            id,
            verb,
            bytes,
            fence: random.below(8) == 0,
            prompt: random.below(2) == 0,
            solicited: false,
        });
    }

    let mut network = Network::default();
    let mut got: HashMap<u64, Vec<u8>> = HashMap::new();
    let mut ended = Vec::new();
    let mut not_ready = false;
    let mut now = 0;
    let mut steps = 0;
    while ended.len() < REQUESTS {
        steps += 1;
        assert!(steps < 1_000_000, "it goes on for ever");
        while let Some(request) = requests.front() {
            if requester.post(*request).is_err() {
                break;
            }
            requests.pop_front();
        }
        while let Some(transmit) = requester.poll_transmit(now) {
            let all = pattern(transmit.id, transmit.offset + transmit.bytes);
            let bytes = wire(&transmit.header, &all[transmit.offset as usize..]);
            network.send(now, true, &bytes, weather, &mut random);
        }
        while let Some(response) = responder.poll_transmit() {
            let payload = response.payload.map_or(&[][..], |payload| {
                let range = payload.range;
                &host.memory[range.address as usize..][..range.bytes as usize]
            });
            let bytes = wire(&response.header, payload);
            responder.sent();
            network.send(now, false, &bytes, weather, &mut random);
        }
        while let Some(finished) = requester.poll_finished() {
            assert_eq!(
                finished.status,
                CompletionStatus::Success,
                "{}",
                finished.id
            );
            ended.push(finished.id);
        }
        // RECEIVEs come now and then, so that some messages find none.
        if random.below(3) == 0 {
            host.receives += 1;
        }
        let arrival = network.flying.peek().map(|Reverse((at, ..))| *at);
        let next = [arrival, requester.deadline_ns()]
            .into_iter()
            .flatten()
            .min();
        let Some(next) = next else { continue };
        now = now.max(next);
        requester.handle_timeout(now);
        if arrival != Some(next) {
            continue;
        }
        let Some(Reverse((_, _, to_responder, bytes))) = network.flying.pop() else {
            continue;
        };
        let (header, payload) = parse(&bytes).expect("what was encoded");
        let marked = random.below(1000) < weather.marked;
        if to_responder {
            if marked {
                network.send(now, false, &wire(&NOTIFICATION, &[]), weather, &mut random);
            }
            let verdict = responder.handle(&header, payload, &mut host);
            not_ready |= verdict == dunlin_roce::reliable::Verdict::NotReady;
            assert!(!responder.is_failed(), "{header:?}: {verdict:?}");
            continue;
        }
        if marked || header.service == Service::Congestion {
            requester.handle_congestion();
        }
        match requester.handle(now, &header, payload.len()) {
            Some(ReadPlacement::Bytes { id, offset }) => {
                let place = got.entry(id).or_default();
                assert_eq!(place.len(), offset as usize, "answers come in order");
                place.extend_from_slice(payload);
            }
            Some(ReadPlacement::Value { id, original }) => {
                let twice = got.insert(id, original.to_le_bytes().to_vec());
                assert!(twice.is_none(), "an atomic is answered once");
            }
            None => {}
        }
    }
    assert!(
        ended.iter().copied().eq(0..REQUESTS as u64),
        "in the order of posting"
    );
    assert!(
        host.memory == model,
        "each WRITE and atomic once, in order, whole"
    );
    let delivered = host
        .delivered
        .iter()
        .map(|(bytes, what)| (bytes.clone(), what.bytes, what.immediate, what.write));
    assert!(delivered.eq(messages), "each message once, in order, whole");
    for (id, answer) in answers {
        assert!(
            got.remove(&id).unwrap_or_default() == answer,
            "the answer to {id}"
        );
    }
    assert!(got.is_empty());
    Outcome {
        dropped: network.dropped,
        not_ready,
    }
}

#[test]
fn whatever_the_network_does_each_request_is_carried_out_once_in_order_and_whole() {
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse::<u64>().ok())
    };
    if let Some(seed) = number("DUNLIN_ROCE_SEED") {
        run(seed);
        return;
    }
    let seeds = number("DUNLIN_ROCE_SEEDS").unwrap_or(1_000);
    let (mut lossy, mut waited) = (0, 0);
    for seed in 0..seeds {
        let ran = std::panic::catch_unwind(|| run(seed));
        let outcome = ran.unwrap_or_else(|_| panic!("DUNLIN_ROCE_SEED={seed} replays it"));
        lossy += u64::from(outcome.dropped > 0);
        waited += u64::from(outcome.not_ready);
    }
    // The weather was some.
    assert!(
        lossy > seeds / 2 && waited > 0,
        "{lossy} lossy runs, {waited} that waited"
    );
}
