//! Peers that keep to the handshake and to nothing else: they WRITE whatever they like wherever they may.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{mpsc, Arc};
use std::time::{Duration, Instant};

use dunlin_shm::{ShmConfig, ShmDevice};
use dunlin_verbs::{
    Access, Completion, CompletionQueue, ConnectAttributes, Device, EndpointAddress, Operation,
    Payload, QueuePair, QueuePairConfig, QueuePairState, ReceiveQueue, ReceiveRequest, Region,
    RemoteAddress, RemoteKey, Segment, SendFlags, SendRequest, Transport,
};

use crate::bootstrap::{
    dial, Acceptor, AcceptorConfig, DialConfig, OpenReply, OpenRequest, StopHandle,
};
use crate::channel::batch::{self, Canaries, LINE_BYTES};
use crate::channel::message::{Descriptor, Header, Kind};
use crate::channel::ring::Parameters;
use crate::{devices, CallError, Client, RunningServer, Server};

/// Offsets in an inlet, as an honest ring knows them.
const CONSUMED_AT: usize = 0;
const SLEEP_AT: usize = 64;
const RING_AT: usize = 4096;

const ECHO: u16 = 1;
const LONG: u16 = 2;
const ON_WORKERS: u16 = 3;

/// Longer than anything takes that does not hang.
const PATIENCE: Duration = Duration::from_secs(20);

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < PATIENCE, "not within 20 s: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }
}

/// A peer without manners.
struct Raw {
    queue_pair: <ShmDevice as Device>::QueuePair,
    completions: <ShmDevice as Device>::CompletionQueue,
    inlet: <ShmDevice as Device>::Region,
    staging: <ShmDevice as Device>::Region,
    target: RemoteAddress,
    lines: usize,
    /// Where an honest peer would write next, and which batch.
    position: usize,
    canaries: Canaries,
}

impl Raw {
    fn new(device: &ShmDevice, receives: usize) -> Self {
        let domain = device.create_protection_domain().unwrap();
        let region = |access| {
            device
                .allocate_region(&domain, RING_AT + (64 << 10), access)
                .unwrap()
        };
        let inlet = region(Access::LOCAL_WRITE | Access::REMOTE_WRITE);
        let staging = region(Access::LOCAL_WRITE);
        let completions = device.create_completion_queue(512, None).unwrap();
        let mut queue_pair = device
            .create_queue_pair(
                &domain,
                &QueuePairConfig {
                    transport: Transport::ReliableConnection,
                    send_completions: &completions,
                    receive_completions: &completions,
                    send_requests: 64,
                    receive_queue: ReceiveQueue::Own(64),
                    segments: 1,
                    inline_bytes: 0,
                },
            )
            .unwrap();
        queue_pair
            .to_init(Access::REMOTE_WRITE | Access::REMOTE_READ)
            .unwrap();
        for _ in 0..receives {
            let request = ReceiveRequest {
                id: 0,
                segments: &[],
            };
            queue_pair.post_receive(&[request]).unwrap();
        }
        Self {
            queue_pair,
            completions,
            inlet,
            staging,
            target: RemoteAddress {
                address: 0,
                key: RemoteKey(0),
            },
            lines: 0,
            position: 0,
            canaries: Canaries::new(0),
        }
    }

    fn parameters(&self) -> Parameters {
        let inlet = self.inlet.remote();
        let numbers = [
            ("inlet-address", inlet.address),
            ("inlet-key", u64::from(inlet.key.0)),
            ("ring-lines", 1024),
            ("eager-bytes", 4096),
            ("max-message-bytes", 1 << 20),
            ("ring-canaries", 1),
        ];
        numbers.map(|(name, value)| (name.to_owned(), value)).into()
    }

    fn connect(&mut self, peer: &EndpointAddress, parameters: &Parameters) {
        self.queue_pair
            .to_ready_to_receive(Some(peer), ConnectAttributes::default())
            .unwrap();
        self.queue_pair.to_ready_to_send().unwrap();
        self.target = RemoteAddress {
            address: parameters["inlet-address"],
            key: RemoteKey(parameters["inlet-key"] as u32),
        };
        self.lines = parameters["ring-lines"] as usize;
        self.canaries = Canaries::new(parameters["ring-canaries"]);
    }

