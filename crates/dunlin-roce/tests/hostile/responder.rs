//! A responder whose peer sends whatever it likes.

use std::collections::{HashMap, VecDeque};

use dunlin_roce::packet::{
    AtomicTarget, Header, Operation, Psn, Refusal, RemoteRange, Service, Syndrome, PSN_COUNT,
};
use dunlin_roce::reliable::{Responder, ResponderConfig, Verdict};

use super::choices::Choices;
use super::packets;
use super::watched::{Effects, Watched};

/// A message that has begun, as the peer sees it.
#[derive(Clone, Copy, Debug)]
enum Partial {
    Send,
    Write { left: u64 },
}

/// Packets that an end of a run waits for; an answer that is longer is cut.
const DRAINED_PACKETS: usize = 3_000;

struct Run {
    mtu: u32,
    reads: usize,
    responder: Responder,
    target: Watched,
    expected: Psn,
    partial: Option<Partial>,
    failed: bool,
    /// What atomics found, by their sequence numbers.
    originals: HashMap<u32, u64>,
    /// Numbers of the last atomics, as many as are kept.
    kept: VecDeque<u32>,
    /// Whether a READ was so long that what was said before it seems to come after it.
    half_around: bool,
    /// Whether the last thing that was said is a positive acknowledgement of the packet before `expected`.
    acknowledged: bool,
}

/// Plays what `bytes` choose, on new connections after those that fail.
pub(crate) fn hostile_requester(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    while !choices.is_empty() {
        let mut run = Run::new(&mut choices);
        let mut after_failure = 0;
        while !choices.is_empty() && after_failure < 5 {
            after_failure += u32::from(run.failed);
            run.step(&mut choices);
        }
        run.end();
    }
}

impl Run {
    fn new(choices: &mut Choices) -> Self {
        let mtu = choices.one_of(&[256, 256, 1024, 4096]);
        let reads = choices.one_of(&[1, 1, 2, 4, 16]);
        let first = choices.one_of(&[0, PSN_COUNT - 3, PSN_COUNT / 2, 77]);
        let responder = Responder::new(ResponderConfig {
            peer_queue_pair: 18,
            first_psn: Psn::new(first),
            mtu_bytes: mtu,
            max_outstanding_reads: reads,
            receiver_not_ready_timer_ns: 10_000,
        });
        let mut target = Watched::default();
        (target.receives, target.capacity) = (3, 1 << 40);
        Self {
            mtu,
            reads,
            responder,
            target,
            expected: Psn::new(first),
            partial: None,
            failed: false,
            originals: HashMap::new(),
            kept: VecDeque::new(),
            half_around: false,
            acknowledged: false,
        }
    }

    fn step(&mut self, choices: &mut Choices) {
        match choices.below(20) {
            0 | 1 => self.target.receives = choices.below(4) as u32,
            2 => {
                let mtu = u64::from(self.mtu);
                let short = [0, 1, mtu - 1, mtu, 3 * mtu];
                self.target.capacity = match choices.one_in(16) {
                    true => choices.one_of(&short),
                    false => 1 << 40,
                };
            }
            3 => self.target.revoked = choices.one_in(32),
            4 => self.target.broken_receives = choices.one_in(32),
            5 => self.poll(1),
            6 => self.poll(choices.below(256)),
            7 if choices.one_in(64) => self.fail_read(),
            _ => self.packet(choices),
        }
    }

