//! The peer without manners, and where its choices come from.

use std::sync::atomic::Ordering;
use std::time::Instant;

use dunlin_shm::ShmDevice;
use dunlin_verbs::{
    Access, Completion, CompletionQueue, ConnectAttributes, Device, EndpointAddress, Operation,
    Payload, QueuePair, QueuePairConfig, QueuePairState, ReceiveQueue, ReceiveRequest, Region,
    RemoteAddress, RemoteKey, Segment, SendFlags, SendRequest, Transport,
};

use super::{ECHO, LONG, ON_WORKERS, PATIENCE};
use crate::admission::credits::CREDITS_OF_MEMORY;
use crate::bootstrap::{dial, DialConfig, OpenReply, OpenRequest};
use crate::channel::batch::{self, Canaries, Form, LINE_BYTES};
use crate::channel::message::{Descriptor, Header, Kind};
use crate::channel::Parameters;
use crate::{devices, RunningServer};

/// Offsets in an inlet, as an honest ring knows them.
pub(super) const CONSUMED_AT: usize = 0;
pub(super) const SLEEP_AT: usize = 64;
pub(super) const RING_AT: usize = 4096;

pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub(super) fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    pub(super) fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }
}

/// A peer without manners.
pub(super) struct Raw {
    pub(super) queue_pair: <ShmDevice as Device>::QueuePair,
    pub(super) completions: <ShmDevice as Device>::CompletionQueue,
    pub(super) inlet: <ShmDevice as Device>::Region,
    pub(super) staging: <ShmDevice as Device>::Region,
    pub(super) target: RemoteAddress,
    pub(super) lines: usize,
    /// Where an honest peer would write next, and which batch.
    pub(super) position: usize,
    pub(super) canaries: Canaries,
    /// How it said that its batches cross.
    form: Form,
}

impl Raw {
    pub(super) fn new(device: &ShmDevice, receives: usize) -> Self {
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
            form: Form::FirstLineLast,
        }
    }

    pub(super) fn parameters(&self) -> Parameters {
        let inlet = self.inlet.remote();
        let numbers = [
            ("inlet-address", inlet.address),
            ("inlet-key", u64::from(inlet.key.0)),
            ("ring-lines", 1024),
            ("eager-bytes", 4096),
            ("max-message-bytes", 1 << 20),
            ("ring-canaries", 1),
            ("ring-one-write", u64::from(self.form == Form::Sealed)),
        ];
        numbers.map(|(name, value)| (name.to_owned(), value)).into()
    }

    pub(super) fn connect(&mut self, peer: &EndpointAddress, parameters: &Parameters) {
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
    pub(super) fn dial(device: &ShmDevice, server: &RunningServer, receives: usize) -> Self {
        Self::dial_as(device, server, receives, None)
    }

    /// As [`Raw::dial`], as a lane of this sender, whose credits the server counts.
    pub(super) fn dial_as(
        device: &ShmDevice,
        server: &RunningServer,
        receives: usize,
        sender: Option<u64>,
    ) -> Self {
        Self::dial_in(Form::FirstLineLast, device, server, receives, sender)
    }

    /// As [`Raw::dial_as`], with batches of this form.
    pub(super) fn dial_in(
        form: Form,
        device: &ShmDevice,
        server: &RunningServer,
        receives: usize,
        sender: Option<u64>,
    ) -> Self {
        let (mut raw, reply) = Self::open(device, server, receives, sender, form);
        raw.connect(&reply.endpoint, &reply.parameters);
        raw
    }

    /// As [`Raw::dial_as`], only as far as the server's reply: the queue pair is not joined to the server's.
    pub(super) fn open(
        device: &ShmDevice,
        server: &RunningServer,
        receives: usize,
        sender: Option<u64>,
        form: Form,
    ) -> (Self, OpenReply) {
        let fabrics = devices::fabrics(None, None).unwrap();
        let config = DialConfig {
            capabilities: devices::capabilities(&fabrics).unwrap(),
            ..DialConfig::default()
        };
        let mut raw = Self::new(device, receives);
        raw.form = form;
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
            sender.map(|_| u64::from(CREDITS_OF_MEMORY)),
            "credits are counted for those who said that they count"
        );
        (raw, reply)
    }

    pub(super) fn inlet_bytes(&self) -> usize {
        RING_AT + self.lines * LINE_BYTES
    }

    pub(super) fn is_alive(&self) -> bool {
        self.queue_pair.state() == QueuePairState::ReadyToSend
    }

    /// Asks for credits and reports this coalescing degree.
    pub(super) fn ask(&mut self, degree: u32) -> bool {
        self.post(0, &[], Some(1 << 31 | degree))
    }

    /// What the server granted last: the total, and whether the lane is active.
    pub(super) fn granted(&self) -> (u32, bool) {
        let word = self.inlet.memory().atomic_u64(128).load(Ordering::Acquire);
        (word as u32, word >> 32 == 1)
    }

    /// Writes at an offset of the peer's inlet; `false` when the connection is over.
    pub(super) fn write(&mut self, offset: usize, bytes: &[u8]) -> bool {
        self.post(offset, bytes, None)
    }

    pub(super) fn post(&mut self, offset: usize, bytes: &[u8], immediate: Option<u32>) -> bool {
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
    pub(super) fn batch(
        &mut self,
        lines: usize,
        messages: u32,
        content: &[u8],
        consumed: u64,
    ) -> bool {
        let canary = self.canaries.current();
        self.canaries.advance();
        let bytes = self.lines * LINE_BYTES;
        for (offset, line) in
            batch::lay_out(self.form, canary, (lines, messages), content, consumed)
        {
            let at = (self.position * LINE_BYTES + offset) % bytes;
            if !self.write(RING_AT + at, &line) {
                return false;
            }
        }
        self.position = (self.position + batch::lines_of(content.len())) % self.lines;
        true
    }

    /// A batch of one message.
    pub(super) fn message(&mut self, low: u64, call: u64, payload: &[u8], consumed: u64) -> bool {
        let mut content = (u128::from(low) | u128::from(call) << 64)
            .to_le_bytes()
            .to_vec();
        content.extend_from_slice(payload);
        self.batch(batch::lines_for(payload.len()), 1, &content, consumed)
    }

    pub(super) fn honest(&mut self, kind: Kind, handler: u16, call: u64, payload: &[u8]) -> bool {
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
    pub(super) fn crooked(&mut self, random: &mut Random, calls: &[u64]) -> bool {
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
    pub(super) fn misbehave(&mut self, random: &mut Random, calls: &[u64]) -> bool {
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
