//! One cache line exchanged between two cores.

use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Release};
use std::time::Duration;

use super::duel::{duel, round_trips};
use super::raw::Alone;
use crate::histogram::Percentiles;

/// A count on one cache line, raised by turns: the round trip between the two cores.
pub fn ping_pong(duration: Duration) -> Percentiles {
    let line = Alone(AtomicU64::new(0));
    let line = &line.0;
    duel(
        |wait| {
            let mut count = 0;
            round_trips(duration, || {
                line.store(count + 1, Release);
                while line.load(Acquire) != count + 2 {
                    wait.again();
                }
                count += 2;
            })
        },
        |wait| {
            let mut count = 1;
            loop {
                if line.load(Acquire) == count {
                    line.store(count + 1, Release);
                    count += 2;
                } else if !wait.again() {
                    return;
                }
            }
        },
    )
}
