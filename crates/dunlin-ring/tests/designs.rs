//! Every design carries every message, once, whole and in order, over the device `shm`.

mod common;

use common::{close, designs, device, message, receive, ring, send, wait_for};
use dunlin_ring::{
    Design, Framing, Layout, LengthLimit, Optimisation, Received, RingConfig, RingError, SendError,
    TailSync, UnconnectedConsumer, UnconnectedProducer,
};

/// Some laps of the ring, from a thread to another, with lengths from none to the longest.
fn carries(config: RingConfig) {
    const MESSAGES: u64 = 2_000;
    let (mut producer, mut consumer) = ring(&config);
    let (LengthLimit::AtMost(longest) | LengthLimit::Exactly(longest)) = producer.limit();
    let make = move |number| match config.framing {
        Framing::Header => message(number, longest),
        Framing::Fixed(bytes) => vec![number as u8; bytes],
    };
    let thread = std::thread::spawn(move || {
        for number in 0..MESSAGES {
            send(&mut producer, &make(number)).unwrap();
        }
        close(&mut producer);
    });
    for number in 0..MESSAGES {
        let found = receive(&mut consumer).unwrap().expect("not the end");
        assert!(found == make(number), "{config:?}: message {number}");
    }
    assert_eq!(receive(&mut consumer).unwrap(), None);
    assert_eq!(receive(&mut consumer).unwrap(), None, "an end lasts");
    thread.join().unwrap();
}

#[test]
fn every_design_carries_every_length() {
    for design in designs() {
        for (slots, slot_bytes) in [(4, 64), (16, 64), (128, 64), (32, 192), (8, 4096)] {
            carries(RingConfig {
                design,
                slots,
                slot_bytes,
                framing: Framing::Header,
            });
        }
    }
}

#[test]
fn every_design_carries_records() {
    for design in designs() {
        for bytes in [1, 16, 40, 64, 100] {
            carries(RingConfig::for_records(design, bytes));
        }
        carries(RingConfig {
            slots: 32,
            slot_bytes: if design.layout == Layout::LinkedSlots {
                512
            } else {
                64
            },
            framing: Framing::Fixed(300),
            design,
        });
    }
}

#[test]
fn a_message_alone_arrives_without_a_later_one() {
    for design in designs() {
        let (mut producer, mut consumer) = ring(&RingConfig::for_messages(design, 100));
        for number in 0u8..100 {
            producer.try_send(&[number; 33]).unwrap();
            // Nothing but polling: a sender that is idle flushes.
            let found = wait_for(|| {
                producer.poll().unwrap();
                match consumer.receive(|message| message.to_vec()).unwrap() {
                    Received::Message(found) => Some(found),
                    _ => None,
                }
            });
            assert_eq!(found, [number; 33]);
        }
    }
}

#[test]
fn an_explicit_flush_is_enough() {
    for design in designs() {
        let (mut producer, mut consumer) = ring(&RingConfig::for_messages(design, 100));
        for number in 0u8..100 {
            producer.try_send(&[number; 9]).unwrap();
            producer.flush().unwrap();
            // Only a send queue that is full, as it is before the peer's device has answered, makes it wait for a poll.
            while !producer.is_flushed() {
                producer.poll().unwrap();
            }
            assert_eq!(receive(&mut consumer).unwrap(), Some(vec![number; 9]));
        }
    }
}

/// Number of messages of 8 bytes that a ring holds: one slot, or word, is never used.
fn words_that_fit(config: &RingConfig) -> u64 {
    let slots = config.slots as u64;
    match config.design.layout {
        Layout::SlotToSlot | Layout::LinkedSlots => slots - 1,
        Layout::BackToBack => {
            let valid = u64::from(config.design.tail_sync == TailSync::PollMessage);
            (slots * config.slot_bytes as u64 / 8 - 1) / (2 + valid)
        }
    }
}

#[test]
fn a_full_ring_says_so_and_goes_on_when_there_is_room() {
    for design in designs() {
        let config = RingConfig::for_messages(design, 50);
        let (mut producer, mut consumer) = ring(&config);
        let sent = words_that_fit(&config);
        for number in 0..sent {
            // The first requests wait for the peer's device, and the send queue with them.
            send(&mut producer, &number.to_le_bytes()).unwrap();
        }
        wait_for(|| {
            producer.poll().unwrap();
            producer.is_flushed().then_some(())
        });
        let more = producer.try_send(b"more");
        assert_eq!(more, Err(SendError::Full), "{}", design.name);
        for number in 0..sent {
            let found = receive(&mut consumer).unwrap().unwrap();
            assert_eq!(found, number.to_le_bytes());
        }
        assert_eq!(consumer.receive(|_| ()).unwrap(), Received::Empty);
        wait_for(|| producer.try_send(b"more").ok());
        producer.flush().unwrap();
        assert_eq!(receive(&mut consumer).unwrap().unwrap(), b"more");
    }
}

