//! A requester whose peer answers whatever it likes.

use std::collections::VecDeque;

use dunlin_roce::packet::{
    Acknowledgement, AtomicTarget, Header, Operation, Psn, Syndrome, PSN_COUNT,
};
use dunlin_roce::reliable::{
    PostError, ReadPlacement, Request, Requester, RequesterConfig, Transmit, Verb,
};
use dunlin_verbs::CompletionStatus;

use super::choices::Choices;
use super::packets;

const REQUESTS: usize = 8;
const TIMEOUT_NS: u64 = 1_000_000;
/// Packets that are sent at once; a window may be much longer.
const BURST: u32 = 200;
/// Packets that an honest peer answers at the end of a run; what is longer meets silence.
const ANSWERED_PACKETS: u64 = 2_000;

/// A request that has not ended, as who posted it sees it.
#[derive(Debug)]
struct Posted {
    request: Request,
    first: u64,
    packets: u64,
    placed: u32,
    answered: bool,
}

struct Run {
    config: RequesterConfig,
    requester: Requester,
    posted: VecDeque<Posted>,
    ids: u64,
    /// The number after all that was posted, and after all that was ever sent.
    end: u64,
    sent: u64,
    /// All before it has ended.
    ended: u64,
    /// The number after the last packet that the peer has said anything of.
    claimed: u64,
    now: u64,
    timeouts: u8,
    /// Whether a request ended otherwise than it should.
    error: bool,
}

/// Plays what `bytes` choose, on new connections after those that fail.
pub(crate) fn hostile_responder(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    while !choices.is_empty() {
        let honest = choices.one_in(2);
        let mut run = Run::new(&mut choices, honest);
        let mut after_failure = 0;
        while !choices.is_empty() && after_failure < 5 {
            after_failure += u32::from(run.requester.is_failed());
            run.step(&mut choices);
        }
        run.end(honest);
    }
}

impl Run {
    fn new(choices: &mut Choices, honest: bool) -> Self {
        let mut config = RequesterConfig {
            peer_queue_pair: 17,
            first_psn: Psn::new(choices.one_of(&[0, PSN_COUNT - 3, PSN_COUNT / 2, 77])),
            mtu_bytes: choices.one_of(&[256, 256, 1024, 4096]),
            window_packets: choices.one_of(&[2, 3, 4, 7, 16, 64, 1000, u32::MAX]),
            requests: REQUESTS,
            max_outstanding_reads: choices.one_of(&[1, 1, 2, 4]),
            timeout_ns: TIMEOUT_NS,
            retry_count: choices.one_of(&[0, 1, 7]),
            receiver_not_ready_retries: choices.one_of(&[0, 1, 7]),
            asks_for_each: true,
        };
        if honest {
            // What was tried before the peer was honest is no reason to give up.
            config.retry_count = u8::MAX;
            config.receiver_not_ready_retries = 7;
        }
        Self {
            requester: Requester::new(config),
            config,
            posted: VecDeque::new(),
            ids: 0,
            end: 0,
            sent: 0,
            ended: 0,
            claimed: 0,
            now: 0,
            timeouts: 0,
            error: false,
        }
    }

    fn step(&mut self, choices: &mut Choices) {
        match choices.below(16) {
            0..=2 => self.post(choices),
            3 | 4 => drop(self.transmit(1)),
            5 | 6 => drop(self.transmit(BURST)),
            7 => self.finished(choices.below(4)),
            8 => {
                self.now += choices.one_of(&[0, 1, 10_000, TIMEOUT_NS, 700_000_000]);
                self.timeouts = self.timeouts.saturating_add(1);
                if self.timeouts < u8::MAX {
                    self.requester.handle_timeout(self.now);
                }
            }
            9 => match choices.byte() {
                255 => self.requester.fail(CompletionStatus::RetryExceeded),
                0..100 => self.requester.handle_congestion(),
                _ => self.response(choices),
            },
            10..=12 => self.fitting(),
            _ => self.response(choices),
        }
    }

    fn packets_of(&self, bytes: u32) -> u64 {
        u64::from(bytes.div_ceil(self.config.mtu_bytes).max(1))
    }

    fn post(&mut self, choices: &mut Choices) {
        let target = AtomicTarget {
            address: packets::address(choices),
            key: packets::key(choices),
        };
        let AtomicTarget { address, key } = target;
        let immediate = choices.one_in(2).then_some(3);
        let verb = match choices.below(8) {
            0 | 1 => Verb::Send { immediate },
            2 | 3 => Verb::Write {
                address,
                key,
                immediate,
            },
            4..=6 => Verb::Read { address, key },
            _ => Verb::FetchAdd { target, add: 1 },
        };
        let atomic = matches!(verb, Verb::FetchAdd { .. });
        let bytes = match packets::length(choices, self.config.mtu_bytes) {
            odd if atomic && odd % 2 == 1 => odd,
            _ if atomic => 8,
            bytes => bytes,
        };
        let request = Request {
            id: self.ids,
            verb,
            bytes,
            fence: choices.one_in(4),
            prompt: true,
            solicited: choices.one_in(4),
        };
        match self.requester.post(request) {
            Ok(()) => {}
            Err(PostError::Full(_)) => return assert_eq!(self.posted.len(), REQUESTS),
            Err(PostError::TooLong(_)) => return assert!(bytes > 1 << 31),
            Err(PostError::AtomicLength(_)) => return assert!(atomic && bytes != 8),
        }
        self.ids += 1;
        let packets = match atomic {
            true => 1,
            false => self.packets_of(bytes),
        };
        self.posted.push_back(Posted {
            request,
            first: self.end,
            packets,
            placed: 0,
            answered: false,
        });
        self.end += packets;
        assert!(self.posted.len() <= REQUESTS);
    }

