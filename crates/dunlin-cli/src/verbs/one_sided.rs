//! READ, atomics and the rate of WRITEs: the passive side sleeps.

use std::time::Duration;

use dunlin_verbs::Device;

use super::endpoint::Endpoint;
use super::patience::Patience;
use super::Test;
use crate::clock::now_ns;
use crate::commands::Failure;
use crate::report::Tally;

/// Keeps requests outstanding for a slice. Latency is from the doorbell of a list to the completion of its last
/// request.
///
/// # Errors
/// When a request fails, or does not complete.
pub fn run<D: Device>(endpoint: &mut Endpoint<D>, slice: Duration) -> Result<Tally, Failure> {
    let plan = endpoint.plan();
    let (batch, operation) = (plan.batch(), endpoint.operation());
    let mut tally = Tally::default();
    let (mut posted, mut done) = (0u64, 0u64);
    let before = (plan.test == Test::Atomic)
        .then(|| count(endpoint))
        .transpose()?;
    let start = now_ns();
    let limit = slice.as_nanos() as u64;
    let mut over = false;
    while !over || done < posted {
        let mut now = now_ns();
        over = over || now - start >= limit;
        while !over && posted - done + batch as u64 <= plan.outstanding as u64 {
            endpoint.post_list(batch, operation, now)?;
            posted += batch as u64;
            if posted - done < plan.outstanding as u64 {
                now = now_ns();
            }
        }
        let mut patience = Patience::new();
        loop {
            let had = done;
            endpoint.poll_sends(|begun| {
                tally.latencies.record(now_ns() - begun);
                done += batch as u64;
            })?;
            if done > had || done == posted {
                break;
            }
            patience.pause(endpoint)?;
        }
    }
    tally.elapsed = Duration::from_nanos(now_ns() - start);
    tally.operations = done;
    tally.bytes = done * plan.size as u64;
    // Each addition counted once, or the device is wrong.
    if let Some(before) = before {
        tally.errors = (before + done + 1).abs_diff(count(endpoint)?);
    }
    // The peer's memory is full of sevens.
    if plan.test == Test::Read && endpoint.first_in() as u8 != 7 {
        tally.errors += 1;
    }
    Ok(tally)
}

/// One more fetch-and-add: what was there before it.
fn count<D: Device>(endpoint: &mut Endpoint<D>) -> Result<u64, Failure> {
    let operation = endpoint.operation();
    endpoint.post_list(1, operation, 0)?;
    let (mut done, mut patience) = (false, Patience::new());
    while !done {
        endpoint.poll_sends(|_| done = true)?;
        patience.pause(endpoint)?;
    }
    Ok(endpoint.old())
}
