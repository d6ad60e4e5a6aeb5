//! Two honest ends, and packets from elsewhere besides theirs: to the responder with other numbers than it expects, to
//! the requester with what changes nothing but the time. All requests end well, each carried out once.

use std::collections::VecDeque;

use dunlin_roce::packet::{Header, Operation, Psn, Refusal, Syndrome, PSN_COUNT};
use dunlin_roce::reliable::{
    Request, Requester, RequesterConfig, Responder, ResponderConfig, Verb, Verdict,
};
use dunlin_verbs::CompletionStatus;

use super::choices::Choices;
use super::packets;
use super::watched::{Effects, Watched};

/// What all requests do together.
#[derive(Debug, Default, PartialEq, Eq)]
struct Deeds {
    delivered: u32,
    atomics: u32,
    written_packets: u32,
}

struct Run {
    mtu: u32,
    requester: Requester,
    responder: Responder,
    target: Watched,
    expected: Psn,
    to_responder: VecDeque<(Header, u32)>,
    to_requester: VecDeque<(Header, u32)>,
    planned: Deeds,
    done: Deeds,
    ids: u64,
    ended: u64,
    now: u64,
}

/// Plays what `bytes` choose.
pub(crate) fn packets_from_elsewhere(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let mut run = Run::new(&mut choices);
    while !choices.is_empty() {
        match choices.below(8) {
            0 | 1 => run.post(&mut choices),
            2 => run.target.receives += 1,
            3 => run.elsewhere_to_responder(&mut choices),
            4 => run.elsewhere_to_requester(&mut choices),
            _ => _ = run.step(),
        }
    }
    run.target.receives = u32::MAX;
    let mut idle = 0;
    while run.ended < run.ids {
        idle = if run.step() { 0 } else { idle + 1 };
        assert!(idle < 100, "it goes on for ever");
    }
    assert_eq!(run.done, run.planned);
}

impl Run {
    fn new(choices: &mut Choices) -> Self {
        let first = Psn::new(choices.one_of(&[0, PSN_COUNT - 9, PSN_COUNT / 2, 77]));
        let mtu = 256;
        let reads = 1 + choices.below(3);
        let mut target = Watched::default();
        target.capacity = 1 << 40;
        Self {
            mtu,
            requester: Requester::new(RequesterConfig {
                peer_queue_pair: 17,
                first_psn: first,
                mtu_bytes: mtu,
                window_packets: choices.one_of(&[2, 5, 16, 300]),
                requests: 8,
                max_outstanding_reads: reads,
                timeout_ns: 1_000_000,
                retry_count: u8::MAX,
                receiver_not_ready_retries: 7,
                asks_for_each: true,
            }),
            responder: Responder::new(ResponderConfig {
                peer_queue_pair: 18,
                first_psn: first,
                mtu_bytes: mtu,
                max_outstanding_reads: reads,
                receiver_not_ready_timer_ns: 10_000,
            }),
            target,
            expected: first,
            to_responder: VecDeque::new(),
            to_requester: VecDeque::new(),
            planned: Deeds::default(),
            done: Deeds::default(),
            ids: 0,
            ended: 0,
            now: 0,
        }
    }

    fn post(&mut self, choices: &mut Choices) {
        let immediate = choices.one_in(2).then_some(3);
        let (address, key) = (0x1000, 4);
        let target = dunlin_roce::packet::AtomicTarget { address, key };
        let bytes = choices.one_of(&[0u32, 1, 255, 256, 257, 700, 3_000]);
        let mut plan = Deeds::default();
        let (verb, bytes) = match choices.below(5) {
            0 => {
                plan.delivered = 1;
                (Verb::Send { immediate }, bytes)
            }
            1 => {
                plan.delivered = immediate.is_some().into();
                plan.written_packets = bytes.div_ceil(self.mtu);
                let verb = Verb::Write {
                    address,
                    key,
                    immediate,
                };
                (verb, bytes)
            }
            2 | 3 => (Verb::Read { address, key }, bytes),
            _ => {
                plan.atomics = 1;
                (Verb::FetchAdd { target, add: 1 }, 8)
            }
        };
        let request = Request {
            id: self.ids,
            verb,
            bytes,
            fence: choices.one_in(4),
            prompt: true,
            solicited: false,
        };
        if self.requester.post(request).is_ok() {
            self.ids += 1;
            self.planned.delivered += plan.delivered;
            self.planned.atomics += plan.atomics;
            self.planned.written_packets += plan.written_packets;
        }
    }

