//! Latency of WRITE and SEND: one side answers the other, and the whole round trip is measured.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dunlin_verbs::{Device, Operation};

use super::endpoint::Endpoint;
use super::patience::Patience;
use super::Service;
use crate::clock::now_ns;
use crate::commands::Failure;
use crate::report::Tally;

/// An answer over an unreliable service that takes longer than this is lost.
pub const LOST_NS: u64 = 1_000_000_000;

/// Round trips of WRITEs: each side polls the last byte of its memory. What an unreliable service loses is an error,
/// and the next one goes out.
///
/// # Errors
/// When the peer does not answer.
pub fn by_write<D: Device>(endpoint: &mut Endpoint<D>, slice: Duration) -> Result<Tally, Failure> {
    let operation = endpoint.operation();
    let reliable = endpoint.plan().service == Service::Rc;
    // Counted here: after an answer that was lost the peer has seen what our memory does not show.
    let mut value = endpoint.last_in();
    repeat(endpoint, slice, |endpoint| {
        value = value.wrapping_add(1);
        endpoint.set_last_out(value);
        endpoint.post_single(operation, None)?;
        let mut patience = Patience::new();
        while endpoint.last_in() != value {
            patience.wait(endpoint)?;
            if !reliable && patience.waited_ns() > LOST_NS {
                return Ok(false);
            }
        }
        Ok(true)
    })
}

/// Round trips of SENDs. A loss on an unreliable transport service counts as an error, and the next one is sent.
///
/// # Errors
/// When the peer does not answer.
pub fn by_send<D: Device>(endpoint: &mut Endpoint<D>, slice: Duration) -> Result<Tally, Failure> {
    let reliable = endpoint.plan().service == Service::Rc;
    let mut number = now_ns() as u32;
    repeat(endpoint, slice, |endpoint| {
        number = number.wrapping_add(1);
        let immediate = Some(number);
        endpoint.post_single(Operation::Send { immediate }, None)?;
        let (mut answered, mut patience) = (false, Patience::new());
        loop {
            endpoint.poll_receives(|_, came| answered |= came == immediate)?;
            if answered {
                return Ok(true);
            }
            patience.wait(endpoint)?;
            if !reliable && patience.waited_ns() > LOST_NS {
                return Ok(false);
            }
        }
    })
}

fn repeat<D: Device>(
    endpoint: &mut Endpoint<D>,
    slice: Duration,
    mut round: impl FnMut(&mut Endpoint<D>) -> Result<bool, Failure>,
) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    let start = now_ns();
    let limit = slice.as_nanos() as u64;
    let mut before = start;
    while before - start < limit {
        let answered = round(endpoint)?;
        let after = now_ns();
        if answered {
            tally.latencies.record(after - before);
            tally.operations += 1;
        } else {
            tally.errors += 1;
        }
        before = after;
    }
    tally.bytes = tally.operations * endpoint.plan().size as u64;
    tally.elapsed = Duration::from_nanos(before - start);
    Ok(tally)
}

/// Answers each WRITE with the same last byte until told to end. `seen` is the last byte from before the peer was told
/// that it may write: what comes meanwhile would be taken for old otherwise, and both sides would wait.
///
/// # Errors
/// When a request fails.
pub fn answer_writes<D: Device>(
    endpoint: &mut Endpoint<D>,
    mut seen: u8,
    end: &AtomicBool,
) -> Result<(), Failure> {
    let operation = endpoint.operation();
    loop {
        let mut looks = 0u32;
        while endpoint.last_in() == seen {
            if !go_on(endpoint, &mut looks, end)? {
                return Ok(());
            }
        }
        seen = endpoint.last_in();
        endpoint.set_last_out(seen);
        endpoint.post_single(operation, None)?;
    }
}

/// Answers each SEND with its own immediate data until ordered to end.
///
/// # Errors
/// When a request fails.
pub fn answer_sends<D: Device>(
    endpoint: &mut Endpoint<D>,
    end: &AtomicBool,
) -> Result<(), Failure> {
    let mut looks = 0;
    loop {
        let mut number = None;
        if endpoint.poll_receives(|_, came| number = came)? == 0 {
            if !go_on(endpoint, &mut looks, end)? {
                return Ok(());
            }
            continue;
        }
        endpoint.post_single(Operation::Send { immediate: number }, None)?;
    }
}

/// Called between two polls of the passive side; returns `false` when it is to end.
#[inline]
pub fn go_on<D: Device>(
    endpoint: &mut Endpoint<D>,
    looks: &mut u32,
    end: &AtomicBool,
) -> Result<bool, Failure> {
    std::hint::spin_loop();
    *looks = looks.wrapping_add(1);
    if *looks % 16 == 0 {
        endpoint.reap()?;
    }
    if *looks % 4096 == 0 {
        std::thread::yield_now();
    }
    Ok(!end.load(Ordering::Relaxed))
}
