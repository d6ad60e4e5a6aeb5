//! Tests of a connection event by event; both ends together are tested by `tests/hunt`.

use dunlin_verbs::{RemoteAddress, RemoteKey};

use super::*;
use crate::ack::{AckedNumber, MAX_ACK_BYTES};
use crate::chunking::{ChunkingParameters, OnLoss, RttBased};
use crate::congestion::{FixedWindow, HardwareControl};
use crate::number::{SendNumber, WriteLayout};
use crate::reliability::{Hardware, Selective, SelectiveParameters};
use crate::round_trip::ByAcknowledgement;

const KB: u32 = 1024;
const PLACE: RemoteAddress = RemoteAddress {
    address: 1 << 20,
    key: RemoteKey(9),
};

fn modules(window_bytes: u64, chunk_bytes: u32) -> Modules {
    Modules {
        chunking: Box::new(
            RttBased::new(ChunkingParameters {
                max_bytes: chunk_bytes,
                first_bytes: chunk_bytes.into(),
                ..ChunkingParameters::PRODUCTION
            })
            .unwrap(),
        ),
        round_trip: Box::new(ByAcknowledgement),
        reliability: Box::new(Selective::new(SelectiveParameters::DEFAULT)),
        congestion: Box::new(FixedWindow::new(window_bytes)),
    }
}

fn connection(modules: Modules) -> Connection {
    Connection::new(Config::DEFAULT, modules).unwrap()
}

fn actions(connection: &mut Connection, now_ns: u64) -> Vec<Action> {
    std::iter::from_fn(|| connection.poll(now_ns)).collect()
}

fn posts(connection: &mut Connection, now_ns: u64) -> Vec<WorkRequest> {
    let post = |action| match action {
        Action::Post(work) => Some(work),
        _ => None,
    };
    actions(connection, now_ns)
        .into_iter()
        .filter_map(post)
        .collect()
}

fn header(work: &WorkRequest) -> Header {
    let Verb::Send { front, piece } = &work.verb else {
        panic!("{work:?} is no SEND");
    };
    let payload = piece.map_or(0, |piece| piece.bytes as usize);
    let received = front.bytes().len() + payload;
    Header::decode(front.bytes(), received, WriteLayout::PAPER).unwrap()
}

fn acknowledge(connection: &mut Connection, now_ns: u64, numbers: &[AckedNumber]) {
    let mut ack = Ack::new(0, 0, false);
    for number in numbers {
        assert!(ack.push(*number));
    }
    let mut bytes = [0; MAX_ACK_BYTES];
    let length = ack.encode(&mut bytes);
    connection
        .received_ack(now_ns, &bytes[..length], now_ns)
        .unwrap();
}

/// A SEND of the peer in our first epoch.
fn hear(
    connection: &mut Connection,
    number: u32,
    content: Content,
    payload_bytes: u32,
) -> Vec<Action> {
    let header = Header {
        hint: false,
        epoch: 0,
        number: SendNumber(number),
        global: GlobalNumber(number.into()),
        content,
        payload_bytes,
    };
    let front = header.encode(WriteLayout::PAPER);
    let received = Received {
        path: 0,
        receive: number.into(),
        arrived_ns: 0,
        marked: false,
    };
    let bytes = front.bytes().len() + payload_bytes as usize;
    connection
        .received_send(0, received, front.bytes(), bytes)
        .unwrap();
    std::iter::from_fn(|| connection.cx.actions.pop_front()).collect()
}

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
    hear(
        &mut sender,
        0,
        Content::Grant {
            message: 1,
            place: PLACE,
        },
        0,
    );

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
    let place = PLACE;
    hear(&mut sender, 0, Content::Grant { message: 1, place }, 0);
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
    hear(
        &mut sender,
        0,
        Content::Grant {
            message: 1,
            place: PLACE,
        },
        0,
    );
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
fn a_receiver_takes_each_send_once_and_in_any_order() {
    let mut receiver = connection(modules(1 << 20, 32 << 10));
    let message = |message| Content::Fragment {
        message,
        offset: 0,
        total: 100,
    };
    let delivered = |receive| {
        Action::Deliver(Delivery::Whole {
            receive,
            bytes: 100,
        })
    };
    assert_eq!(hear(&mut receiver, 1, message(1), 100), [delivered(1)]);
    assert_eq!(hear(&mut receiver, 0, message(0), 100), [delivered(0)]);
    assert_eq!(
        hear(&mut receiver, 1, message(1), 100),
        [Action::Recycle(1)]
    );
    assert_eq!(receiver.counters().duplicates, 1);
    let Some(Action::Acknowledge(ack)) = receiver.poll(0) else {
        panic!("a gap is acknowledged at once");
    };
    let numbers = [1, 0, 1].map(|number| AckedNumber::Send(GlobalNumber(number)));
    assert_eq!(ack.numbers(), numbers);
}