    /// Dials a server and opens a connection with these parameters.
    fn dial(device: &ShmDevice, server: &RunningServer, receives: usize) -> Self {
        Self::dial_as(device, server, receives, None)
    }

    /// As [`Raw::dial`], as a lane of this sender, whose credits the server counts.
    fn dial_as(
        device: &ShmDevice,
        server: &RunningServer,
        receives: usize,
        sender: Option<u64>,
    ) -> Self {
        let fabrics = devices::fabrics(None, None).unwrap();
        let config = DialConfig {
            capabilities: devices::capabilities(&fabrics).unwrap(),
            ..DialConfig::default()
        };
        let mut raw = Self::new(device, receives);
        let reply = dial(&server.address(), &config)
            .unwrap()
            .open(OpenRequest {
                device: String::new(),
                preset: if sender.is_some() { "flock" } else { "plain" }.into(),
                endpoint: raw.queue_pair.address(),
                parameters: {
                    let mut parameters = raw.parameters();
                    parameters.extend(sender.map(|sender| ("sender".to_owned(), sender)));
                    parameters
                },
            })
            .unwrap();
        assert_eq!(
            reply.parameters.get("credits").copied(),
            sender.map(|_| 32),
            "credits are counted for those who said that they count"
        );
        raw.connect(&reply.endpoint, &reply.parameters);
        raw
    }

    fn inlet_bytes(&self) -> usize {
        RING_AT + self.lines * LINE_BYTES
    }

    fn is_alive(&self) -> bool {
        self.queue_pair.state() == QueuePairState::ReadyToSend
    }

    /// Asks for credits and reports this coalescing degree.
    fn ask(&mut self, degree: u32) -> bool {
        self.post(0, &[], Some(1 << 31 | degree))
    }

    /// What the server granted last: the total, and whether the lane is active.
    fn granted(&self) -> (u32, bool) {
        let word = self.inlet.memory().atomic_u64(128).load(Ordering::Acquire);
        (word as u32, word >> 32 == 1)
    }

    /// Writes at an offset of the peer's inlet; `false` when the connection is over.
    fn write(&mut self, offset: usize, bytes: &[u8]) -> bool {
        self.post(offset, bytes, None)
    }

    fn post(&mut self, offset: usize, bytes: &[u8], immediate: Option<u32>) -> bool {
        self.staging.memory().write(0, bytes);
        let segment = [Segment {
            region: &self.staging,
            offset: 0,
            length: bytes.len(),
        }];
        let request = SendRequest::new(
            7,
            Operation::Write {
                remote: self.target.plus(offset as u64),
                immediate,
            },
            Payload::Segments(if bytes.is_empty() { &[] } else { &segment }),
            SendFlags::SIGNALED,
        );
        if self.queue_pair.post_send(&[request]).is_err() {
            return false;
        }
        let started = Instant::now();
        let mut completions = [Completion::EMPTY; 8];
        loop {
            assert!(started.elapsed() < PATIENCE, "a WRITE hangs");
            let count = self.completions.poll(&mut completions).unwrap();
            for completion in &completions[..count] {
                if completion.id == 7 {
                    return completion.is_success();
                }
            }
            if count == 0 {
                std::thread::yield_now();
            }
        }
    }

    /// A batch as an honest peer would write it next, whatever is in it.
    fn batch(&mut self, lines: usize, messages: u32, content: &[u8], consumed: u64) -> bool {
        let canary = self.canaries.current();
        let mut bytes = batch::head(canary, lines, messages).to_le_bytes().to_vec();
        bytes.extend_from_slice(content);
        bytes.resize(bytes.len().max(56), 0);
        let commit = batch::commit(canary, consumed).to_le_bytes();
        bytes.splice(56..56, commit);
        bytes.resize(bytes.len().next_multiple_of(LINE_BYTES), 0);
        self.canaries.advance();
        let count = bytes.len() / LINE_BYTES;
        let lines: Vec<_> = bytes.chunks(LINE_BYTES).enumerate().collect();
        for &(i, line) in lines[1..].iter().chain(&lines[..1]) {
            let at = (self.position + i) % self.lines;
            if !self.write(RING_AT + at * LINE_BYTES, line) {
                return false;
            }
        }
        self.position = (self.position + count) % self.lines;
        true
    }

