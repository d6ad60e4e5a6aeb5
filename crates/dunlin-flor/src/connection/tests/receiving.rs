//! Tests of a receiver: what arrives twice, late, in another order, or from a hostile peer.

use super::*;

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
    let received = received(50);
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
    let received = received(50);
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
