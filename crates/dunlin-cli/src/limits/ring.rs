//! Bare rings of 64 B slots in shared memory: a request-response engine, and one ring alone.

use std::hint::black_box;
use std::time::Duration;

use super::duel::{duel, rate_per_s, round_trips, Wait};
use super::raw::{ring_pair, spsc, Answerer, Caller, Payload};
use crate::histogram::Percentiles;

/// What the bare server does: it reads the whole request and writes a whole response.
#[inline]
fn echo(request: &Payload) -> Payload {
    *request
}

fn serve(mut answerer: Answerer, wait: &mut Wait<'_>) {
    loop {
        if !answerer.serve(echo) && !wait.again() {
            return;
        }
    }
}

/// The round trip of one request at a time.
pub fn round_trip(duration: Duration) -> Percentiles {
    let (mut caller, answerer) = ring_pair(64);
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
        |wait| serve(answerer, wait),
    )
}

/// Requests a second with `outstanding` of them under way.
pub fn pipelined(outstanding: usize, duration: Duration) -> f64 {
    let outstanding = outstanding.max(1);
    let (mut caller, answerer) = ring_pair(slots_for(outstanding));
    duel(
        |wait| rate_per_s(duration, || batch(&mut caller, outstanding as u64, wait)),
        |wait| serve(answerer, wait),
    )
}

/// Some hundreds of responses, each followed by the request that takes its place.
fn batch(caller: &mut Caller, outstanding: u64, wait: &mut Wait<'_>) -> u64 {
    let mut received = 0;
    while received < 512 {
        while caller.outstanding() < outstanding {
            caller.send(&[received; 7]);
        }
        let before = received;
        while let Some(response) = caller.receive() {
            black_box(response);
            received += 1;
        }
        if received == before {
            wait.again();
        }
    }
    received
}

/// A ring no larger than it must be stays in the nearest cache.
fn slots_for(outstanding: usize) -> usize {
    outstanding.next_power_of_two().max(64)
}

/// Messages of 64 B a second through one ring, published `together` at a time.
pub fn one_way(together: u64, duration: Duration) -> f64 {
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
            let received = consumer.receive(|message| {
                black_box(message);
            });
            if received == 0 && !wait.again() {
                return;
            }
        },
    )
}
