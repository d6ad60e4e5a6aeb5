//! Receiving, counting and checking what a producer sends.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, Ordering};

use dunlin_ring::{Consumer, Message};
use dunlin_verbs::Device;

use crate::clock::clock;
use crate::commands::Failure;
use crate::report::Tally;

/// Bytes of a message that mean something: its number and when it was sent.
pub const STAMP_BYTES: usize = 16;
/// Messages between two looks at anything else.
const MANY: usize = 64;
/// Empty looks after which a producer may be waiting to hear of the last messages.
const IDLE: u32 = 2000;

/// Receives until told to end. Messages carry their numbers; one that is not the next is an error.
///
/// # Errors
/// When the ring fails.
pub fn consume<D: Device>(consumer: &mut Consumer<D>, end: &AtomicBool) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    let mut next = None;
    let mut empty = 0u32;
    let clock = clock();
    loop {
        let count = consumer
            .receive_many(MANY, |message: Message<'_>| {
                let number = message.u64_at(0);
                let sent = message.u64_at(8);
                if next.is_some_and(|next| next != number) {
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