    /// Takes up to so many packets.
    fn transmit(&mut self, packets: u32) -> Vec<Transmit> {
        let mut taken = Vec::new();
        while let Some(transmit) = self.requester.poll_transmit(self.now) {
            assert!(!self.requester.is_failed());
            self.is_of_its_request(&transmit);
            taken.push(transmit);
            // An end that never comes would fill the memory.
            assert!(taken.len() <= self.config.window_packets.min(1 << 22) as usize);
            if taken.len() >= packets as usize {
                break;
            }
        }
        taken
    }

    fn is_of_its_request(&mut self, transmit: &Transmit) {
        let mtu = self.config.mtu_bytes;
        packets::crosses_the_wire(&transmit.header, transmit.bytes);
        let at = self
            .posted
            .iter()
            .position(|one| one.request.id == transmit.id)
            .expect("a request that has not ended");
        let one = &self.posted[at];
        assert_eq!(transmit.offset % mtu, 0);
        let first = one.first + u64::from(transmit.offset / mtu);
        assert_eq!(
            transmit.header.psn,
            self.config.first_psn.plus(first as u32)
        );
        let (left, bytes) = (one.request.bytes - transmit.offset, transmit.bytes);
        let mut end = first + 1;
        match (transmit.header.operation, one.request.verb) {
            (Operation::ReadRequest { source }, Verb::Read { address, key }) => {
                let from = address.wrapping_add(transmit.offset.into());
                assert_eq!((source.address, source.key), (from, key));
                assert!(source.bytes <= left && (source.bytes > 0 || one.request.bytes == 0));
                end = first + self.packets_of(source.bytes);
            }
            (Operation::FetchAdd { .. }, Verb::FetchAdd { .. }) => assert_eq!(bytes, 0),
            (
                Operation::SendFirst | Operation::SendMiddle | Operation::WriteMiddle,
                Verb::Send { .. } | Verb::Write { .. },
            ) => assert!(bytes == mtu && left > mtu),
            (Operation::SendOnly { .. } | Operation::SendLast { .. }, Verb::Send { .. })
            | (Operation::WriteLast { .. }, Verb::Write { .. }) => {
                assert!(bytes == left && bytes <= mtu && transmit.header.acknowledge);
            }
            (
                Operation::WriteFirst { target } | Operation::WriteOnly { target, .. },
                Verb::Write { address, key, .. },
            ) => {
                assert_eq!((target.address, target.key), (address, key));
                assert_eq!(target.bytes, one.request.bytes);
                assert_eq!(bytes, left.min(mtu));
            }
            other => panic!("{other:?}"),
        }
        if one.request.fence && first == one.first {
            let mut before = self.posted.iter().take(at);
            assert!(before.all(|one| one.answered || !is_answered(&one.request)));
        }
        self.sent = self.sent.max(end);
        let window = u64::from(self.config.window_packets.min(1 << 22));
        assert!(self.sent <= self.claimed + window, "beyond the window");
    }

    /// The honest answer to the first packet that is waiting for one.
    fn fitting(&mut self) {
        let Some(one) = self.posted.iter().find(|one| !one.answered) else {
            return;
        };
        let first = one.first + u64::from(one.placed / self.config.mtu_bytes);
        let header = answer(&one.request, self.config.first_psn.plus(first as u32));
        let left = one.request.bytes - one.placed;
        let bytes = match one.request.verb {
            Verb::Read { .. } => left.min(self.config.mtu_bytes),
            _ => 0,
        };
        self.handle(&header, bytes);
    }

    fn response(&mut self, choices: &mut Choices) {
        let base = match choices.below(8) {
            0..=4 => self.ended,
            5 | 6 => self.sent,
            _ => self.sent.wrapping_add(choices.word().into()),
        };
        let step = u64::from(choices.one_of(&[0u32, 0, 1, 1, 2, 3, 5, 9]));
        let sequence = match choices.below(4) {
            0 => base.wrapping_sub(step),
            _ => base.wrapping_add(step),
        };
        let half = choices.byte() == 255;
        let psn =
            self.config
                .first_psn
                .plus(sequence as u32)
                .plus(if half { PSN_COUNT / 2 } else { 0 });
        let operation = match choices.one_in(20) {
            true => packets::request(choices, self.config.mtu_bytes),
            false => packets::response(choices),
        };
        let header = packets::header(choices, operation, psn);
        let payload = match operation.has_payload() {
            true => packets::length(choices, self.config.mtu_bytes),
            false => 0,
        };
        self.handle(&header, payload);
    }

