//! Tests of how a message is cut, numbered, acknowledged and repaired at the sender.

use super::*;

/// Flor's Fig. 14: a message of 40 KB is sent as WRITEs of 8 and 32 KB, with a SEND of 1 KB in between; the first WRITE
/// and the SEND are lost, and retransmitted as two SENDs of 4 KB and one of 1 KB. Before it, as GN 0, comes the
/// announcement, which the figure omits and which here is number 0 of the SENDs.
#[test]
fn figure_14() {
    let mut sender = connection(modules(8 << 10, 4 << 10));
    let large = sender.submit(0, 40 * KB, 0).unwrap();
    let announced = posts(&mut sender, 0);
    assert_eq!(announced.len(), 1);
    let announcement = header(&announced[0]);
    assert_eq!(
        (announcement.number, announcement.global),
        (SendNumber(0), GlobalNumber(0))
    );
    assert_eq!(
        announcement.content,
        Content::Announce {
            message: 1,
            total: 40 * KB,
            tag: 0
        }
    );
    sender.completed(1, GlobalNumber(0), Some(1));
    acknowledge(&mut sender, 2, &[AckedNumber::Send(GlobalNumber(0))]);
    grant(&mut sender);

    // One WRITE of 8 KB.
    sender.cx.modules = modules(8 << 10, 8 << 10);
    let write = posts(&mut sender, 10);
    let [WorkRequest {
        global: GlobalNumber(1),
        verb: Verb::Write {
            piece,
            remote,
            immediate,
        },
        ..
    }] = write[..]
    else {
        panic!("{write:?}");
    };
    assert_eq!(
        (piece.message, piece.offset, piece.bytes),
        (large, 0, 8 * KB)
    );
    assert_eq!(remote, PLACE);
    let number = WriteLayout::PAPER.decode(immediate);
    // MID=1, OFF=0; and nothing more fits in the window.
    assert_eq!(
        (number.message, number.offset_units, number.hint),
        (1, 0, true)
    );

    // A SEND of 1 KB is sent before the rest, a WRITE of 32 KB.
    sender.cx.modules = modules(1 << 20, 32 << 10);
    sender.submit(20, KB, 0).unwrap();
    let next = posts(&mut sender, 20);
    assert_eq!(next.len(), 2);
    let small = header(&next[0]);
    assert_eq!(
        (small.global, small.number),
        (GlobalNumber(2), SendNumber(1))
    );
    let Verb::Write {
        piece,
        remote,
        immediate,
    } = next[1].verb
    else {
        panic!("{next:?}");
    };
    assert_eq!(next[1].global, GlobalNumber(3));
    assert_eq!((piece.offset, piece.bytes), (8 * KB, 32 * KB));
    assert_eq!(remote, PLACE.plus(8 << 10));
    let number = WriteLayout::PAPER.decode(immediate);
    assert_eq!((number.message, number.offset_units), (1, 2));

    // Only the last one is acknowledged: both others are lost. Chunks now have their minimum size.
    sender.cx.modules = modules(1 << 20, 4 << 10);
    acknowledge(&mut sender, 30, &[AckedNumber::Write(immediate)]);
    let again = posts(&mut sender, 30);
    let told: Vec<_> = again
        .iter()
        .map(|work| {
            let header = header(work);
            let place = match header.content {
                Content::Chunk(number) => Some((number.message, number.offset_units)),
                _ => None,
            };
            (
                header.global.0,
                header.number.0,
                place,
                header.payload_bytes,
            )
        })
        .collect();
    // In the figure the retransmitted SEND comes last, as GN 6; here retransmitted SENDs come first, and then WRITEs as
    // SENDs.
    assert_eq!(
        told,
        [
            (4, 1, None, KB),
            (5, 2, Some((1, 0)), 4 * KB),
            (6, 3, Some((1, 1)), 4 * KB),
        ]
    );
}