/// §5: what is sent again after the message was delivered does not change it, and a WRITE that arrives late is
/// recognised.
#[test]
fn repetitions_after_the_delivery_touch_nothing() {
    let mut receiver = connection(modules(1 << 20, 32 << 10));
    let asked = hear(
        &mut receiver,
        0,
        Content::Announce {
            message: 5,
            total: 8 * KB,
            tag: 77,
        },
        0,
    );
    assert_eq!(
        asked,
        [
            Action::Provide {
                message: 5,
                bytes: 8 * KB,
                tag: 77
            },
            Action::Recycle(0)
        ]
    );
    receiver.provide(5, PLACE);
    let number = |offset_units| crate::number::WriteNumber {
        hint: false,
        message: 5,
        offset_units,
    };
    let received = Received {
        path: 0,
        receive: 50,
        arrived_ns: 0,
        marked: false,
    };
    let immediate = WriteLayout::PAPER.encode(number(0));
    receiver.received_write(0, received, immediate, 4096);
    let chunk = Content::Chunk(number(1));
    let placed = hear(&mut receiver, 1, chunk, 4096);
    let message = Incoming::Written(5);
    assert_eq!(
        placed,
        [
            Action::Recycle(50),
            Action::Place {
                receive: 1,
                message,
                offset: 4096,
                bytes: 4096,
                total: 8 * KB
            },
            Action::Recycle(1),
            // The WRITE that the chunk retransmits may still arrive, if UC accepts it.
            Action::Deliver(Delivery::Pieces {
                message,
                bytes: 8 * KB,
                quarantine_ns: Some(100_000_000),
            }),
        ]
    );
    assert_eq!(hear(&mut receiver, 2, chunk, 4096), [Action::Recycle(2)]);
    receiver.received_write(0, received, WriteLayout::PAPER.encode(number(1)), 4096);
    assert_eq!(receiver.counters().late_writes, 1);
}

/// §6: the sender's NIC gives up, although everything has arrived. Requests without an answer are sent over the backup
/// as SENDs; WRITEs wait until the peer is known to have fenced the queue pair that failed.
#[test]
fn a_failed_queue_pair_is_replaced_by_a_backup() {
    let mut modules = modules(1 << 20, 32 << 10);
    modules.chunking = Box::new(
        RttBased::new(ChunkingParameters {
            on_loss: OnLoss::OneUnit,
            ..ChunkingParameters::PRODUCTION
        })
        .unwrap(),
    );
    modules.reliability = Box::new(Hardware);
    modules.congestion = Box::new(HardwareControl);
    let mut sender = connection(modules);
    sender.submit(0, 96 * KB, 0).unwrap();
    posts(&mut sender, 0);
    sender.completed(1, GlobalNumber(0), Some(1));
    hear(
        &mut sender,
        0,
        Content::Grant {
            message: 1,
            place: PLACE,
        },
        0,
    );
    assert_eq!(posts(&mut sender, 2).len(), 2);
    sender.completed(3, GlobalNumber(1), None);
    let then = actions(&mut sender, 3);
    assert_eq!(then[0], Action::Fence { path: 0 });
    let sends: Vec<_> = then[1..]
        .iter()
        .map(|action| match action {
            Action::Post(work) if work.path == 1 => header(work),
            other => panic!("{other:?}"),
        })
        .collect();
    // First the SEND that announces the change, then both WRITEs in pieces of a unit, since RC has lost something.
    assert!(sends.iter().all(|header| header.epoch == 1));
    assert_eq!(sends[0].content, Content::Empty);
    assert_eq!(sends.len(), 1 + 96 / 4);
    // The old queue pair is renewed once the NIC has completed everything.
    assert_eq!(actions(&mut sender, 4), []);
    sender.completed(4, GlobalNumber(2), None);
    assert_eq!(actions(&mut sender, 4), [Action::Renew { path: 0 }]);
}

