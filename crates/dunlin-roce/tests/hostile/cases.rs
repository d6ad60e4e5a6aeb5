//! Single answers to single packets, at the limits.

use dunlin_roce::packet::{
    Acknowledgement, AtomicTarget, Header, Operation, Psn, Refusal, RemoteRange, Service, Syndrome,
    PSN_COUNT,
};
use dunlin_roce::reliable::{
    ReadPlacement, Request, Requester, RequesterConfig, Responder, ResponderConfig, Verb, Verdict,
};
use dunlin_verbs::CompletionStatus;

use super::choices::Choices;
use super::packets;
use super::watched::{Effects, Watched};

const MTU: u32 = 256;
const RANGE: RemoteRange = RemoteRange {
    address: 0x1000,
    key: 4,
    bytes: 8,
};
const PLACE: AtomicTarget = AtomicTarget {
    address: 0x1000,
    key: 4,
};

fn header(operation: Operation, psn: u32) -> Header {
    packets::header(&mut Choices::new(&[]), operation, Psn::new(psn))
}

/// Of the requester.
const RETRIES: u8 = 3;

fn responder() -> (Responder, Watched) {
    let responder = Responder::new(ResponderConfig {
        peer_queue_pair: 18,
        first_psn: Psn::new(0),
        mtu_bytes: MTU,
        max_outstanding_reads: 4,
        receiver_not_ready_timer_ns: 10_000,
    });
    let mut target = Watched::default();
    (target.receives, target.capacity) = (1, 1 << 40);
    (responder, target)
}

fn requester() -> Requester {
    requester_with_timeout(1_000_000)
}

fn requester_with_timeout(timeout_ns: u64) -> Requester {
    Requester::new(RequesterConfig {
        peer_queue_pair: 17,
        first_psn: Psn::new(0),
        mtu_bytes: MTU,
        window_packets: 16,
        requests: 4,
        max_outstanding_reads: 4,
        timeout_ns,
        retry_count: RETRIES,
        receiver_not_ready_retries: 3,
        asks_for_each: true,
    })
}

fn read(bytes: u32) -> Operation {
    let source = RemoteRange { bytes, ..RANGE };
    Operation::ReadRequest { source }
}

fn says(acknowledgement: Syndrome) -> Operation {
    let acknowledgement = Acknowledgement {
        syndrome: acknowledgement,
        messages: 0,
    };
    Operation::Acknowledge { acknowledgement }
}

/// The next packet that a responder sends.
fn next(responder: &mut Responder) -> Option<(u32, Operation)> {
    let response = responder.poll_transmit()?;
    responder.sent();
    Some((response.header.psn.value(), response.header.operation))
}

#[test]
fn what_cannot_begin_a_message_is_refused_once_and_all_after_it_dropped() {
    let immediate = None;
    let huge = RemoteRange {
        bytes: (1 << 31) + 1,
        ..RANGE
    };
    let odd = AtomicTarget {
        address: 0x1004,
        key: 4,
    };
    let cases = [
        (Operation::SendMiddle, MTU),
        (Operation::SendLast { immediate }, 1),
        (Operation::WriteMiddle, MTU),
        (Operation::WriteLast { immediate }, 1),
        (Operation::SendFirst, MTU - 1),
        (Operation::SendOnly { immediate }, MTU + 1),
        // The first of several packets, and there is nothing left for the others.
        (Operation::WriteFirst { target: RANGE }, 8),
        (Operation::WriteFirst { target: huge }, MTU),
        (
            Operation::WriteOnly {
                target: RANGE,
                immediate,
            },
            7,
        ),
        (read(u32::MAX), 0),
        (read((1 << 31) + 1), 0),
        (
            Operation::FetchAdd {
                target: odd,
                add: 1,
            },
            0,
        ),
    ];
    for (operation, bytes) in cases {
        let (mut responder, mut target) = responder();
        let payload = vec![0; bytes as usize];
        let verdict = responder.handle(&header(operation, 0), &payload, &mut target);
        let refusal = Refusal::InvalidRequest;
        assert_eq!(verdict, Verdict::Refused(refusal), "{operation:?}");
        assert_eq!(target.effects, Effects::default(), "{operation:?}");
        assert!(matches!(
            next(&mut responder),
            Some((0, Operation::Acknowledge { acknowledgement }))
                if acknowledgement.syndrome == Syndrome::Refused(refusal)
        ));
        for psn in [0, 1, PSN_COUNT - 1] {
            let send = header(Operation::SendOnly { immediate }, psn);
            assert_eq!(responder.handle(&send, &[], &mut target), Verdict::Dropped);
        }
        assert_eq!(next(&mut responder), None);
    }
}