    /// A batch of one message.
    fn message(&mut self, low: u64, call: u64, payload: &[u8], consumed: u64) -> bool {
        let mut content = (u128::from(low) | u128::from(call) << 64)
            .to_le_bytes()
            .to_vec();
        content.extend_from_slice(payload);
        self.batch(batch::lines_for(payload.len()), 1, &content, consumed)
    }

    fn honest(&mut self, kind: Kind, handler: u16, call: u64, payload: &[u8]) -> bool {
        let header = Header {
            length: payload.len() as u32,
            handler,
            kind,
            call,
        };
        let bytes = u128::from_le_bytes(header.encode());
        self.message(bytes as u64, call, payload, 0)
    }

    /// A message that is almost right.
    fn crooked(&mut self, random: &mut Random, calls: &[u64]) -> bool {
        let kind = random.of(&[0u64, 1, 1, 2, 2, 3, 4, 4, 5, 5, 6, 7, 8, 9, 255]);
        let handler = random.of(&[0u64, ECHO.into(), LONG.into(), ON_WORKERS.into(), 999]);
        let call = match random.below(4) {
            0 => random.next(),
            1 => u64::MAX,
            _ => random.of(calls),
        };
        let own = self.inlet.remote();
        let descriptor = Descriptor {
            address: random.of(&[0, own.address, own.address + 100, u64::MAX - 5]),
            length: random.of(&[0, 1, 5000, 16 << 20, (16 << 20) + 1, 1 << 40, u64::MAX]),
            key: match random.below(3) {
                0 => own.key.0,
                1 => 0,
                _ => random.next() as u32,
            },
        };
        let payload = match random.below(5) {
            0 => Vec::new(),
            1 | 2 => descriptor.encode().to_vec(),
            3 => random.bytes(41),
            _ => {
                let length = random.below(4096);
                random.bytes(length)
            }
        };
        let length = match random.below(8) {
            0 => random.next() & 0xffff_ffff,
            1 => 4097,
            2 => u64::from(u32::MAX),
            _ => payload.len() as u64,
        };
        let high = if random.below(20) == 0 { 1 << 60 } else { 0 };
        let consumed = if random.below(10) == 0 {
            random.next()
        } else {
            0
        };
        self.message(
            length | handler << 32 | kind << 48 | high,
            call,
            &payload,
            consumed,
        )
    }

    /// Something that no honest peer does; `false` when the connection is over.
    fn misbehave(&mut self, random: &mut Random, calls: &[u64]) -> bool {
        match random.below(12) {
            0 => {
                let word = random.next() >> random.below(64);
                self.write(CONSUMED_AT, &word.to_le_bytes())
            }
            1 | 2 => {
                let word = random.next() >> random.below(64);
                self.write(SLEEP_AT, &word.to_le_bytes())
            }
            3 => {
                let bytes = self.inlet_bytes();
                let offset = random.below(bytes);
                let length = random.below(2000.min(bytes - offset) + 1);
                let noise = random.bytes(length);
                self.write(offset, &noise)
            }
            4 => {
                // A batch of any size that says anything of itself.
                let lines = random.of(&[0, 1, 2, 64, 65, 66, 1023, 1024, 1025, (1 << 20) - 1]);
                let messages = random.of(&[0, 1, 2, 100, 4095]);
                let length = random.below(3000);
                let content = random.bytes(length);
                self.batch(lines, messages, &content, 0)
            }
            5 => {
                // The head of a batch whose commit never comes.
                let head = batch::head(self.canaries.current(), 64, 1);
                self.write(RING_AT + self.position * LINE_BYTES, &head.to_le_bytes())
            }
            6 => {
                // Beyond the inlet: the device must say no.
                let beyond = self.inlet_bytes() + random.below(100);
                !self.write(beyond, &[0xee; 8])
            }
            _ => self.crooked(random, calls),
        }
    }
}

fn serve() -> RunningServer {
    Server::bind("dunlin://127.0.0.1:0")
        .unwrap()
        .handle(ECHO, |request, reply| reply.write(request.payload()))
        .handle(LONG, |_, reply| reply.write(&[1; 30_000]))
        .handle_on_workers(ON_WORKERS, |request, reply| reply.write(request.payload()))
        .serve()
        .unwrap()
}

fn hostile_device() -> ShmDevice {
    ShmDevice::open(ShmConfig::default()).unwrap()
}