    fn packet(&mut self, choices: &mut Choices) {
        let behind = |by: u32| PSN_COUNT - by;
        let ahead = match choices.below(16) {
            0..=10 => 0,
            11 | 12 => behind(1 + choices.below(8) as u32),
            13 => 1 + choices.below(8) as u32,
            14 => choices.one_of(&[PSN_COUNT / 2, PSN_COUNT / 2 - 1, PSN_COUNT / 2 + 1]),
            _ => choices.word() % PSN_COUNT,
        };
        // What is expected is mostly sound, or each connection would end after a few packets.
        let wild = ahead != 0 || choices.one_in(64);
        let operation = match choices.below(8) {
            0 => packets::response(choices),
            1..=4 if wild => packets::request(choices, self.mtu),
            _ => self.sound(choices),
        };
        let mut header = packets::header(choices, operation, self.expected.plus(ahead));
        if choices.byte() == 255 {
            header.service = Service::Unreliable;
        }
        let payload = match wild && choices.one_in(4) {
            true => packets::length(choices, self.mtu).min(4_100),
            false => self.payload_of(&operation, choices),
        };
        self.handle(&header, payload);
    }

    /// An operation that may come next, of memory that is granted.
    fn sound(&self, choices: &mut Choices) -> Operation {
        let immediate = choices.one_in(2).then_some(9);
        let (address, key) = (0x1000, 4);
        let target = AtomicTarget { address, key };
        let range = |bytes| RemoteRange {
            address,
            key,
            bytes,
        };
        match self.partial {
            Some(Partial::Send) if choices.one_in(2) => Operation::SendLast { immediate },
            Some(Partial::Send) => Operation::SendMiddle,
            Some(Partial::Write { left }) if left <= self.mtu.into() => {
                Operation::WriteLast { immediate }
            }
            Some(Partial::Write { .. }) => Operation::WriteMiddle,
            None => match choices.below(8) {
                0 => Operation::SendFirst,
                1 => Operation::SendOnly { immediate },
                2 => Operation::WriteFirst {
                    target: range(self.mtu + 1 + u32::from(choices.byte()) * 8),
                },
                3 => Operation::WriteOnly {
                    target: range(packets::length(choices, self.mtu).min(self.mtu)),
                    immediate,
                },
                4 | 5 => Operation::ReadRequest {
                    source: range(packets::length(choices, self.mtu).min(1 << 31)),
                },
                6 => Operation::FetchAdd { target, add: 3 },
                _ => Operation::CompareAndSwap {
                    target,
                    compare: self.target.value,
                    swap: u64::MAX,
                },
            },
        }
    }

    fn payload_of(&self, operation: &Operation, choices: &mut Choices) -> u32 {
        match operation {
            _ if !operation.has_payload() => 0,
            Operation::WriteOnly { target, .. } => target.bytes.min(4_100),
            Operation::WriteLast { .. } => match self.partial {
                Some(Partial::Write { left }) => left.min(4_100) as u32,
                _ => 1,
            },
            Operation::SendLast { .. } | Operation::SendOnly { .. } => {
                packets::length(choices, self.mtu).min(self.mtu)
            }
            _ => self.mtu,
        }
    }

    /// What the packet is taken as, if it is the expected one and nothing is in its way.
    fn after(&self, operation: &Operation, payload: u32) -> Option<Option<Partial>> {
        let send = matches!(self.partial, Some(Partial::Send));
        let left = match self.partial {
            Some(Partial::Write { left }) => left,
            _ => 0,
        };
        let (full, some) = (payload == self.mtu, (1..=self.mtu).contains(&payload));
        let longest = 1 << 31;
        match operation {
            Operation::SendMiddle if send && full => Some(Some(Partial::Send)),
            Operation::SendLast { .. } if send && some => Some(None),
            Operation::WriteMiddle if full && left > payload.into() => Some(Some(Partial::Write {
                left: left - u64::from(payload),
            })),
            Operation::WriteLast { .. } if some && left == payload.into() => Some(None),
            _ if self.partial.is_some() => None,
            Operation::SendFirst if full => Some(Some(Partial::Send)),
            Operation::SendOnly { .. } if payload <= self.mtu => Some(None),
            Operation::WriteFirst { target }
                if full && target.bytes > payload && target.bytes <= longest =>
            {
                Some(Some(Partial::Write {
                    left: u64::from(target.bytes - payload),
                }))
            }
            Operation::WriteOnly { target, .. }
                if target.bytes == payload && payload <= self.mtu =>
            {
                Some(None)
            }
            Operation::ReadRequest { source } if source.bytes <= longest => Some(None),
            Operation::CompareAndSwap { target, .. } | Operation::FetchAdd { target, .. }
                if target.address.is_multiple_of(8) =>
            {
                Some(None)
            }
            _ => None,
        }
    }