/// A window of 72 KB with chunks of 32 KB: two are sent, and the second has the hint that it is the last. The rest of
/// the window would allow only a chunk of 8 KB; it waits until a chunk is acknowledged.
#[test]
fn no_crumbs_are_sent_into_a_window_that_is_nearly_full() {
    let mut sender = connection(modules(72 << 10, 32 << 10));
    sender.submit(0, 200 * KB, 0).unwrap();
    posts(&mut sender, 0);
    acknowledge(&mut sender, 1, &[AckedNumber::Send(GlobalNumber(0))]);
    grant(&mut sender);
    let mut sent = Vec::new();
    let mut under_way = VecDeque::new();
    let mut at_ns = 1;
    while sent.iter().map(|(bytes, _)| bytes).sum::<u32>() < 200 * KB {
        at_ns += 1;
        for work in posts(&mut sender, at_ns) {
            let Verb::Write {
                piece, immediate, ..
            } = work.verb
            else {
                panic!("{work:?}");
            };
            sent.push((piece.bytes, WriteLayout::PAPER.decode(immediate).hint));
            under_way.push_back(immediate);
        }
        let first = under_way.pop_front().expect("something is under way");
        acknowledge(&mut sender, at_ns, &[AckedNumber::Write(first)]);
    }
    let whole = |hint| (32 * KB, hint);
    assert_eq!(
        sent,
        [
            whole(false),
            whole(true),
            whole(true),
            whole(true),
            whole(true),
            whole(true),
            (8 * KB, true)
        ]
    );
}

#[test]
fn a_late_acknowledgement_of_a_write_ends_its_repetitions() {
    let mut sender = connection(modules(1 << 20, 32 << 10));
    let large = sender.submit(0, 40 * KB, 0).unwrap();
    posts(&mut sender, 0);
    acknowledge(&mut sender, 1, &[AckedNumber::Send(GlobalNumber(0))]);
    grant(&mut sender);
    let writes = posts(&mut sender, 2);
    assert_eq!(writes.len(), 2);
    let immediates: Vec<u32> = writes
        .iter()
        .map(|work| match work.verb {
            Verb::Write { immediate, .. } => immediate,
            Verb::Send { .. } => panic!("{work:?}"),
        })
        .collect();
    acknowledge(&mut sender, 3, &[AckedNumber::Write(immediates[1])]);
    // Its first retransmission is in flight when the WRITE turns out to have arrived.
    let repeated = posts(&mut sender, 3);
    assert_eq!(repeated.len(), 1);
    acknowledge(&mut sender, 4, &[AckedNumber::Write(immediates[0])]);
    assert_eq!(sender.counters().spurious, 1);
    let finished = |action: &Action| matches!(action, Action::Finished(..));
    // The NIC still reads the message's bytes.
    assert!(!actions(&mut sender, 4).iter().any(finished));
    for global in 0..=3 {
        sender.completed(5, GlobalNumber(global), Some(5));
    }
    assert_eq!(actions(&mut sender, 5), [Action::Finished(large, Ok(()))]);
    // The number of the retransmission is still waited for: it is sent again, without bytes.
    let again = posts(&mut sender, 10_000_000_000);
    assert_eq!(again.len(), 1);
    let empty = header(&again[0]);
    assert_eq!((empty.content, empty.payload_bytes), (Content::Empty, 0));
    assert_eq!(empty.number, header(&repeated[0]).number);
}

#[test]
fn a_peer_that_says_nothing_is_asked() {
    let mut sender = connection(modules(1 << 20, 32 << 10));
    sender.submit(0, 40 * KB, 0).unwrap();
    posts(&mut sender, 0);
    sender.completed(1, GlobalNumber(0), Some(1));
    acknowledge(&mut sender, 2, &[AckedNumber::Send(GlobalNumber(0))]);
    assert_eq!(posts(&mut sender, 2), []);
    let deadline = sender.next_deadline(2).unwrap();
    // A timer may expire earlier with nothing to time out.
    assert!(deadline <= 2 + Config::DEFAULT.probe_ns);
    let probe = posts(&mut sender, 2 + Config::DEFAULT.probe_ns);
    assert_eq!(header(&probe[0]).content, Content::Empty);
}

#[test]
fn limits_have_names() {
    let mut sender = connection(modules(1 << 20, 32 << 10));
    let limit = 4 << 20;
    let long = sender.submit(0, limit as u32 + 1, 0);
    assert_eq!(
        long,
        Err(SubmitError::TooLong {
            bytes: limit as u32 + 1,
            limit
        })
    );
    for _ in 0..Config::DEFAULT.max_messages {
        sender.submit(0, 1, 0).unwrap();
    }
    let limit = Config::DEFAULT.max_messages;
    assert_eq!(sender.submit(0, 1, 0), Err(SubmitError::Full { limit }));
    let config = Config {
        number_window: 0,
        ..Config::DEFAULT
    };
    let refused = Connection::new(config, modules(1, 4096)).err().unwrap();
    assert!(
        refused
            .to_string()
            .starts_with("number_window is 0: it must be from 64 to"),
        "{refused}"
    );
}