#[test]
fn numbers_half_the_space_away_are_before_and_one_less_is_behind_a_gap() {
    let (mut responder, mut target) = responder();
    let send = Operation::SendOnly { immediate: None };
    let mut verdict = |psn| responder.handle(&header(send, psn), &[], &mut target);
    assert_eq!(verdict(PSN_COUNT / 2), Verdict::Duplicate);
    assert_eq!(verdict(PSN_COUNT / 2 - 1), Verdict::Gap);
    assert_eq!(verdict(PSN_COUNT / 2 - 1), Verdict::Gap);
    assert_eq!(verdict(PSN_COUNT - 1), Verdict::Duplicate);
    assert_eq!(verdict(0), Verdict::Taken);
    assert_eq!(verdict(0), Verdict::Duplicate);
}

#[test]
fn a_packet_of_another_transport_is_nobodys() {
    let (mut responder, mut target) = responder();
    let send = Operation::SendOnly { immediate: None };
    let datagram = Service::Datagram {
        queue_key: 0,
        source_queue_pair: 1,
    };
    for service in [Service::Unreliable, datagram] {
        let header = Header {
            service,
            ..header(send, 0)
        };
        let verdict = responder.handle(&header, &[], &mut target);
        assert_eq!(verdict, Verdict::Dropped);
    }
    assert_eq!(target.receives, 1);
}

#[test]
fn a_read_of_no_bytes_needs_no_key_and_is_answered_without_looking_at_memory() {
    let (mut responder, mut target) = responder();
    let source = RemoteRange {
        address: u64::MAX,
        key: 0,
        bytes: 0,
    };
    for _ in 0..2 {
        responder.handle(
            &header(Operation::ReadRequest { source }, 0),
            &[],
            &mut target,
        );
        let response = responder.poll_transmit().expect("an answer");
        assert_eq!(response.payload, None);
        responder.sent();
    }
    assert_eq!(target.effects, Effects::default());
}

#[test]
fn the_longest_read_takes_half_the_numbers_and_is_known_when_it_comes_again() {
    let (mut responder, mut target) = responder();
    let long = header(read(1 << 31), 0);
    assert_eq!(responder.handle(&long, &[], &mut target), Verdict::Taken);
    assert_eq!(
        responder.handle(&long, &[], &mut target),
        Verdict::Duplicate
    );
    let behind = header(Operation::SendOnly { immediate: None }, PSN_COUNT / 2);
    assert_eq!(responder.handle(&behind, &[], &mut target), Verdict::Taken);
}

#[test]
fn an_atomic_is_answered_with_its_own_value_after_the_numbers_have_wrapped() {
    let (mut responder, mut target) = responder();
    target.value = 5;
    let add = header(
        Operation::FetchAdd {
            target: PLACE,
            add: 1,
        },
        0,
    );
    assert_eq!(responder.handle(&add, &[], &mut target), Verdict::Taken);
    for (psn, bytes) in [(1, 1 << 31), (PSN_COUNT / 2 + 1, (1 << 31) - MTU)] {
        let long = header(read(bytes), psn);
        assert_eq!(responder.handle(&long, &[], &mut target), Verdict::Taken);
    }
    while responder.poll_transmit().is_some() {
        responder.sent();
    }
    for _ in 0..2 {
        responder.handle(&add, &[], &mut target);
        assert!(matches!(
            next(&mut responder),
            Some((0, Operation::AtomicAcknowledge { original: 6, .. }))
        ));
    }
    assert_eq!(target.value, 7);
}

/// The READ was answered, its memory went away, and a copy of it that the network had kept comes.
#[test]
fn memory_that_is_gone_before_a_read_is_answered_again_ends_nothing() {
    let (mut responder, mut target) = responder();
    let once = header(read(8), 0);
    assert_eq!(responder.handle(&once, &[], &mut target), Verdict::Taken);
    assert!(next(&mut responder).is_some());
    assert_eq!(
        responder.handle(&once, &[], &mut target),
        Verdict::Duplicate
    );
    responder.fail_read();
    assert!(!responder.is_failed());
    assert_eq!(next(&mut responder), None);
    // The first answer is owed.
    assert_eq!(
        responder.handle(&header(read(8), 1), &[], &mut target),
        Verdict::Taken
    );
    responder.fail_read();
    assert!(responder.is_failed());
    assert!(matches!(
        next(&mut responder),
        Some((1, Operation::Acknowledge { acknowledgement }))
            if acknowledgement.syndrome == Syndrome::Refused(Refusal::RemoteAccess)
    ));
}