    fn handle(&mut self, header: &Header, payload: u32) -> Verdict {
        self.target.effects = Effects::default();
        let bytes = [0x5a; 4_100];
        let verdict = self
            .responder
            .handle(header, &bytes[..payload as usize], &mut self.target);
        let distance = header.psn.distance_from(self.expected);
        let effects = self.target.effects;
        let nothing = Effects {
            checks: effects.checks,
            ..Effects::default()
        };
        if header.operation.is_response() || header.service != Service::Reliable || self.failed {
            assert_eq!((verdict, effects), (Verdict::Dropped, Effects::default()));
            return verdict;
        }
        assert!(effects.checks <= 1, "{effects:?}");
        match verdict {
            Verdict::Taken => self.taken(header, payload),
            Verdict::Duplicate => {
                assert!(distance < 0 && effects == nothing, "{effects:?}");
                let atomic = matches!(
                    header.operation,
                    Operation::CompareAndSwap { .. } | Operation::FetchAdd { .. }
                );
                assert!(!atomic || self.kept.contains(&header.psn.value()));
            }
            Verdict::Gap => assert!(distance > 0 && effects == Effects::default()),
            Verdict::Dropped | Verdict::NotReady => {
                assert!(distance <= 0 && effects == nothing, "{effects:?}");
            }
            Verdict::Refused(refusal) => {
                let legal = self.after(&header.operation, payload).is_some();
                assert!(distance == 0 && (legal || refusal == Refusal::InvalidRequest));
                assert_eq!(
                    (effects.writes, effects.atomics, effects.delivered),
                    (0, 0, 0)
                );
                assert!(self.target.current.is_none(), "its RECEIVE is over");
                self.failed = true;
            }
        }
        assert_eq!(self.responder.is_failed(), self.failed);
        verdict
    }

    fn taken(&mut self, header: &Header, payload: u32) {
        let effects = self.target.effects;
        assert_eq!(header.psn, self.expected);
        self.partial = self
            .after(&header.operation, payload)
            .expect("a packet that may come here");
        let receiving = matches!(self.partial, Some(Partial::Send));
        assert_eq!(self.target.current.is_some(), receiving);
        let each = [
            effects.writes,
            effects.atomics,
            effects.taken,
            effects.filled,
            effects.delivered,
        ];
        assert!(each.iter().all(|count| *count <= 1) && effects.failed == 0);
        let mut packets = 1;
        match header.operation {
            Operation::ReadRequest { source } => {
                packets = source.bytes.div_ceil(self.mtu).max(1);
                self.half_around |= packets > PSN_COUNT / 4;
            }
            Operation::CompareAndSwap { .. } | Operation::FetchAdd { .. } => {
                assert_eq!(effects.atomics, 1);
                self.originals
                    .insert(header.psn.value(), self.target.original);
                self.kept.push_back(header.psn.value());
                if self.kept.len() > self.reads {
                    self.kept.pop_front();
                }
            }
            _ => {}
        }
        self.expected = self.expected.plus(packets);
        self.acknowledged = false;
    }

    /// Sends up to so many packets.
    fn poll(&mut self, packets: usize) {
        for _ in 0..packets {
            let Some(response) = self.responder.poll_transmit() else {
                return;
            };
            assert_eq!(self.responder.poll_transmit(), Some(response));
            let range = response.payload.map(|payload| payload.range);
            packets::crosses_the_wire(&response.header, range.map_or(0, |range| range.bytes));
            self.said(&response.header, range);
            self.responder.sent();
        }
    }

