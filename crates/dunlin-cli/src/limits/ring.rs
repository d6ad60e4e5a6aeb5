//! Bare rings of 64 B slots in shared memory: a request-response engine, and one ring alone.

use std::hint::black_box;
use std::time::Duration;

use super::duel::{duel, rate_per_s, round_trips, Wait};
use super::raw::{ring_pair, spsc, Caller, Message, Payload};
use crate::histogram::Percentiles;

/// What the bare server does: it reads the whole request and writes a whole response.
#[inline]
fn echo(request: &Payload) -> Payload {
    *request
}

/// The round trip of one request at a time.
pub fn round_trip(duration: Duration) -> Percentiles {
    let (mut caller, mut answerer) = ring_pair(64, false);
    duel(
        |wait| {
            round_trips(duration, || {
                let sent = caller.outstanding();
                caller.send(&[sent; 7]);
                loop {
                    if let Some(response) = caller.receive() {
                        black_box(response);
                        return;
                    }
                    wait.again();
                }
            })
        },
        |wait| loop {
            if !answerer.serve(echo) && !wait.again() {
                return;
            }
        },
    )
}

/// Requests per second with `outstanding` of them in flight.
///
/// Both sides work in batches, and write the first slot of each batch last: of everything that was tried, this is the
/// fastest. Whether it pays to prefetch the next slots depends on the machine, so both are measured, and the better one
/// is the limit.
pub fn pipelined(outstanding: usize, duration: Duration) -> f64 {
    let measured = [false, true].map(|asks_ahead| paired(outstanding, asks_ahead, duration / 2));
    measured.into_iter().fold(0.0, f64::max)
}

fn paired(outstanding: usize, asks_ahead: bool, duration: Duration) -> f64 {
    let outstanding = outstanding.max(1) as u64;
    let together = (outstanding / 2).clamp(1, 16);
    let slots = outstanding.next_power_of_two().max(1024) as usize;
    let (mut caller, mut answerer) = ring_pair(slots, asks_ahead);
    duel(
        |wait| {
            rate_per_s(duration, || {
                batches(&mut caller, outstanding, together, wait)
            })
        },
        |wait| loop {
            if answerer.serve_many(together, echo) == 0 && !wait.again() {
                return;
            }
        },
    )
}

/// Some hundreds of responses, and batches of requests that take their places.
fn batches(caller: &mut Caller, outstanding: u64, together: u64, wait: &mut Wait<'_>) -> u64 {
    let mut received = 0;
    while received < 512 {
        while caller.outstanding() + together <= outstanding {
            caller.send_many(together, |position| [position; 7]);
        }
        let batch_end = received + together;
        while received < batch_end {
            if let Some(response) = caller.receive() {
                black_box(response);
                received += 1;
            } else {
                wait.again();
            }
        }
    }
    received
}

/// Messages of 64 B a second through one ring, published `together` at a time. Their reader counts them and does not
/// look at them, so their lines stay with the writer's core: see [`one_way_read`].
pub fn one_way(together: u64, duration: Duration) -> f64 {
    through(together, duration, |message| {
        black_box(message);
    })
}

/// The same with a reader that reads: each line crosses from core to core, as it does with every ring that is of use.
pub fn one_way_read(together: u64, duration: Duration) -> f64 {
    through(together, duration, |message| {
        black_box(message.iter().fold(0, |sum, word| sum ^ word));
    })
}

fn through(together: u64, duration: Duration, mut read: impl FnMut(&Message) + Send) -> f64 {
    let (mut producer, mut consumer) = spsc(1024);
    duel(
        |wait| {
            rate_per_s(duration, || {
                let mut sent = 0;
                while sent < 1024 {
                    if producer.send(together, |position| [position; 8]) {
                        sent += together;
                    } else {
                        wait.again();
                    }
                }
                sent
            })
        },
        |wait| loop {
            let received = consumer.receive(&mut read);
            if received == 0 && !wait.again() {
                return;
            }
        },
    )
}
