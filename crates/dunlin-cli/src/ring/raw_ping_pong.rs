//! Raw ping-pong: the cost of a round trip without a ring.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dunlin_verbs::{
    Access, Completion, CompletionQueue, Device, Operation, Payload, Placement, QueuePair, Region,
    RemoteAddress, RemoteKey, Segment, SendFlags, SendRequest,
};

use super::raw::{Side, SIGNAL_EVERY};
use super::Plan;
use crate::clock::clock;
use crate::commands::Failure;
use crate::patience::Patience;
use crate::report::Tally;

/// Raw ping-pong, as `ib_write_lat` of perftest: a WRITE there, and a WRITE back as soon as its last word is seen.
#[derive(Debug)]
pub struct RawPlayer<D: Device> {
    side: Side<D>,
    target: RemoteAddress,
    size: usize,
    /// Where the peer's message ends, and where the own one begins: two slots of the region.
    last_word: usize,
    own: usize,
    rounds: u64,
    posted: u64,
}

impl<D: Device> RawPlayer<D> {
    /// Creates it, unconnected.
    ///
    /// # Errors
    /// When the device does not place WRITEs in order, so that the last word proves nothing; when the device's limits
    /// do not permit it.
    pub fn new(device: &D, plan: &Plan) -> Result<Self, Failure> {
        if device.attributes().placement != Placement::InOrder {
            return Err(Failure::new(
                "raw ping-pong polls the last word of a WRITE, but this device does not place data in order",
            ));
        }
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let plan = Plan {
            slots: plan.slots.max(2),
            ..plan.clone()
        };
        let side = Side::new(device, &plan, access)?;
        let size = plan.size.next_multiple_of(8);
        Ok(Self {
            side,
            target: RemoteAddress {
                address: 0,
                key: RemoteKey(0),
            },
            size,
            last_word: size - 8,
            own: plan.raw_slot_bytes(),
            rounds: 0,
            posted: 0,
        })
    }

    /// Its offer to the other side.
    pub fn offer(&self) -> Vec<u8> {
        self.side.offer()
    }

    /// Connects it to the other side.
    ///
    /// # Errors
    /// When the offer is invalid.
    pub fn connect(&mut self, offer: &[u8]) -> Result<(), Failure> {
        self.target = self.side.connect(offer)?;
        Ok(())
    }

    /// Makes round trips for a slice; latencies are those of round trips.
    ///
    /// # Errors
    /// When a request fails, or the other side is silent for 10 s.
    pub fn ping(&mut self, slice: Duration) -> Result<Tally, Failure> {
        let mut tally = Tally::default();
        let clock = clock();
        let start = clock.raw();
        let mut before = start;
        while Duration::from_nanos(clock.delta_as_nanos(start, before)) < slice {
            self.rounds += 1;
            self.send(self.rounds)?;
            let mut patience = Patience::default();
            while self.heard() != self.rounds {
                patience.wait()?;
            }
            let now = clock.raw();
            tally.latencies.record(clock.delta_as_nanos(before, now));
            before = now;
            tally.operations += 1;
        }
        tally.bytes = tally.operations * self.size as u64;
        tally.elapsed = Duration::from_nanos(clock.delta_as_nanos(start, before));
        Ok(tally)
    }

    /// Answers until ordered to end.
    ///
    /// # Errors
    /// When a request fails.
    pub fn answer(&mut self, end: &AtomicBool) -> Result<Tally, Failure> {
        let mut looks = 0u32;
        loop {
            let heard = self.heard();
            if heard != self.rounds {
                self.rounds = heard;
                self.send(heard)?;
                continue;
            }
            std::hint::spin_loop();
            looks = looks.wrapping_add(1);
            if looks % 2000 == 0 {
                std::thread::yield_now();
                if end.load(Ordering::Relaxed) {
                    return Ok(Tally::default());
                }
            }
        }
    }

    fn heard(&self) -> u64 {
        let word = self.side.region.memory().atomic_u64(self.last_word);
        word.load(Ordering::Acquire)
    }

    fn send(&mut self, number: u64) -> Result<(), Failure> {
        let at = self.own + self.last_word;
        let word = self.side.region.memory().atomic_u64(at);
        word.store(number, Ordering::Relaxed);
        let segment = [Segment {
            region: &self.side.region,
            offset: self.own,
            length: self.size,
        }];
        self.posted += 1;
        let signaled = self.posted % SIGNAL_EVERY == 0;
        let flags = if signaled {
            SendFlags::SIGNALED
        } else {
            SendFlags::empty()
        };
        let write = Operation::Write {
            remote: self.target,
            immediate: None,
        };
        let request = SendRequest::new(0, write, Payload::Segments(&segment), flags);
        self.side.pair.post_send(&[request]).map_err(Failure::new)?;
        if signaled {
            let mut done = [Completion::EMPTY; 4];
            let polled = self.side.completions.poll(&mut done);
            let count = polled.map_err(Failure::new)?;
            if let Some(failed) = done[..count].iter().find(|one| !one.is_success()) {
                let words = format!("a request failed: {}", failed.status);
                return Err(Failure::new(words));
            }
        }
        Ok(())
    }
}
