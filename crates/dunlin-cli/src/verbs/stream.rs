//! The rate of SENDs, counted at the receiver.
//!
//! The last SEND of a list requests an acknowledgement with the number of messages received so far. This way the
//! receive queue never runs empty, and losses of an unreliable transport service are known.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use dunlin_verbs::{Device, Operation};

use super::endpoint::Endpoint;
use super::patience::Patience;
use super::ping_pong::{go_on, LOST_NS};
use super::Service;
use crate::clock::now_ns;
use crate::commands::Failure;
use crate::report::Tally;

/// Lists whose times are remembered; more than can be out.
const TIMES: usize = 4096;

/// Sends for a slice. Latency is from the doorbell of a list to its acknowledgement.
///
/// # Errors
/// When the peer does not answer.
pub fn run<D: Device>(endpoint: &mut Endpoint<D>, slice: Duration) -> Result<Tally, Failure> {
    // Any number will do that is not the one an earlier slice began with.
    let number = now_ns() as u32;
    let mut stream = Stream {
        tally: Tally::default(),
        times: vec![0; TIMES],
        lists: number,
        acknowledged: number,
        sent: 0,
        received: 0,
        completed: number,
    };
    // Where the peer's count stands.
    stream.send(endpoint, 1)?;
    stream.wait(endpoint, 0)?;
    let before = stream.received;
    stream.sent = 0;
    stream.tally = Tally::default();
    let batch = endpoint.plan().batch();
    let most = (endpoint.plan().outstanding / batch) as u32;
    let start = now_ns();
    let limit = slice.as_nanos() as u64;
    while now_ns() - start < limit {
        stream.send(endpoint, batch)?;
        stream.wait(endpoint, most - 1)?;
    }
    stream.wait(endpoint, 0)?;
    let mut tally = stream.tally;
    tally.elapsed = Duration::from_nanos(now_ns() - start);
    tally.operations = stream.received.wrapping_sub(before);
    tally.errors = stream.sent.abs_diff(tally.operations);
    tally.bytes = tally.operations * endpoint.plan().size as u64;
    Ok(tally)
}

struct Stream {
    tally: Tally,
    times: Vec<u64>,
    lists: u32,
    acknowledged: u32,
    sent: u64,
    received: u64,
    completed: u32,
}

impl Stream {
    fn send<D: Device>(&mut self, endpoint: &mut Endpoint<D>, batch: usize) -> Result<(), Failure> {
        self.lists = self.lists.wrapping_add(1);
        self.times[self.lists as usize % TIMES] = now_ns();
        self.sent += batch as u64;
        let immediate = Some(self.lists);
        endpoint.post_list(batch, Operation::Send { immediate }, 1)
    }

    /// Waits until at most `most` lists are unacknowledged, and the send queue has room for them.
    fn wait<D: Device>(&mut self, endpoint: &mut Endpoint<D>, most: u32) -> Result<(), Failure> {
        let reliable = endpoint.plan().service == Service::Rc;
        let (mut patience, mut probes) = (Patience::new(), 0);
        loop {
            endpoint.poll_sends(|_| self.completed = self.completed.wrapping_add(1))?;
            endpoint.poll_receives(|endpoint, list| self.acknowledge(endpoint, list))?;
            let out = self.lists.wrapping_sub(self.acknowledged);
            if out <= most && self.lists.wrapping_sub(self.completed) <= most {
                return Ok(());
            }
            patience.pause(endpoint)?;
            if !reliable && patience.waited_ns() > LOST_NS && probes < 10 {
                // An acknowledgement, or what asked for it, was lost: ask again.
                probes += 1;
                patience = Patience::new();
                self.send(endpoint, 1)?;
            }
        }
    }

    #[inline]
    fn acknowledge<D: Device>(&mut self, endpoint: &Endpoint<D>, list: Option<u32>) {
        let Some(list) = list else { return };
        // Later ones say more; those of an earlier slice say nothing.
        let ahead = list.wrapping_sub(self.acknowledged);
        if ahead == 0 || ahead > self.lists.wrapping_sub(self.acknowledged) {
            return;
        }
        let begun = self.times[list as usize % TIMES];
        self.tally.latencies.record(now_ns() - begun);
        self.acknowledged = list;
        self.received = endpoint.first_in();
    }
}

/// Receives, counts and acknowledges until ordered to end. `received` continues from slice to slice.
///
/// # Errors
/// When a request fails.
pub fn acknowledge<D: Device>(
    endpoint: &mut Endpoint<D>,
    received: &mut u64,
    end: &AtomicBool,
) -> Result<(), Failure> {
    let mut looks = 0;
    loop {
        let mut asked = None;
        let count = endpoint.poll_receives(|_, number| {
            *received += 1;
            asked = number.or(asked);
        })?;
        if let Some(number) = asked {
            let immediate = Some(number);
            let message = received.to_le_bytes();
            endpoint.post_single(Operation::Send { immediate }, Some(&message))?;
        } else if count == 0 && !go_on(endpoint, &mut looks, end)? {
            return Ok(());
        }
    }
}
