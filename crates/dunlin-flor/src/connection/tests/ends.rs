//! Tests of messages that do not succeed at the first attempt.

use super::*;

/// A sender with this message, for which the peer has granted memory, and the WRITEs issued for it.
fn written(bytes: u32, tag: u32) -> (Connection, MessageId, Vec<WorkRequest>) {
    let mut sender = connection(modules(1 << 20, 32 << 10));
    let message = sender.submit(0, bytes, tag).unwrap();
    posts(&mut sender, 0);
    sender.completed(1, GlobalNumber(0), Some(1));
    acknowledge(&mut sender, 1, &[AckedNumber::Send(GlobalNumber(0))]);
    grant(&mut sender);
    let writes = posts(&mut sender, 2);
    (sender, message, writes)
}

fn has_bytes(work: &WorkRequest) -> bool {
    match &work.verb {
        Verb::Send { piece, .. } => piece.is_some(),
        Verb::Write { .. } => true,
    }
}

/// Everything that a sender issues until long after the last timeout, each completed immediately; returns what is sent
/// by SEND.
fn until_all_is_late(sender: &mut Connection) -> Vec<WorkRequest> {
    let mut all = Vec::new();
    for round in 1..20 {
        let now_ns = round * 1_000_000_000;
        for work in posts(sender, now_ns) {
            sender.completed(now_ns, work.global, Some(now_ns));
            all.push(work);
        }
    }
    all
}

/// The user has been told that its messages have failed, and may have changed their bytes: neither lost nor unsent
/// bytes are read again, but later SENDs arrive.
#[test]
fn nothing_goes_out_of_messages_that_were_given_up() {
    let (mut sender, large, writes) = written(96 * KB, 0);
    let small = sender.submit(2, KB, 0).unwrap();
    let sent = posts(&mut sender, 2);
    assert_eq!((writes.len(), sent.len()), (3, 1));
    // The first WRITE and the SEND were read; nothing is ever acknowledged.
    let unsent = [
        sender.submit(3, KB, 0).unwrap(),
        sender.submit(3, 40 * KB, 0).unwrap(),
    ];
    sender.completed(3, writes[0].global, Some(3));
    sender.completed(3, sent[0].global, Some(3));
    sender.abandon(|_| true);
    let finished = |message| Action::Finished(message, Err(Failure::Abandoned));
    let done = std::iter::from_fn(|| sender.cx.actions.pop_front()).collect::<Vec<_>>();
    assert_eq!(done, [small, unsent[0], unsent[1]].map(finished));
    // Its bytes are still being read.
    assert!(sender.is_under_way(large) && !sender.is_under_way(small));
    sender.completed(4, writes[1].global, Some(4));
    sender.completed(4, writes[2].global, Some(4));
    assert_eq!(sender.cx.actions.pop_front(), Some(finished(large)));

    let last = sender.submit(5, 10, 0).unwrap();
    let then = until_all_is_late(&mut sender);
    let carried = |work: &&WorkRequest| has_bytes(work);
    for work in then.iter().filter(carried) {
        let Verb::Send {
            piece: Some(piece), ..
        } = work.verb
        else {
            panic!("{work:?}");
        };
        assert_eq!(piece.message, last);
    }
    let numbers: Vec<u32> = then.iter().map(|work| header(work).number.0).collect();
    // The number of the lost SEND is sent again, without bytes.
    assert!(numbers.contains(&1) && numbers.contains(&2), "{numbers:?}");
    let acknowledged: Vec<_> = then
        .iter()
        .map(|work| AckedNumber::Send(work.global))
        .collect();
    for numbers in acknowledged.chunks(4) {
        acknowledge(&mut sender, 30_000_000_000, numbers);
    }
    assert!(sender.outbound.is_quiet() && sender.is_idle());
    assert_eq!(sender.outbound.in_flight_bytes(), 0);
}

