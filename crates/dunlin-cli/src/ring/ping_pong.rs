//! Ping-pong (RB² Exp#2): one message there, one of the same length back, nothing else in flight. One ring in each
//! direction.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dunlin_ring::{
    Consumer, Message, Producer, Received, RingConfig, SendError, StreamOffer, UnconnectedConsumer,
    UnconnectedProducer, STREAM_OFFER_BYTES,
};
use dunlin_verbs::Device;

use super::pattern;
use super::produce::fill;
use crate::clock::clock;
use crate::commands::Failure;
use crate::patience::Patience;
use crate::report::Tally;

/// Rounds between two reads of the clock.
const STRIDE: u64 = 16;
/// Empty polls between two checks of whether the slice is over.
const LOOKS: u32 = 2000;

/// Batching is off, as in the paper's measurement of latency.
pub fn for_latency(config: RingConfig) -> RingConfig {
    let design = config.design.without(dunlin_ring::Optimisation::Batching);
    RingConfig { design, ..config }
}

/// Both rings of one side, unconnected.
#[derive(Debug)]
pub struct UnconnectedPlayer<D: Device> {
    producer: UnconnectedProducer<D>,
    consumer: UnconnectedConsumer<D>,
}

impl<D: Device> UnconnectedPlayer<D> {
    /// Creates them.
    ///
    /// # Errors
    /// When the device's limits do not permit it, or the design does not support it.
    pub fn new(device: &D, config: &RingConfig) -> Result<Self, Failure> {
        let config = for_latency(*config);
        Ok(Self {
            producer: UnconnectedProducer::new(device, &config).map_err(Failure::new)?,
            consumer: UnconnectedConsumer::new(device, &config).map_err(Failure::new)?,
        })
    }

    /// Their offers to the other side.
    pub fn offer(&self) -> Vec<u8> {
        let offer = StreamOffer {
            producer: self.producer.offer(),
            consumer: self.consumer.offer(),
        };
        offer.encode().to_vec()
    }

    /// Connects them to the other side's.
    ///
    /// # Errors
    /// When the offer is invalid, or of other rings.
    pub fn connect(self, theirs: &[u8]) -> Result<Player<D>, Failure> {
        let bytes: &[u8; STREAM_OFFER_BYTES] = theirs
            .try_into()
            .map_err(|_| Failure::new("received an offer of the wrong length"))?;
        let theirs = StreamOffer::decode(bytes);
        let producer = self.producer.connect(&theirs.consumer);
        let consumer = self.consumer.connect(&theirs.producer);
        Ok(Player {
            producer: producer.map_err(Failure::new)?,
            consumer: consumer.map_err(Failure::new)?,
            rounds: 0,
        })
    }
}

/// One side.
#[derive(Debug)]
pub struct Player<D: Device> {
    producer: Producer<D>,
    consumer: Consumer<D>,
    rounds: u64,
}

impl<D: Device> Player<D> {
    /// Makes round trips for a slice; latencies are those of round trips. With `verify` messages are filled completely,
    /// and compared by both sides.
    ///
    /// # Errors
    /// When a ring fails, or the other side is silent for 10 s.
    pub fn ping(&mut self, size: usize, verify: bool, slice: Duration) -> Result<Tally, Failure> {
        let mut tally = Tally::default();
        let clock = clock();
        let start = clock.raw();
        let mut before = start;
        while Duration::from_nanos(clock.delta_as_nanos(start, before)) < slice {
            for _ in 0..STRIDE {
                self.send(size, verify, self.rounds)?;
                let mut patience = Patience::default();
                let (number, whole) = loop {
                    match self.take(size, verify)? {
                        Some(taken) => break taken,
                        None => patience.wait()?,
                    }
                };
                let now = clock.raw();
                tally.errors += u64::from(number != self.rounds || !whole);
                tally.latencies.record(clock.delta_as_nanos(before, now));
                before = now;
                self.rounds += 1;
                tally.operations += 1;
            }
        }
        tally.bytes = tally.operations * size as u64;
        tally.elapsed = Duration::from_nanos(clock.delta_as_nanos(start, before));
        Ok(tally)
    }

    /// Answers each message with one of the same number, until ordered to end.
    ///
    /// # Errors
    /// When a ring fails.
    pub fn answer(
        &mut self,
        size: usize,
        verify: bool,
        end: &AtomicBool,
    ) -> Result<Tally, Failure> {
        let mut tally = Tally::default();
        let mut empty = 0u32;
        loop {
            if let Some((number, whole)) = self.take(size, verify)? {
                tally.errors += u64::from(!whole);
                self.send(size, verify, number)?;
                empty = 0;
                continue;
            }
            spin_loop();
            empty = empty.wrapping_add(1);
            if empty % LOOKS == 0 {
                std::thread::yield_now();
                if end.load(Ordering::Relaxed) {
                    return Ok(tally);
                }
            }
        }
    }

    fn send(&mut self, size: usize, verify: bool, number: u64) -> Result<(), Failure> {
        let mut patience = Patience::default();
        loop {
            let sent = self.producer.try_send_with(size, |place| match verify {
                true => pattern::fill(&mut place[..size], number, 0),
                false => fill(place, size, number, 0),
            });
            match sent {
                Ok(()) => return self.producer.flush().map_err(Failure::new),
                Err(SendError::Full) => patience.wait()?,
                Err(error) => return Err(Failure::new(error)),
            }
        }
    }

    /// The number of the next message, and whether all of it is right if that is to be verified.
    fn take(&mut self, size: usize, verify: bool) -> Result<Option<(u64, bool)>, Failure> {
        let look = |message: Message<'_>| {
            let whole = !verify || pattern::holds(&message, size);
            (message.u64_at(0), whole)
        };
        match self.consumer.receive(look) {
            Ok(Received::Message(taken)) => Ok(Some(taken)),
            Ok(Received::Empty) => Ok(None),
            Ok(Received::End) => Err(Failure::new("the other side has ended")),
            Err(error) => Err(Failure::new(error)),
        }
    }
}