    fn handle(&mut self, header: &Header, payload: u32) {
        let failed = self.requester.is_failed();
        let ended = self.config.first_psn.plus(self.ended as u32);
        let claimed = self.ended as i64 + i64::from(header.psn.distance_from(ended)) + 1;
        if (0..=self.sent as i64).contains(&claimed) {
            self.claimed = self.claimed.max(claimed as u64);
        }
        let placement = self.requester.handle(self.now, header, payload as usize);
        assert!(!(failed && placement.is_some()));
        match placement {
            None => {}
            Some(ReadPlacement::Bytes { id, offset }) => {
                let mtu = self.config.mtu_bytes;
                let one = self.unanswered(id);
                assert!(matches!(one.request.verb, Verb::Read { .. }));
                assert_eq!(offset, one.placed, "answers come in order");
                assert_eq!(payload, (one.request.bytes - offset).min(mtu));
                one.placed += payload;
                one.answered = one.placed == one.request.bytes;
            }
            Some(ReadPlacement::Value { id, .. }) => {
                let one = self.unanswered(id);
                assert!(matches!(one.request.verb, Verb::FetchAdd { .. }));
                one.answered = true;
            }
        }
    }

    fn unanswered(&mut self, id: u64) -> &mut Posted {
        let mut posted = self.posted.iter_mut();
        let one = posted
            .find(|one| one.request.id == id)
            .expect("a request that has not ended");
        assert!(!one.answered && one.first < self.sent);
        one
    }

    /// Takes up to so many completions.
    fn finished(&mut self, completions: usize) {
        for _ in 0..completions {
            let Some(finished) = self.requester.poll_finished() else {
                return;
            };
            let one = self.posted.pop_front().expect("a request that was posted");
            assert_eq!(finished.id, one.request.id, "in the order of posting");
            self.ended = one.first + one.packets;
            match finished.status {
                CompletionStatus::Success => {
                    assert!(!self.error, "nothing succeeds after a failure");
                    assert!(self.ended <= self.sent, "it was sent");
                    assert!(one.answered || !is_answered(&one.request));
                }
                CompletionStatus::Flushed => {
                    assert!(self.requester.is_failed());
                    self.error = true;
                }
                _ => {
                    assert!(self.requester.is_failed());
                    self.error = true;
                }
            }
        }
    }

    /// Whatever came before, all requests end: with an honest peer well, with a silent one in time.
    fn end(&mut self, honest: bool) {
        self.finished(REQUESTS);
        let failed = self.requester.is_failed();
        let honest = honest && self.end - self.ended <= ANSWERED_PACKETS;
        // Each round gets a packet answered or passes a deadline.
        for _ in 0..2 * ANSWERED_PACKETS {
            let transmits = self.transmit(BURST);
            if honest {
                for transmit in &transmits {
                    self.answer(transmit);
                }
            }
            self.finished(REQUESTS);
            if self.posted.is_empty() {
                break;
            }
            if transmits.is_empty() || !honest {
                let deadline = self.requester.deadline_ns();
                self.now = self.now.max(deadline.expect("something to wait for"));
                self.requester.handle_timeout(self.now);
            }
        }
        assert!(self.posted.is_empty(), "{:?}", self.posted);
        assert!(!honest || failed || !self.requester.is_failed());
        assert_eq!(self.requester.poll_finished(), None);
        assert_eq!(self.requester.poll_transmit(self.now), None);
        if self.requester.is_failed() {
            assert_eq!(self.requester.deadline_ns(), None);
        }
    }

    fn answer(&mut self, transmit: &Transmit) {
        let posted = self.posted.iter().find(|one| one.request.id == transmit.id);
        let Some(request) = posted.map(|one| one.request) else {
            return;
        };
        let mtu = self.config.mtu_bytes;
        let bytes = match transmit.header.operation {
            Operation::ReadRequest { source } => source.bytes,
            _ => 0,
        };
        for packet in 0..self.packets_of(bytes) as u32 {
            let header = answer(&request, transmit.header.psn.plus(packet));
            self.handle(&header, (bytes - packet * mtu).min(mtu));
        }
    }
}

fn is_answered(request: &Request) -> bool {
    matches!(request.verb, Verb::Read { .. } | Verb::FetchAdd { .. })
}

/// The honest answer to a packet of the request.
fn answer(request: &Request, psn: Psn) -> Header {
    let acknowledgement = Acknowledgement {
        syndrome: Syndrome::Acknowledged(31),
        messages: 0,
    };
    let operation = match request.verb {
        Verb::Read { .. } => Operation::ReadResponseOnly { acknowledgement },
        Verb::FetchAdd { .. } => Operation::AtomicAcknowledge {
            acknowledgement,
            original: 5,
        },
        _ => Operation::Acknowledge { acknowledgement },
    };
    packets::header(&mut Choices::new(&[]), operation, psn)
}
