//! Sends as fast as a ring accepts messages, until everything has been read.

use std::time::Duration;

use dunlin_ring::{Producer, SendError};
use dunlin_verbs::Device;

use super::consume::STAMP_BYTES;
use super::pattern;
use crate::clock::clock;
use crate::commands::Failure;
use crate::patience::Patience;
use crate::report::Tally;

/// Messages between two reads of the clock.
const STRIDE: u64 = 64;
/// One in this many messages carries the time.
const SAMPLE: u64 = 1024;
/// Messages of up to this many bytes are filled completely; of longer ones, as in perftest, only the stamp is written.
const FILLED_BYTES: usize = 256;

/// The numbers of messages continue from slice to slice.
#[derive(Debug, Default)]
pub struct Numbers(u64);

/// Sends messages of `size` bytes for a slice and waits until all are read; that time counts too. Latencies are
/// measured by the consumer. With `VERIFY` each message is filled completely, for a consumer that compares.
///
/// # Errors
/// When the ring fails.
pub fn produce<D: Device, const VERIFY: bool>(
    producer: &mut Producer<D>,
    size: usize,
    numbers: &mut Numbers,
    slice: Duration,
) -> Result<Tally, Failure> {
    let clock = clock();
    let start = clock.raw();
    let elapsed = || Duration::from_nanos(clock.delta_as_nanos(start, clock.raw()));
    let first = numbers.0;
    loop {
        for _ in 0..STRIDE {
            let number = numbers.0;
            let stamp = if number % SAMPLE == 0 { clock.raw() } else { 0 };
            send::<D, VERIFY>(producer, size, number, stamp)?;
            numbers.0 += 1;
        }
        if elapsed() >= slice {
            break;
        }
    }
    producer.flush().map_err(Failure::new)?;
    let mut patience = Patience::default();
    while !producer.is_drained().map_err(Failure::new)? {
        producer.poll().map_err(Failure::new)?;
        patience.wait()?;
    }
    let operations = numbers.0 - first;
    Ok(Tally {
        operations,
        bytes: operations * size as u64,
        elapsed: elapsed(),
        ..Tally::default()
    })
}

/// Writes a message: its number in all words of a short one, the stamp in the second.
#[inline(always)]
pub fn fill(place: &mut [u8], size: usize, number: u64, stamp: u64) {
    // A line is filled as the raw limit's ring fills its own: by a loop of known length.
    if size == 64 {
        if let Some(line) = place.first_chunk_mut::<64>() {
            let (words, _) = line.as_chunks_mut::<8>();
            let (head, rest) = words.split_at_mut(2);
            rest.fill(number.to_le_bytes());
            head.copy_from_slice(&[number.to_le_bytes(), stamp.to_le_bytes()]);
            return;
        }
    }
    let (words, _) = place.as_chunks_mut::<8>();
    if size <= FILLED_BYTES {
        words.fill(number.to_le_bytes());
    }
    if let [first, second, ..] = words {
        *first = number.to_le_bytes();
        *second = stamp.to_le_bytes();
    }
}

#[inline(always)]
fn send<D: Device, const VERIFY: bool>(
    producer: &mut Producer<D>,
    size: usize,
    number: u64,
    stamp: u64,
) -> Result<(), Failure> {
    // By value: what a closure refers to is stored for each message.
    let fill = move |place: &mut [u8]| match VERIFY {
        true => pattern::fill(&mut place[..size], number, stamp),
        false => fill(place, size, number, stamp),
    };
    match producer.try_send_with(size, fill) {
        Ok(()) => Ok(()),
        Err(error) => send_later(producer, size, fill, error),
    }
}

#[inline(never)]
fn send_later<D: Device>(
    producer: &mut Producer<D>,
    size: usize,
    fill: impl Fn(&mut [u8]),
    mut error: SendError,
) -> Result<(), Failure> {
    debug_assert!(size >= STAMP_BYTES);
    let mut patience = Patience::default();
    while error == SendError::Full {
        patience.wait()?;
        match producer.try_send_with(size, &fill) {
            Ok(()) => return Ok(()),
            Err(again) => error = again,
        }
    }
    Err(Failure::new(error))
}