/// Retransmissions of a WRITE that are waiting or in flight are given up with it.
#[test]
fn repairs_are_given_up_too() {
    let (mut sender, large, writes) = written(96 * KB, 0);
    for work in &writes {
        sender.completed(3, work.global, Some(3));
    }
    // Lost by timeout; the window allows a part of the retransmissions.
    sender.cx.modules = modules(8 << 10, 4 << 10);
    let repairs = posts(&mut sender, 1_000_000_000);
    assert!(!repairs.is_empty() && repairs.iter().all(has_bytes));
    assert!(sender.outbound.has_more());
    for work in &repairs {
        sender.completed(1_000_000_001, work.global, Some(1_000_000_001));
    }
    sender.abandon(|_| true);
    let failed = Action::Finished(large, Err(Failure::Abandoned));
    assert_eq!(sender.cx.actions.pop_front(), Some(failed));
    let then = until_all_is_late(&mut sender);
    assert!(!then.is_empty());
    assert!(!then.iter().any(has_bytes), "{then:?}");
}

/// An end that refuses a request still owes the answers to those before it.
#[test]
fn messages_that_are_not_given_up_go_on() {
    let (mut sender, kept, writes) = written(40 * KB, 0);
    let dropped = sender.submit(2, KB, 0).unwrap();
    let small = sender.submit(2, KB, 0).unwrap();
    sender.abandon(|id| id == dropped);
    let failed = Action::Finished(dropped, Err(Failure::Abandoned));
    assert_eq!(sender.cx.actions.pop_front(), Some(failed));
    for work in &writes {
        sender.completed(3, work.global, Some(3));
    }
    let then = until_all_is_late(&mut sender);
    let of = |work: &WorkRequest| match &work.verb {
        Verb::Send { piece, .. } => piece.map(|piece| piece.message),
        Verb::Write { piece, .. } => Some(piece.message),
    };
    for message in [kept, small] {
        assert!(then.iter().any(|work| of(work) == Some(message)));
    }
    assert!(!then.iter().any(|work| of(work) == Some(dropped)));
}

/// A tagged message is written however short it is; the retransmission of a WRITE without bytes has none either.
#[test]
fn a_written_message_without_bytes_is_repaired() {
    let (mut sender, message, writes) = written(0, 7);
    assert_eq!(writes.len(), 1);
    sender.completed(3, writes[0].global, Some(3));
    let repairs = posts(&mut sender, 1_000_000_000);
    let chunk = header(&repairs[0]);
    let number = crate::number::WriteNumber {
        hint: false,
        message: 1,
        offset_units: 0,
    };
    assert_eq!(
        (chunk.content, chunk.payload_bytes),
        (Content::Chunk(number), 0)
    );
    let now_ns = 1_000_000_001;
    sender.completed(now_ns, repairs[0].global, Some(now_ns));
    acknowledge(&mut sender, now_ns, &[AckedNumber::Send(repairs[0].global)]);
    let finished = Action::Finished(message, Ok(()));
    assert_eq!(sender.cx.actions.pop_front(), Some(finished));

    // And it completes the message at the receiver.
    let mut receiver = connection(modules(1 << 20, 32 << 10));
    let announced = Content::Announce {
        message: 1,
        total: 0,
        tag: 7,
    };
    hear(&mut receiver, 0, announced, 0);
    receiver.provide(1, PLACE);
    let delivered = hear(&mut receiver, 1, Content::Chunk(number), 0);
    let is_delivery = |action: &Action| matches!(action, Action::Deliver(_));
    assert!(delivered.iter().any(is_delivery), "{delivered:?}");
}

/// A peer that makes announcements and accepts no answers, neither refusals nor grants of what it then sends anyway.
#[test]
fn answers_that_nobody_takes_do_not_pile_up() {
    let limit = Config::DEFAULT.max_written;
    let mut receiver = connection(modules(1 << 20, 32 << 10));
    let announce = |receiver: &mut Connection, number: usize| {
        let announced = Content::Announce {
            message: number as u32 + 1,
            total: KB,
            tag: 7,
        };
        let actions = hear(receiver, number as u32, announced, 0);
        let asked = |action: &Action| matches!(action, Action::Provide { .. });
        actions.iter().any(asked)
    };
    let mut taken = 0;
    while announce(&mut receiver, taken) {
        receiver.refuse(taken as u32 + 1);
        taken += 1;
        assert!(taken <= limit);
    }
    assert_eq!((taken, receiver.outbound.unsaid_answers()), (limit, limit));
    // As if it had not arrived: it is accepted when it is retransmitted.
    assert_eq!(receiver.counters().violations, 0);
    assert!(!posts(&mut receiver, 0).is_empty());
    assert!(announce(&mut receiver, taken));
}