    fn elsewhere_to_responder(&mut self, choices: &mut Choices) {
        let ahead = match choices.below(4) {
            0 => 1 + choices.below(20) as u32,
            1 => PSN_COUNT / 2,
            _ => PSN_COUNT - 1 - choices.below(20) as u32,
        };
        let operation = match packets::request(choices, self.mtu) {
            // The answers to these take long, and nothing else.
            Operation::ReadRequest { source } if source.bytes > 5 * self.mtu => return,
            other => other,
        };
        let payload = packets::length(choices, self.mtu).min(4_100);
        let header = packets::header(choices, operation, self.expected.plus(ahead));
        let verdict = self.respond(&header, payload);
        assert!(matches!(
            verdict,
            Verdict::Duplicate | Verdict::Gap | Verdict::Dropped
        ));
    }

    fn elsewhere_to_requester(&mut self, choices: &mut Choices) {
        let behind = choices.below(40) as u32;
        let acknowledgement = match choices.below(3) {
            // What was carried out may be acknowledged by anybody.
            0 => Syndrome::Acknowledged(0),
            1 => Syndrome::ReceiverNotReady(1),
            _ => Syndrome::Refused(Refusal::SequenceError),
        };
        let mut header = packets::header(
            choices,
            Operation::Acknowledge {
                acknowledgement: dunlin_roce::packet::Acknowledgement {
                    syndrome: acknowledgement,
                    messages: 0,
                },
            },
            self.expected.plus(PSN_COUNT - 1 - behind),
        );
        if choices.one_in(8) {
            // So much was never sent.
            header.psn = self.expected.plus(PSN_COUNT / 4 + behind);
        }
        self.requester.handle(self.now, &header, 0);
    }

    fn respond(&mut self, header: &Header, payload: u32) -> Verdict {
        self.target.effects = Effects::default();
        let bytes = [1; 4_100];
        let verdict = self
            .responder
            .handle(header, &bytes[..payload as usize], &mut self.target);
        assert!(!self.responder.is_failed(), "{header:?}");
        let effects = self.target.effects;
        self.done.delivered += effects.delivered;
        self.done.atomics += effects.atomics;
        self.done.written_packets += effects.writes;
        if verdict == Verdict::Taken {
            let packets = match header.operation {
                Operation::ReadRequest { source } => source.bytes.div_ceil(self.mtu).max(1),
                _ => 1,
            };
            self.expected = self.expected.plus(packets);
        }
        verdict
    }

    /// One packet in each direction, or else the next deadline. Says whether anything has ended or been carried out.
    fn step(&mut self) -> bool {
        let before = (self.ended, self.expected);
        if let Some(transmit) = self.requester.poll_transmit(self.now) {
            self.to_responder
                .push_back((transmit.header, transmit.bytes));
        }
        if let Some(response) = self.responder.poll_transmit() {
            let bytes = response.payload.map_or(0, |payload| payload.range.bytes);
            self.to_requester.push_back((response.header, bytes));
            self.responder.sent();
        }
        let idle = self.to_responder.is_empty() && self.to_requester.is_empty();
        if let Some((header, bytes)) = self.to_responder.pop_front() {
            self.respond(&header, bytes);
        }
        if let Some((header, bytes)) = self.to_requester.pop_front() {
            self.requester.handle(self.now, &header, bytes as usize);
        }
        if idle {
            if let Some(deadline) = self.requester.deadline_ns() {
                self.now = self.now.max(deadline);
                self.requester.handle_timeout(self.now);
            }
        }
        while let Some(finished) = self.requester.poll_finished() {
            assert_eq!(finished.id, self.ended);
            assert_eq!(finished.status, CompletionStatus::Success);
            self.ended += 1;
        }
        before != (self.ended, self.expected)
    }
}