/// A peer whose process is stopped acknowledges nothing on any queue pair. The last one is not given up for that until
/// several seconds have passed.
#[test]
fn the_last_queue_pair_waits_longer_than_one_with_a_backup() {
    let last_ns = |paths| {
        let config = Config {
            paths,
            connected_paths: paths,
            ..Config::DEFAULT
        };
        let modules = Deployment::CrossPod.modules(&Network::DEFAULT).unwrap();
        let mut sender = Connection::new(config, modules).unwrap();
        sender.submit(0, 10, 0).unwrap();
        let (mut now_ns, mut switched_ns) = (0, Vec::new());
        while !sender.is_lost() {
            let switches = sender.counters().switches;
            actions(&mut sender, now_ns);
            if sender.counters().switches > switches {
                switched_ns.push(now_ns);
            }
            match sender.next_deadline(now_ns) {
                Some(next_ns) => now_ns = next_ns.max(now_ns + 1),
                None => assert!(sender.is_lost()),
            }
        }
        assert_eq!(sender.lost_by(), Some(LostBy::Silence { timeouts: 16 }));
        assert_eq!(switched_ns.len(), paths - 1);
        // Eight timeouts, the first of 4 ms and each twice as long as the one before; on the last one, half a second
        // each from then on.
        for (switch, at_ns) in switched_ns.iter().enumerate() {
            assert_eq!(*at_ns / 1_000_000, 1020 * (switch as u64 + 1));
        }
        now_ns
    };
    assert_eq!(last_ns(1) / 1_000_000, 1020 + 8 * 512);
    assert_eq!(last_ns(3) / 1_000_000, 3 * 1020 + 8 * 512);
}

#[test]
fn without_a_backup_everything_is_reported() {
    let config = Config {
        paths: 1,
        connected_paths: 1,
        ..Config::DEFAULT
    };
    let mut alone = Connection::new(config, modules(1 << 20, 32 << 10)).unwrap();
    let message = alone.submit(0, 10, 0).unwrap();
    posts(&mut alone, 0);
    alone.path_failed(1, 0);
    assert_eq!(
        actions(&mut alone, 1),
        [Action::Fence { path: 0 }, Action::Lost]
    );
    alone.completed(2, GlobalNumber(0), None);
    let failed = Action::Finished(message, Err(Failure::ConnectionLost));
    assert_eq!(actions(&mut alone, 2), [failed]);
    assert_eq!(alone.submit(3, 1, 0), Err(SubmitError::Lost));
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
            .starts_with("number_window is 0: choose 64 to"),
        "{refused}"
    );
}

#[test]
fn hostile_things_of_a_peer_change_nothing() {
    let mut receiver = connection(modules(1 << 20, 32 << 10));
    // Written without a grant, outside the message, or to a message that was never announced.
    hear(
        &mut receiver,
        0,
        Content::Announce {
            message: 1,
            total: 40 * KB,
            tag: 0,
        },
        0,
    );
    let received = Received {
        path: 0,
        receive: 50,
        arrived_ns: 0,
        marked: false,
    };
    let layout = WriteLayout::PAPER;
    let number = |message, offset_units| {
        layout.encode(crate::number::WriteNumber {
            hint: false,
            message,
            offset_units,
        })
    };
    receiver.received_write(0, received, number(1, 0), 40 << 10);
    assert_eq!(receiver.counters().violations, 1);
    receiver.provide(1, PLACE);
    receiver.received_write(0, received, number(1, 1000), 4096);
    receiver.received_write(0, received, number(1, 0), usize::MAX);
    assert_eq!(receiver.counters().violations, 3);
    for (at, content) in [
        Content::Announce {
            message: 1,
            total: 40 * KB,
            tag: 0,
        },
        Content::Announce {
            message: u32::MAX,
            total: 40 * KB,
            tag: 0,
        },
        Content::Announce {
            message: 2,
            total: u32::MAX,
            tag: 0,
        },
        Content::Fragment {
            message: 0,
            offset: 100,
            total: 5000,
        },
    ]
    .into_iter()
    .enumerate()
    {
        let payload = if at == 3 { 10 } else { 0 };
        assert_eq!(
            hear(&mut receiver, 1, content, payload).last(),
            Some(&Action::Recycle(1))
        );
        assert_eq!(receiver.counters().violations, 4 + at as u64);
    }
    // A number that no honest sender uses.
    hear(&mut receiver, 5000, Content::Empty, 0);
    assert_eq!(receiver.counters().violations, 8);
    hear(
        &mut receiver,
        1,
        Content::Grant {
            message: 77,
            place: PLACE,
        },
        0,
    );
    hear(&mut receiver, 2, Content::Refuse { message: 77 }, 0);
    acknowledge(
        &mut receiver,
        0,
        &[
            AckedNumber::Send(GlobalNumber(u64::MAX)),
            AckedNumber::Write(3),
        ],
    );
    assert_eq!(receiver.counters().unknown_acks, 2);
}

mod ends;