/// Stops the good client also when an assertion fails.
struct Stopper<'a>(&'a AtomicBool);

impl Drop for Stopper<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `bad` beside a client that must see nothing but right answers; says how slow its slowest was.
fn beside_a_good_client(server: &RunningServer, bad: impl FnOnce()) -> Duration {
    let client = Client::connect(&server.address().to_string()).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let good = scope.spawn(|| {
            let mut random = Random::new(5);
            let mut slowest = Duration::ZERO;
            while !stop.load(Ordering::Relaxed) {
                let length = random.of(&[0, 8, 40, 100, 4000, 9000]);
                let payload = random.bytes(length);
                let handler = random.of(&[ECHO, ECHO, ECHO, ON_WORKERS]);
                let started = Instant::now();
                assert!(*client.call(handler, &payload).unwrap() == *payload);
                slowest = slowest.max(started.elapsed());
            }
            slowest
        });
        let stopper = Stopper(&stop);
        bad();
        drop(stopper);
        good.join().unwrap()
    })
}

#[test]
fn a_client_that_writes_anything_harms_itself_alone() {
    let server = serve();
    let device = hostile_device();
    let seeds = 150;
    let mut over = 0;
    let slowest = beside_a_good_client(&server, || {
        for seed in 1..=seeds {
            let mut random = Random::new(seed);
            let receives = random.of(&[0, 1, 64]);
            let mut raw = Raw::dial(&device, &server, receives);
            for _ in 0..80 {
                if !raw.misbehave(&mut random, &[0, 1, 2, 3]) || !raw.is_alive() {
                    over += 1;
                    break;
                }
            }
        }
        eventually("hostile connections end", || server.connections() <= 2);
    });
    println!(
        "{seeds} seeds: {over} connections ended early, {} violations; slowest good call {slowest:?}",
        server.statistics().violations
    );
    assert!(server.statistics().violations > 0);
    eventually("nobody is left", || server.connections() == 0);
    assert!(server.shutdown());
}

#[test]
fn each_breach_of_the_protocol_ends_the_connection() {
    let server = serve();
    let device = hostile_device();
    let long = |length: u64| {
        Descriptor {
            address: 0,
            length,
            key: 1,
        }
        .encode()
    };
    type Breach<'a> = (&'static str, Box<dyn Fn(&mut Raw) -> bool + 'a>);
    let breaches: Vec<Breach<'_>> = vec![
        ("kind 0", Box::new(|raw| raw.message(0, 1, &[], 0))),
        ("kind 9", Box::new(|raw| raw.message(9 << 48, 1, &[], 0))),
        (
            "longer than the ring takes",
            Box::new(|raw| raw.message(4097 | 1 << 32 | 1 << 48, 1, &[], 0)),
        ),
        (
            "the longest length",
            Box::new(|raw| raw.message(u64::from(u32::MAX) | 1 << 48, 1, &[], 0)),
        ),
        (
            "a response",
            Box::new(|raw| raw.honest(Kind::Response, 0, 1, b"you")),
        ),
        (
            "a goodbye",
            Box::new(|raw| raw.honest(Kind::Goodbye, 0, 1, b"")),
        ),
        (
            "half a descriptor",
            Box::new(|raw| raw.honest(Kind::LongRequest, ECHO, 1, &[0; 23])),
        ),
        (
            "over the limit",
            Box::new(|raw| raw.honest(Kind::LongRequest, ECHO, 1, &long((16 << 20) + 1))),
        ),
        (
            "endless",
            Box::new(|raw| raw.honest(Kind::LongRequest, ECHO, 1, &long(u64::MAX))),
        ),
        (
            "a reserved number",
            Box::new(|raw| raw.honest(Kind::LongRequest, ECHO, u64::MAX, &long(100))),
        ),
        (
            "a batch longer than its messages can be",
            Box::new(|raw| raw.batch(1024, 1, &[], 0)),
        ),
        (
            "a batch with fewer messages than it says",
            Box::new(|raw| raw.batch(1, 4, &[], 0)),
        ),
        (
            "a commit that has read what was not sent",
            Box::new(|raw| raw.message(1 << 32 | 1 << 48, 1, &[], 1000)),
        ),
    ];
    for (index, (name, breach)) in breaches.iter().enumerate() {
        let mut raw = Raw::dial(&device, &server, 8);
        breach(&mut raw);
        eventually(name, || server.statistics().violations == index as u64 + 1);
        eventually("the peer sees it", || !raw.is_alive());
    }
    // A key that is not in force fails in the device: the connection ends, though nobody broke the protocol.
    let mut raw = Raw::dial(&device, &server, 8);
    raw.honest(Kind::LongRequest, ECHO, 1, &long(100));
    eventually("a key that is none", || server.connections() == 0);
    // The word of its own is looked at when the ring is full.
    let mut raw = Raw::dial(&device, &server, 8);
    raw.write(CONSUMED_AT, &70_000u64.to_le_bytes());
    for call in 0..20 {
        // One at a time: a writer that overruns the reader would only stop itself.
        let before = server.statistics().requests;
        raw.honest(Kind::Request, ECHO, call, &[1; 4000]);
        eventually("the request is taken or the connection over", || {
            server.statistics().requests > before || !raw.is_alive()
        });
    }
    eventually("a count that lies", || {
        server.statistics().violations == breaches.len() as u64 + 1
    });
    let client = Client::connect(&server.address().to_string()).unwrap();
    assert_eq!(&*client.call(ECHO, b"fine").unwrap(), b"fine");
    drop(client);
    assert!(server.shutdown());
}