#[test]
fn what_was_never_sent_is_not_acknowledged_refused_or_paused() {
    let mut requester = requester();
    let request = Request {
        id: 1,
        verb: Verb::Send { immediate: None },
        bytes: 3 * MTU,
        fence: false,
        prompt: true,
        solicited: false,
    };
    requester.post(request).expect("room");
    assert!(requester.poll_transmit(0).is_some());
    let syndromes = [
        Syndrome::Acknowledged(31),
        Syndrome::ReceiverNotReady(0),
        Syndrome::Refused(Refusal::SequenceError),
        Syndrome::Refused(Refusal::RemoteAccess),
    ];
    for syndrome in syndromes {
        for psn in [1, 2, 3, PSN_COUNT / 2 - 1, PSN_COUNT / 2, PSN_COUNT - 1] {
            assert_eq!(requester.handle(0, &header(says(syndrome), psn), 0), None);
            assert!(!requester.is_failed() && requester.poll_finished().is_none());
        }
    }
    let offsets = std::iter::from_fn(|| requester.poll_transmit(0)).map(|packet| packet.offset);
    assert!(offsets.eq([MTU, 2 * MTU]));
}

#[test]
fn an_answer_that_says_no_is_none() {
    let mut requester = requester();
    let verbs = [
        (Verb::Read { address: 0, key: 0 }, 8),
        (
            Verb::FetchAdd {
                target: PLACE,
                add: 1,
            },
            8,
        ),
    ];
    for (id, (verb, bytes)) in (0..).zip(verbs) {
        let request = Request {
            id,
            verb,
            bytes,
            fence: false,
            prompt: true,
            solicited: false,
        };
        requester.post(request).expect("room");
        assert!(requester.poll_transmit(0).is_some());
    }
    let answer = |syndrome, psn| {
        let acknowledgement = Acknowledgement {
            syndrome,
            messages: 0,
        };
        match psn {
            0 => header(Operation::ReadResponseOnly { acknowledgement }, 0),
            _ => {
                let original = 9;
                let operation = Operation::AtomicAcknowledge {
                    acknowledgement,
                    original,
                };
                header(operation, psn)
            }
        }
    };
    let placements = [
        ReadPlacement::Bytes { id: 0, offset: 0 },
        ReadPlacement::Value { id: 1, original: 9 },
    ];
    for (psn, placement) in (0..).zip(placements) {
        let bytes = 8;
        for no in [
            Syndrome::ReceiverNotReady(0),
            Syndrome::Refused(Refusal::RemoteAccess),
        ] {
            assert_eq!(requester.handle(0, &answer(no, psn), bytes), None);
        }
        let yes = answer(Syndrome::Acknowledged(0), psn);
        assert_eq!(requester.handle(0, &yes, bytes), Some(placement));
    }
}

fn post(requester: &mut Requester, id: u64, verb: Verb) {
    let request = Request {
        id,
        verb,
        bytes: 8,
        fence: false,
        prompt: true,
        solicited: false,
    };
    requester.post(request).expect("room");
}

#[test]
fn a_receiver_is_never_ready_so_many_times_and_copies_of_it_saying_so_do_not_count() {
    let mut requester = requester();
    post(&mut requester, 1, Verb::Send { immediate: None });
    let not_ready = header(says(Syndrome::ReceiverNotReady(1)), 0);
    for _ in 0..3 {
        let now = requester.deadline_ns().unwrap_or(0);
        assert!(requester.poll_transmit(now).is_some());
        for _ in 0..5 {
            requester.handle(now, &not_ready, 0);
        }
        assert_eq!(requester.poll_transmit(now), None);
        assert!(!requester.is_failed());
    }
    let now = requester.deadline_ns().expect("a pause");
    assert!(requester.poll_transmit(now).is_some());
    requester.handle(now, &not_ready, 0);
    let finished = requester.poll_finished().map(|finished| finished.status);
    let status = CompletionStatus::ReceiverNotReadyRetryExceeded;
    assert_eq!(finished, Some(status));
}

