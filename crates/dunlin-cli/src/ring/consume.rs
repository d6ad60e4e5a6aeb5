//! Receives, counts and checks what a producer sends.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, Ordering};

use dunlin_ring::{Consumer, Message};
use dunlin_verbs::Device;

use super::pattern;
use crate::clock::clock;
use crate::commands::Failure;
use crate::report::Tally;

/// Bytes of a message's stamp: its number and when it was sent.
pub const STAMP_BYTES: usize = 16;
/// Messages between two checks of anything else.
const MANY: usize = 64;
/// Empty polls after which a producer may be waiting to learn that the last messages were read.
const IDLE: u32 = 2000;

/// Receives until ordered to end. Messages carry their numbers; one that is not the next counts as an error, and with
/// `VERIFY` also one of another size than `size` or with any byte different from what [`pattern::fill`] wrote.
///
/// # Errors
/// When the ring fails.
pub fn consume<D: Device, const VERIFY: bool>(
    consumer: &mut Consumer<D>,
    size: usize,
    end: &AtomicBool,
) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    let mut next = None;
    let mut empty = 0u32;
    let clock = clock();
    loop {
        let count = consumer
            .receive_many(MANY, |message: Message<'_>| {
                let number = message.u64_at(0);
                let sent = message.u64_at(8);
                if next.is_some_and(|next| next != number)
                    || VERIFY && !pattern::holds(&message, size)
                {
                    tally.errors += 1;
                }
                next = Some(number.wrapping_add(1));
                tally.bytes += message.len() as u64;
                if sent != 0 {
                    let now = clock.raw();
                    tally.latencies.record(clock.delta_as_nanos(sent, now));
                }
            })
            .map_err(Failure::new)?;
        tally.operations += count as u64;
        if count > 0 {
            empty = 0;
            continue;
        }
        spin_loop();
        empty = empty.wrapping_add(1);
        if empty % IDLE == 0 {
            // For the device's own thread, and the producer where both share a core.
            std::thread::yield_now();
            // What was read and not pushed, so that the producer knows when all is read.
            consumer.push().map_err(Failure::new)?;
            if end.load(Ordering::Relaxed) {
                return Ok(tally);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patience::Patience;
    use dunlin_ring::{Design, RingConfig, UnconnectedConsumer, UnconnectedProducer};
    use dunlin_shm::{ShmConfig, ShmDevice};

    /// What a reader that compares finds wrong in ten messages after `spoil` has had the sixth.
    fn errors(size: usize, spoil: impl Fn(&mut [u8])) -> u64 {
        let device = ShmDevice::open(ShmConfig::default()).unwrap();
        let config = RingConfig::for_records(Design::RB2, size);
        let producer = UnconnectedProducer::new(&device, &config).unwrap();
        let consumer = UnconnectedConsumer::new(&device, &config).unwrap();
        let (at_producer, at_consumer) = (producer.offer(), consumer.offer());
        let mut producer = producer.connect(&at_consumer).unwrap();
        let mut consumer = consumer.connect(&at_producer).unwrap();
        let ended = AtomicBool::new(false);
        let tally = std::thread::scope(|scope| {
            let reader = scope.spawn(|| consume::<_, true>(&mut consumer, size, &ended));
            for number in 0..10 {
                let fill = |place: &mut [u8]| {
                    pattern::fill(&mut place[..size], number, 0);
                    if number == 5 {
                        spoil(&mut place[..size]);
                    }
                };
                producer.try_send_with(size, fill).unwrap();
            }
            producer.flush().unwrap();
            let mut patience = Patience::default();
            let mut drain = || -> Result<(), Failure> {
                while !producer.is_drained().map_err(Failure::new)? {
                    producer.poll().map_err(Failure::new)?;
                    patience.wait()?;
                }
                Ok(())
            };
            let drained = drain();
            ended.store(true, Ordering::Relaxed);
            let tally = reader.join().unwrap().unwrap();
            drained.unwrap();
            tally
        });
        assert_eq!(tally.operations, 10, "{size}");
        tally.errors
    }

    #[test]
    fn a_wrong_byte_anywhere_is_an_error() {
        for size in [16, 17, 64, 71, 5000] {
            assert_eq!(errors(size, |_| {}), 0, "{size}");
            for at in [16, 23, size / 2, size - 1] {
                if (STAMP_BYTES..size).contains(&at) {
                    assert_eq!(errors(size, |bytes| bytes[at] ^= 1), 1, "{size} {at}");
                }
            }
            let of_an_earlier_lap = |bytes: &mut [u8]| {
                pattern::fill(bytes, 4, 0);
                bytes[..8].copy_from_slice(&5u64.to_le_bytes());
            };
            assert_eq!(
                errors(size, of_an_earlier_lap),
                u64::from(size > 16),
                "{size}"
            );
        }
    }
}