#[test]
fn a_client_that_lies_about_credits_is_disconnected() {
    let server = serve();
    let device = hostile_device();
    beside_a_good_client(&server, || {
        let flock = Client::builder()
            .preset(crate::Preset::Flock)
            .connect(&server.address().to_string())
            .unwrap();
        let mut violations = 0;
        let mut ends = |raw: &Raw, what: &str| {
            violations += 1;
            eventually(what, || server.statistics().violations == violations);
            eventually("the peer sees it", || !raw.is_alive());
            assert_eq!(*flock.call(ECHO, b"flock").unwrap(), *b"flock");
        };
        for degree in [0, 49, 4_000_000_000 & !(1 << 31), !(1 << 31)] {
            let mut raw = Raw::dial_as(&device, &server, 64, Some(1));
            raw.ask(degree);
            // Looked at when half of the credits are spent.
            for call in 0..16 {
                raw.honest(Kind::Request, ECHO, call, b"one");
            }
            ends(&raw, "a degree that cannot be");
        }
        let mut raw = Raw::dial_as(&device, &server, 64, Some(2));
        for call in 0..33 {
            raw.honest(Kind::Request, ECHO, call, b"too many");
        }
        ends(&raw, "one request more than credits");
        // All at once, in a message that says more requests than there are credits.
        let mut raw = Raw::dial_as(&device, &server, 64, Some(3));
        let request = Header {
            length: 0,
            handler: ECHO,
            kind: Kind::Request,
            call: 1,
        };
        raw.batch(12, 40, &request.encode().repeat(40), 0);
        ends(&raw, "a coalesced message beyond the credits");
        let mut raw = Raw::dial_as(&device, &server, 64, Some(4));
        for call in 0..33 {
            raw.honest(Kind::LongRequest, 999, call, &[0; 24]);
        }
        ends(&raw, "long requests cost credits too");
    });
    eventually("nobody is left", || server.connections() == 0);
    assert!(server.senders().is_empty());
    assert!(server.shutdown());
}

#[test]
fn asking_early_and_often_brings_no_more_credits() {
    let server = serve();
    let device = hostile_device();
    let mut raw = Raw::dial_as(&device, &server, 64, Some(9));
    for _ in 0..4 {
        assert!(raw.ask(3));
    }
    for call in 0..15 {
        assert!(raw.honest(Kind::Request, ECHO, call, b"one"));
    }
    eventually("15 were taken", || server.statistics().requests == 15);
    std::thread::sleep(Duration::from_millis(150));
    assert_eq!(raw.granted(), (0, false), "nothing was granted yet");
    assert!(raw.honest(Kind::Request, ECHO, 15, b"one"));
    eventually("32 more are granted, once", || raw.granted() == (64, true));
    std::thread::sleep(Duration::from_millis(150));
    assert_eq!(raw.granted().0, 64);
    assert_eq!(server.statistics().violations, 0);
}