    fn said(&mut self, header: &Header, range: Option<RemoteRange>) {
        let distance = header.psn.distance_from(self.expected);
        self.acknowledged = false;
        if let Some(range) = range {
            assert!(range.bytes > 0 && range.bytes <= self.mtu);
            assert!(self.target.readable.iter().any(|granted| {
                let offset = range.address.wrapping_sub(granted.address);
                let end = offset.saturating_add(range.bytes.into());
                granted.key == range.key && end <= granted.bytes.into()
            }));
        }
        match header.operation {
            Operation::Acknowledge { acknowledgement } => {
                let positive = matches!(acknowledgement.syndrome, Syndrome::Acknowledged(_));
                self.acknowledged = positive && distance == -1;
                let limit = if positive { -1 } else { 0 };
                assert!(distance <= limit || self.half_around, "{header:?}");
            }
            Operation::AtomicAcknowledge { original, .. } => {
                let found = self.originals.get(&header.psn.value());
                assert!(found == Some(&original) || self.half_around);
            }
            _ => assert!(header.operation.is_response()),
        }
    }

    /// Memory went away while a READ of it is being answered.
    fn fail_read(&mut self) {
        self.responder.fail_read();
        self.failed |= self.responder.is_failed();
    }

    /// What is waiting to be said is bounded, and an honest peer that takes over is served.
    fn end(&mut self) {
        let mut answers = 0;
        for _ in 0..DRAINED_PACKETS {
            let Some(response) = self.responder.poll_transmit() else {
                break;
            };
            answers += usize::from(!matches!(
                response.header.operation,
                Operation::ReadResponseMiddle | Operation::ReadResponseLast { .. }
            ));
            self.poll(1);
        }
        assert!(answers <= 2 * self.reads + 1, "{answers} answers waited");
        while self.responder.poll_transmit().is_some() && !self.failed {
            self.fail_read();
            self.poll(DRAINED_PACKETS);
        }
        self.target.receives = 100;
        self.target.capacity = 1 << 40;
        self.target.revoked = false;
        self.target.broken_receives = false;
        if self.failed || !self.finish_message() {
            return;
        }
        let source = RemoteRange {
            address: 0x1000,
            key: 4,
            bytes: self.mtu + 1,
        };
        let target = AtomicTarget {
            address: 0x1000,
            key: 4,
        };
        self.honest(Operation::ReadRequest { source }, 0);
        self.poll(1);
        self.poll(1);
        assert_eq!(self.responder.poll_transmit(), None);
        self.honest(Operation::FetchAdd { target, add: 1 }, 0);
        self.poll(1);
        assert_eq!(self.responder.poll_transmit(), None);
        self.honest(Operation::SendOnly { immediate: None }, 1);
        self.poll(1);
        assert!(self.acknowledged);
        assert_eq!(self.responder.poll_transmit(), None);
    }

    /// Sends the rest of a message that has begun, unless that is long.
    fn finish_message(&mut self) -> bool {
        for _ in 0..20 {
            let immediate = None;
            match self.partial {
                _ if self.failed => return false,
                None => return true,
                Some(Partial::Send) => self.honest(Operation::SendLast { immediate }, 1),
                Some(Partial::Write { left }) if left <= self.mtu.into() => {
                    self.honest(Operation::WriteLast { immediate }, left as u32);
                }
                Some(Partial::Write { .. }) => self.honest(Operation::WriteMiddle, self.mtu),
            }
            self.poll(1);
        }
        self.partial.is_none()
    }

    /// A packet with nothing in its way is taken.
    fn honest(&mut self, operation: Operation, payload: u32) {
        let mut none = Choices::new(&[]);
        let mut header = packets::header(&mut none, operation, self.expected);
        header.acknowledge = true;
        let verdict = self.handle(&header, payload);
        // A RECEIVE that was taken before may be too short for what is left of its message.
        let short = matches!(operation, Operation::SendLast { .. });
        if !(short && matches!(verdict, Verdict::Refused(_))) {
            assert_eq!(verdict, Verdict::Taken, "{operation:?}");
        }
    }
}