#[test]
fn messages_are_made_and_read_in_place() {
    let (mut producer, mut consumer) = ring(&RingConfig::for_messages(Design::RB2, 100));
    producer
        .try_send_with(5, |place| place.copy_from_slice(b"first"))
        .unwrap();
    let mut room = producer.reserve(100).unwrap();
    room.bytes()[..6].copy_from_slice(b"second");
    room.commit_first(6).unwrap();
    let mut left = producer.reserve(10).unwrap();
    left.bytes().fill(7);
    drop(left);
    producer.try_send(b"third").unwrap();
    producer.flush().unwrap();

    let first = wait_for(|| match consumer.receive(|m| m.array::<5>(0)).unwrap() {
        Received::Message(found) => Some(found),
        _ => None,
    });
    assert_eq!(&first, b"first");
    let Received::Message(second) = consumer.peek().unwrap() else {
        panic!("it was flushed");
    };
    assert_eq!(second.message().to_vec(), b"second");
    second.leave();
    let mut small = [0; 3];
    assert_eq!(
        consumer.receive_into(&mut small).unwrap(),
        Received::Message(Err(6)),
        "it does not fit, and stays"
    );
    let mut enough = [0; 10];
    assert_eq!(
        consumer.receive_into(&mut enough).unwrap(),
        Received::Message(Ok(6))
    );
    assert_eq!(&enough[..6], b"second");
    assert_eq!(receive(&mut consumer).unwrap().unwrap(), b"third");
    assert_eq!(consumer.receive(|_| ()).unwrap(), Received::Empty);
}

#[test]
fn lengths_that_do_not_fit_are_refused_with_the_limit() {
    let (mut producer, _consumer) = ring(&RingConfig::default());
    let LengthLimit::AtMost(longest) = producer.limit() else {
        panic!("it has headers");
    };
    producer.try_send(&vec![1; longest]).unwrap();
    assert_eq!(
        producer.try_send(&vec![1; longest + 1]),
        Err(SendError::Length {
            bytes: longest + 1,
            limit: LengthLimit::AtMost(longest)
        })
    );
    let (mut producer, _consumer) = ring(&RingConfig::for_records(Design::RB2, 40));
    let wrong = producer.try_send(&[0; 41]).unwrap_err();
    assert_eq!(
        wrong.to_string(),
        "invalid message length: 41 bytes, but all messages have 40 bytes"
    );
}

#[test]
fn each_optimisation_off_carries_messages_too() {
    use Optimisation::{Batching, CacheLines, Elastic, LazyPush, SyncAhead, ZeroCopy};
    for one in [Batching, SyncAhead, Elastic, LazyPush, ZeroCopy, CacheLines] {
        carries(RingConfig::for_messages(Design::RB2.without(one), 100));
    }
}

#[test]
fn both_sides_must_be_configured_alike() {
    let ours = RingConfig::default();
    for theirs in [
        RingConfig { slots: 64, ..ours },
        RingConfig {
            slot_bytes: 128,
            ..ours
        },
        RingConfig {
            framing: Framing::Fixed(8),
            ..ours
        },
        RingConfig {
            design: Design::L5,
            ..ours
        },
    ] {
        let producer = UnconnectedProducer::new(&device(), &ours).unwrap();
        let consumer = UnconnectedConsumer::new(&device(), &theirs).unwrap();
        let error = producer.connect(&consumer.offer()).unwrap_err();
        assert!(error.to_string().contains("mismatch"), "{error}");
    }
    let one = UnconnectedProducer::new(&device(), &ours).unwrap();
    let other = UnconnectedProducer::new(&device(), &ours).unwrap();
    let error = one.connect(&other.offer()).unwrap_err();
    assert!(error.to_string().contains("which end"), "{error}");
}

#[test]
fn a_consumer_that_goes_is_an_error_and_so_is_a_producer() {
    for design in designs() {
        let (mut producer, consumer) = ring(&RingConfig::for_messages(design, 50));
        producer.try_send(b"x").unwrap();
        producer.flush().unwrap();
        drop(consumer);
        let error = wait_for(|| {
            producer
                .flush()
                .err()
                .or_else(|| producer.poll().err())
                .or_else(|| match producer.try_send(b"x") {
                    Err(SendError::Ring(error)) => Some(error),
                    _ => None,
                })
        });
        assert!(
            matches!(error, RingError::PeerLost | RingError::Request(_)),
            "{error}"
        );
    }
}
