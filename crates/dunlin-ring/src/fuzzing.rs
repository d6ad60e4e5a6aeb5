//! Entry points for the fuzz targets: a ring with one lying end, controlled by the bytes of an input.

use std::sync::atomic::Ordering;

use dunlin_verbs::{Device, Region};

use crate::*;

/// An input, consumed from its start; zeros after its end.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    fn word(&mut self) -> u64 {
        let bytes: [u8; 8] = std::array::from_fn(|_| self.byte());
        u64::from_le_bytes(bytes)
    }

    /// A word that a lying end might write: anything, a small number, a header, or the present value, moved a little.
    fn lie(&mut self, now: u64) -> u64 {
        match self.byte() % 5 {
            0 => self.word(),
            1 => u64::from(self.byte()),
            2 => u64::from_le_bytes(framing::encode(usize::from(self.byte()) * 8)),
            3 => u64::from_le_bytes(framing::SKIP),
            _ => now.wrapping_add(u64::from(self.byte())).wrapping_sub(16),
        }
    }
}

/// Both ends of a ring whose design the input chooses.
fn ring<D: Device>(devices: &[D; 2], input: &mut Input<'_>) -> Option<(Producer<D>, Consumer<D>)> {
    let choice = input.byte();
    let mut design = Design::ALL[usize::from(choice) % Design::ALL.len()];
    if choice & 0x40 != 0 {
        design = design.without(Optimisation::ZeroCopy);
    }
    let config = if choice & 0x80 == 0 {
        RingConfig::for_messages(design, 40)
    } else {
        RingConfig::for_records(design, 40)
    };
    let config = RingConfig {
        slots: 16,
        ..config
    };
    let producer = UnconnectedProducer::new(&devices[0], &config).ok()?;
    let consumer = UnconnectedConsumer::new(&devices[1], &config).ok()?;
    let (to_consumer, to_producer) = (producer.offer(), consumer.offer());
    Some((
        producer.connect(&to_producer).ok()?,
        consumer.connect(&to_consumer).ok()?,
    ))
}

/// A producer that writes whatever the input says into all memory that it may write. The consumer must read messages of
/// valid lengths, or fail and stay failed.
///
/// # Panics
/// When the consumer does anything else.
pub fn lying_producer<D: Device>(devices: &[D; 2], bytes: &[u8]) {
    let mut input = Input(bytes);
    let Some((mut producer, mut consumer)) = ring(devices, &mut input) else {
        return;
    };
    let (LengthLimit::AtMost(longest) | LengthLimit::Exactly(longest)) = consumer.limit();
    for number in 0..input.byte() % 20 {
        let _ = producer.try_send(&[number; 40]);
        let _ = producer.poll();
    }
    let inlet = consumer.inlet_for_tests();
    let memory = inlet.memory();
    let words = memory.len() / 8;
    while !input.0.is_empty() {
        // At the words, the start of the array, or anywhere.
        let at = match input.byte() % 3 {
            0 => usize::from(input.byte()) % 25,
            1 => words.saturating_sub(1 + usize::from(input.byte())),
            _ => input.word() as usize,
        };
        let place = memory.atomic_u64(at % words * 8);
        let lie = input.lie(place.load(Ordering::Relaxed));
        place.store(lie, Ordering::Release);
        let read = |message: Message<'_>| {
            assert!(
                message.len() <= longest,
                "a message of {} bytes",
                message.len()
            );
            let _ = message.fold();
        };
        for _ in 0..input.byte() % 24 {
            let failed = match input.byte() % 3 {
                0 => consumer.receive(read).is_err(),
                1 => consumer.receive_many(8, read).is_err(),
                _ => consumer.poll().is_err(),
            };
            if failed {
                assert!(consumer.receive(read).is_err(), "an error lasts");
                return;
            }
        }
    }
}

/// A consumer that writes whatever the input says into all memory that it may write. The producer must send, wait, or
/// fail and stay failed; it must never assume that more was read than it has published.
///
/// # Panics
/// When the producer does anything else.
pub fn lying_consumer<D: Device>(devices: &[D; 2], bytes: &[u8]) {
    let mut input = Input(bytes);
    let Some((mut producer, consumer)) = ring(devices, &mut input) else {
        return;
    };
    let inlet = producer.inlet_for_tests();
    let memory = inlet.memory();
    let words = memory.len() / 8;
    let mut number = 0u64;
    while !input.0.is_empty() {
        let place = memory.atomic_u64(usize::from(input.byte()) % words * 8);
        let lie = input.lie(place.load(Ordering::Relaxed));
        place.store(lie, Ordering::Release);
        for _ in 0..input.byte() % 24 {
            number += 1;
            let failed = match input.byte() % 4 {
                0 => producer.flush().is_err(),
                1 => producer.is_drained().is_err(),
                2 => producer.poll().is_err(),
                _ => {
                    let sent = producer.try_send_with(40, |place| place.fill(number as u8));
                    matches!(sent, Err(SendError::Ring(_)))
                }
            };
            if failed {
                let sent = producer.try_send(&[0; 40]);
                let again = producer.poll();
                assert!(sent.is_err() || again.is_err(), "an error lasts");
                return;
            }
        }
    }
    drop(consumer);
}