#[test]
fn a_refusal_is_of_its_request_and_not_of_a_read_before_it_whose_answer_is_missing() {
    let mut requester = requester();
    let (address, key, immediate) = (0, 0, None);
    post(&mut requester, 0, Verb::Read { address, key });
    post(&mut requester, 1, Verb::Send { immediate });
    post(&mut requester, 2, Verb::Send { immediate });
    while requester.poll_transmit(0).is_some() {}
    let refused = says(Syndrome::Refused(Refusal::RemoteOperation));
    requester.handle(0, &header(refused, 1), 0);
    let finished = std::iter::from_fn(|| requester.poll_finished());
    assert!(finished.map(|finished| (finished.id, finished.status)).eq([
        (0, CompletionStatus::Flushed),
        (1, CompletionStatus::RemoteOperation),
        (2, CompletionStatus::Flushed),
    ]));
}

#[test]
fn an_answer_that_finds_no_place_fails_its_own_request() {
    let acknowledgement = Acknowledgement {
        syndrome: Syndrome::Acknowledged(0),
        messages: 0,
    };
    let answer = header(Operation::ReadResponseOnly { acknowledgement }, 0);
    let mut requester = requester();
    let read = Verb::Read { address: 0, key: 0 };
    post(&mut requester, 0, read);
    post(&mut requester, 1, read);
    while requester.poll_transmit(0).is_some() {}
    assert!(requester.handle(0, &answer, 8).is_some());
    requester.fail_placement(0, CompletionStatus::LocalProtection);
    let finished = std::iter::from_fn(|| requester.poll_finished());
    assert!(finished.map(|finished| (finished.id, finished.status)).eq([
        (0, CompletionStatus::LocalProtection),
        (1, CompletionStatus::Flushed),
    ]));
}

#[test]
fn a_silent_peer_is_asked_again_soon_and_given_up_after_the_configured_time() {
    let timeout_ns = 67_000_000;
    let mut requester = requester_with_timeout(timeout_ns);
    let send = Verb::Send { immediate: None };
    post(&mut requester, 0, send);
    assert!(requester.poll_transmit(0).is_some());
    let acknowledged = header(says(Syndrome::Acknowledged(31)), 0);
    requester.handle(10_000, &acknowledged, 0);
    assert!(requester.poll_finished().is_some());
    let began = 20_000;
    post(&mut requester, 1, send);
    assert!(requester.poll_transmit(began).is_some());
    let first = requester.deadline_ns().expect("a deadline");
    assert!(first - began < timeout_ns / 10, "{first}");
    let mut now = began;
    let mut sent_again = 0;
    while !requester.is_failed() {
        now = requester.deadline_ns().expect("a deadline");
        requester.handle_timeout(now);
        sent_again += u32::from(requester.poll_transmit(now).is_some());
    }
    assert!(sent_again > 2 * u32::from(RETRIES), "{sent_again}");
    assert_eq!(now - began, (u64::from(RETRIES) + 1) * timeout_ns);
}

#[test]
fn an_acknowledgement_is_for_what_has_come_since_it_was_asked_for() {
    let (mut responder, mut target) = responder();
    target.receives = 2;
    let send = Operation::SendOnly { immediate: None };
    for (psn, acknowledge) in [(0, true), (1, false)] {
        let packet = Header {
            acknowledge,
            ..header(send, psn)
        };
        let verdict = responder.handle(&packet, &[7; 8], &mut target);
        assert_eq!(verdict, Verdict::Taken);
    }
    let response = responder.poll_transmit().expect("an acknowledgement");
    assert_eq!(response.header.psn, Psn::new(1));
    responder.sent();
    assert!(responder.poll_transmit().is_none());
}

#[test]
fn an_unasked_acknowledgement_that_finds_no_room_is_not_taken_for_said() {
    let (mut responder, mut target) = responder();
    // Room for twice as many answers as there may be READs, and one more.
    for _ in 0..9 {
        responder.handle(&header(read(8), 0), &[], &mut target);
    }
    let send = header(Operation::SendOnly { immediate: None }, 1);
    assert_eq!(responder.handle(&send, &[], &mut target), Verdict::Taken);
    assert!(!responder.acknowledge_unasked());
    assert!(next(&mut responder).is_some());
    assert!(responder.acknowledge_unasked());
    let last = std::iter::from_fn(|| next(&mut responder)).last();
    assert!(matches!(last, Some((1, Operation::Acknowledge { .. }))));
}