#[test]
fn a_client_that_reads_nothing_is_not_waited_for() {
    let server = serve();
    let device = hostile_device();
    let slowest = beside_a_good_client(&server, || {
        for receives in [0, 1, 64] {
            let mut raw = Raw::dial(&device, &server, receives);
            for call in 0..3000u64 {
                // Announces a new sleep each time, so that each answer comes with a wake-up.
                let sleep = call + 1;
                let handler = if call % 2 == 0 { ECHO } else { LONG };
                if !raw.write(SLEEP_AT, &sleep.to_le_bytes())
                    || !raw.honest(Kind::Request, handler, call, b"more")
                {
                    break;
                }
            }
        }
        eventually("hostile connections end", || server.connections() <= 2);
    });
    println!("slowest good call {slowest:?}");
    eventually("nobody is left", || server.connections() == 0);
}

#[test]
fn a_server_that_writes_anything_gives_errors_and_no_harm() {
    let device = hostile_device();
    let fabrics = devices::fabrics(None, None).unwrap();
    let config = AcceptorConfig {
        capabilities: devices::capabilities(&fabrics).unwrap(),
        ..AcceptorConfig::default()
    };
    let acceptor =
        Arc::new(Acceptor::bind(&"dunlin://127.0.0.1:0".parse().unwrap(), config).unwrap());
    let address = acceptor.local_address().to_string();
    let stop = StopHandle::new().unwrap();
    let (opened, peers) = mpsc::channel::<Raw>();
    let opened = std::sync::Mutex::new(opened);
    let accepting = {
        let (acceptor, stop) = (Arc::clone(&acceptor), stop.clone());
        std::thread::spawn(move || {
            acceptor
                .run(&stop, |request| {
                    let mut raw = Raw::new(&device, 64);
                    raw.connect(&request.endpoint, &request.parameters);
                    let reply = OpenReply {
                        endpoint: raw.queue_pair.address(),
                        parameters: raw.parameters(),
                    };
                    let _ = opened.lock().unwrap().send(raw);
                    Ok(reply)
                })
                .unwrap();
        })
    };
    let hostile = std::thread::spawn(move || {
        let mut random = Random::new(11);
        let mut lanes: Vec<Raw> = Vec::new();
        loop {
            match peers.recv_timeout(Duration::from_micros(200)) {
                Ok(raw) => lanes.push(raw),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
            }
            // Mostly answers to calls that are really out: slot 0 or 1 of the first generations.
            let calls = [0, 1, 1 << 32, 2 << 32, 3 << 32];
            lanes.retain_mut(|raw| raw.misbehave(&mut random, &calls) && raw.is_alive());
        }
    });
    let mut ends: BTreeMap<String, u64> = BTreeMap::new();
    let mut note = |result: Result<usize, CallError>| {
        let name = match result {
            Ok(_) => "an answer".to_owned(),
            Err(error) => {
                let words = format!("{error:?}");
                words.split([' ', '(', '{']).next().unwrap().to_owned()
            }
        };
        *ends.entry(name).or_default() += 1;
    };
    let deadline = Duration::from_millis(20);
    let client = Client::builder()
        .deadline(deadline)
        .connect(&address)
        .unwrap();
    let mut slowest = Duration::ZERO;
    for round in 0..150usize {
        let payload = vec![round as u8; [10, 3000, 20_000][round % 3]];
        let started = Instant::now();
        note(client.call(ECHO, &payload).map(|reply| reply.len()));
        let future = client.call_async(ECHO, &payload);
        note(pollster(future).map(|reply| reply.len()));
        match client.batch().call(ECHO, &payload).call(LONG, b"").send() {
            Ok(answers) => answers
                .into_iter()
                .for_each(|answer| note(answer.map(|reply| reply.len()))),
            Err(error) => note(Err(error)),
        }
        slowest = slowest.max(started.elapsed());
        assert!(started.elapsed() < PATIENCE, "a call hangs");
    }
    println!("{ends:?}; slowest round of three calls {slowest:?}");
    assert!(ends.contains_key("ConnectionLost"), "{ends:?}");
    drop(client);
    stop.stop();
    accepting.join().unwrap();
    hostile.join().unwrap();
}

/// The smallest executor.
fn pollster<F: std::future::Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(output) => return output,
            std::task::Poll::Pending => std::thread::park_timeout(PATIENCE),
        }
    }
}
