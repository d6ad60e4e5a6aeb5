//! A peer that writes arbitrary data into all memory that it may write: the other side fails with an error or reads the
//! nonsense that was sent, and never crashes, hangs, or touches a byte outside its ring.

use dunlin_shm::{ShmConfig, ShmDevice};
use dunlin_verbs::Region;

use crate::*;

/// Number of rings tested of each kind.
const LAPS: usize = 10;

fn ring(config: &RingConfig) -> (Producer<ShmDevice>, Consumer<ShmDevice>) {
    let device = || ShmDevice::open(ShmConfig::default()).unwrap();
    let producer = UnconnectedProducer::new(&device(), config).unwrap();
    let consumer = UnconnectedConsumer::new(&device(), config).unwrap();
    let (to_consumer, to_producer) = (producer.offer(), consumer.offer());
    (
        producer.connect(&to_producer).unwrap(),
        consumer.connect(&to_consumer).unwrap(),
    )
}

fn designs() -> Vec<Design> {
    let mut designs = Design::ALL.to_vec();
    let mut pull = Design::RB2;
    pull.head_sync = HeadSync::LazyPull;
    let copying = Design::RB2.without(Optimisation::ZeroCopy);
    designs.extend([Design::FARM_UNORDERED, pull, copying]);
    designs
}

/// A word that a liar might write: small, huge, near a limit, or anything.
fn word(random: &mut fastrand::Rng, units: u64) -> u64 {
    match random.u8(0..6) {
        0 => random.u64(0..4),
        1 => random.u64(..),
        2 => units.wrapping_add(random.u64(0..5)).wrapping_sub(2),
        3 => u64::MAX - random.u64(0..3),
        4 => random.u64(0..2 * units),
        _ => u64::from_le_bytes(framing::encode(random.usize(0..1 << 20))),
    }
}

/// The memory that a producer may write at its consumer is the consumer's inlet: the words and the array.
#[test]
fn a_lying_producer_is_an_error_or_nonsense() {
    for design in designs() {
        for fixed in [false, true] {
            let mut random = fastrand::Rng::with_seed(7);
            for _ in 0..LAPS {
                let mut config = RingConfig::for_messages(design, 40);
                config.slots = 16;
                if fixed {
                    config.framing = Framing::Fixed(40);
                }
                lie_to_consumer(&config, &mut random);
            }
        }
    }
}

fn lie_to_consumer(config: &RingConfig, random: &mut fastrand::Rng) {
    let (mut producer, mut consumer) = ring(config);
    // Some honest messages first.
    for number in 0..random.u8(0..20) {
        let _ = producer.try_send(&[number; 40]);
        let _ = producer.poll();
    }
    let inlet = consumer.inlet_for_tests();
    let memory = inlet.memory();
    let words = memory.len() / 8;
    let units = consumer.units_for_tests();
    for _ in 0..2000 {
        // Mostly the words that matter, sometimes anything.
        let at = match random.u8(0..4) {
            0 => 0,
            1 => random.usize(0..25.min(words)),
            _ => words - 1 - random.usize(0..words.min(300)),
        };
        let lie = word(random, units);
        memory
            .atomic_u64(at * 8)
            .store(lie, std::sync::atomic::Ordering::Release);
        for _ in 0..random.u8(1..20) {
            let longest = match consumer.limit() {
                LengthLimit::AtMost(bytes) | LengthLimit::Exactly(bytes) => bytes,
            };
            let mut read = |message: Message<'_>| {
                assert!(message.len() <= longest);
                let _ = message.fold();
            };
            // One by one, and in runs.
            let received = match random.bool() {
                true => consumer.receive(read).map(|_| ()),
                false => consumer.receive_many(16, &mut read).map(|_| ()),
            };
            match received {
                Ok(()) => {}
                Err(_) => {
                    // An error is permanent.
                    assert!(consumer.receive(|_| ()).is_err());
                    return;
                }
            }
        }
    }
}

/// The memory that a consumer may write at its producer is the producer's inlet, above all the head.
#[test]
fn a_lying_consumer_is_an_error() {
    for design in designs() {
        let mut random = fastrand::Rng::with_seed(8);
        for _ in 0..10 {
            let (mut producer, _consumer) = ring(&RingConfig {
                slots: 16,
                ..RingConfig::for_messages(design, 40)
            });
            let inlet = producer.inlet_for_tests();
            let memory = inlet.memory();
            let mut ended = false;
            for number in 0..3000u32 {
                let lie = word(&mut random, 16);
                memory
                    .atomic_u64(random.usize(0..memory.len() / 8) * 8)
                    .store(lie, std::sync::atomic::Ordering::Release);
                match producer.try_send(&number.to_le_bytes()) {
                    Ok(()) | Err(SendError::Full) => {
                        let _ = producer.is_drained();
                        ended |= producer.poll().is_err();
                    }
                    Err(SendError::Ring(_)) => ended = true,
                    Err(error) => panic!("{error}"),
                }
            }
            // Where the head is pulled, what is written here is overwritten by the next READ.
            assert!(
                ended || design.head_sync == HeadSync::LazyPull,
                "{}",
                design.name
            );
        }
    }
}

/// Messages whose header is well-formed but impossible.
#[test]
fn headers_that_cannot_be_are_named() {
    let (_producer, mut consumer) = ring(&RingConfig {
        slots: 16,
        ..RingConfig::default()
    });
    let inlet = consumer.inlet_for_tests();
    let header = u64::from_le_bytes(framing::encode(5000));
    inlet
        .memory()
        .atomic_u64(4096)
        .store(header, std::sync::atomic::Ordering::Release);
    inlet
        .memory()
        .atomic_u64(0)
        .store(3, std::sync::atomic::Ordering::Release);
    let error = consumer.receive(|_| ()).unwrap_err();
    let length = Violation::Length {
        length: 5000,
        limit: 3 * 64,
    };
    assert_eq!(error, RingError::Violation(length));
}
