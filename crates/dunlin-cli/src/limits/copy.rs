//! Copies into shared memory: the cost of copying a payload once.

use std::hint::black_box;
use std::io;
use std::time::Duration;

use super::duel::{duel, rate_per_s};
use super::raw::{baton, SharedBytes};

/// Larger than any cache here, so that a copy goes from memory to memory.
pub const COLD_SIZE: usize = 64 << 20;

/// Bytes a second when one core copies the same `size` bytes again and again into shared memory.
pub fn hot(size: usize, duration: Duration) -> io::Result<f64> {
    let size = size.max(1);
    let source = vec![1_u8; size];
    let mut destination = SharedBytes::new(size)?;
    let repeat = (64_usize << 10).div_ceil(size);
    let copies_per_s = duel(
        |_| {
            rate_per_s(duration, || {
                for _ in 0..repeat {
                    destination.bytes().copy_from_slice(black_box(&source));
                    black_box(destination.bytes());
                }
                repeat as u64
            })
        },
        |_| {},
    );
    Ok(copies_per_s * size as f64)
}

/// The same, with each copy read by the other core before the next one is made.
pub fn handed_over(size: usize, duration: Duration) -> io::Result<f64> {
    let size = size.max(8);
    let source = vec![1_u8; size];
    let (mut client, mut server) = baton(SharedBytes::new(size)?);
    let handed_per_s = duel(
        |wait| {
            rate_per_s(duration, || {
                while !client.turn(|memory| memory.copy_from_slice(black_box(&source))) {
                    wait.again();
                }
                1
            })
        },
        |wait| loop {
            let turned = server.turn(|memory| {
                // One word of each cache line brings the line over.
                let sum = memory
                    .iter()
                    .step_by(64)
                    .fold(0_u64, |sum, &b| sum + u64::from(b));
                black_box(sum);
            });
            if !turned && !wait.again() {
                return;
            }
        },
    );
    Ok(handed_per_s * size as f64)
}

/// Bytes a second when nothing is in a cache: 64 MiB from one place to another, in turns.
pub fn cold(duration: Duration) -> io::Result<f64> {
    hot(COLD_SIZE, duration)
}
