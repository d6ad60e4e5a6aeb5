//! The two processes: the reader of the capture writes records in place into its side of the ring, the other one counts
//! them where they arrive.

use std::thread;
use std::time::{Duration, Instant};

use dunlin_ring::{
    Design, Offer, Producer, Received, RingConfig, SendError, UnconnectedConsumer,
    UnconnectedProducer, OFFER_BYTES,
};
use dunlin_verbs::Device;
use serde::{Deserialize, Serialize};

use super::capture::Capture;
use super::count::{Counter, Counts};
use super::{Record, RECORD_BYTES};
use crate::commands::Failure;
use crate::interrupt;
use crate::patience::Patience;
use crate::peer::{self, Orders, Peer, Role, Start};
use crate::verbs::devices::{on_device, OnDevice};

/// Slots of the ring, more than the usual 128: both sides have other work between two records, and if they share a core
/// each runs for as many records.
const SLOTS: usize = 4096;
/// Empty polls after which a side yields its core, and how long the counter sleeps when there was nothing for longer.
const LOOKS: u32 = 64;
const PATIENT: Duration = Duration::from_millis(1);
const NAP: Duration = Duration::from_micros(100);
/// Packets between two checks for Ctrl-C.
const INTERRUPTED_EVERY: u64 = 4096;

/// What the counting process needs to know.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Opening {
    /// The device's name.
    pub device: String,
    /// The ring's design, by name.
    pub design: String,
    /// Maximum number of flows counted separately.
    pub flows_max: usize,
    /// Number of flows to report.
    pub top: usize,
}

impl Opening {
    fn config(&self) -> Result<RingConfig, Failure> {
        let design = Design::ALL.into_iter().find(|one| one.name == self.design);
        let design =
            design.ok_or_else(|| Failure::usage(format!("unknown design {}", self.design)))?;
        let mut config = RingConfig::for_records(design, RECORD_BYTES);
        config.slots = SLOTS;
        Ok(config)
    }
}

/// The counting process.
#[derive(Debug)]
pub struct Counting;

impl Role for Counting {
    const COMMAND: &'static str = "traffic-peer";
    const WHO: &'static str = "the counting process";
    type Opening = Opening;
    type Offer = Vec<u8>;
    type Ended = Counts;
}

/// Counts for another process.
///
/// # Errors
/// When the other process sends an invalid message.
pub fn serve() -> Result<(), Failure> {
    peer::serve::<Counting>(|opening, orders| {
        let device = opening.device.clone();
        on_device(&device, Serving { opening, orders })
    })
}

struct Serving {
    opening: Opening,
    orders: Orders<Counting>,
}

fn offer(bytes: &[u8]) -> Result<Offer, Failure> {
    let bytes: &[u8; OFFER_BYTES] = bytes
        .try_into()
        .map_err(|_| Failure::new("received an offer of the wrong length"))?;
    Ok(Offer::decode(bytes))
}

impl OnDevice for Serving {
    type Output = ();

    fn run<D: Device>(self, device: D) -> Result<(), Failure> {
        let config = self.opening.config()?;
        let consumer = UnconnectedConsumer::new(&device, &config).map_err(Failure::new)?;
        let theirs = self.orders.exchange(consumer.offer().encode().to_vec())?;
        let mut consumer = consumer.connect(&offer(&theirs)?).map_err(Failure::new)?;
        self.orders.obey(|start: Start<'_>| {
            start.begin()?;
            let mut counter = Counter::new(self.opening.flows_max);
            let mut read = |message: dunlin_ring::Message<'_>| {
                if message.len() == RECORD_BYTES {
                    counter.take(&Record::read(&message.array(0)));
                }
            };
            let mut looks = 0;
            let mut since = None;
            loop {
                match consumer.receive(&mut read).map_err(Failure::new)? {
                    Received::Message(()) => (looks, since) = (0, None),
                    Received::End => break,
                    Received::Empty => {
                        looks += 1;
                        if looks % LOOKS == 0 {
                            thread::yield_now();
                            let since = *since.get_or_insert_with(Instant::now);
                            // The other side reads a file: it may wait for a disk.
                            if since.elapsed() > PATIENT {
                                thread::sleep(NAP);
                            }
                        }
                    }
                }
            }
            if counter.has_lost() {
                return Err(Failure::new("records are missing"));
            }
            Ok(counter.counts(self.opening.top))
        })
    }
}

/// Reads a capture to its end and has another process count it; returns the time taken from the first packet on.
///
/// # Errors
/// When the capture cannot be read, or the other process fails.
pub fn count(opening: &Opening, capture: &mut Capture) -> Result<(Counts, Duration), Failure> {
    on_device(&opening.device, Reading { opening, capture })
}

struct Reading<'a> {
    opening: &'a Opening,
    capture: &'a mut Capture,
}

impl OnDevice for Reading<'_> {
    type Output = (Counts, Duration);

    fn run<D: Device>(self, device: D) -> Result<Self::Output, Failure> {
        let mut peer = Peer::<Counting>::start()?;
        let theirs = peer.open(self.opening.clone())?;
        let producer = UnconnectedProducer::new(&device, &self.opening.config()?);
        let producer = producer.map_err(Failure::new)?;
        peer.connect(producer.offer().encode().to_vec())?;
        let mut producer = producer.connect(&offer(&theirs)?).map_err(Failure::new)?;
        peer.begin()?;
        let began = Instant::now();
        let mut sent = 0;
        while let Some(record) = next(self.capture, sent)? {
            send(&mut producer, &record)?;
            sent += 1;
        }
        producer.close().map_err(Failure::new)?;
        let mut patience = Patience::default();
        while !producer.is_closed() {
            producer.poll().map_err(Failure::new)?;
            patience.wait()?;
        }
        let counts = peer.end()?;
        let took = began.elapsed();
        peer.stop()?;
        if counts.all.packets != sent {
            let words = format!("only {} records of {sent} were counted", counts.all.packets);
            return Err(Failure::new(words));
        }
        Ok((counts, took))
    }
}

/// The next packet, until the end or Ctrl-C.
#[inline]
fn next(capture: &mut Capture, before: u64) -> Result<Option<Record>, Failure> {
    if before % INTERRUPTED_EVERY == 0 && interrupt::came() {
        return Ok(None);
    }
    capture.next_record().map_err(Failure::new)
}

/// Writes a record in place in the ring.
#[inline]
fn send<D: Device>(producer: &mut Producer<D>, record: &Record) -> Result<(), Failure> {
    match producer.try_send_with(RECORD_BYTES, |place| record.write(place)) {
        Ok(()) => Ok(()),
        Err(error) => send_later(producer, record, error),
    }
}

#[cold]
fn send_later<D: Device>(
    producer: &mut Producer<D>,
    record: &Record,
    mut error: SendError,
) -> Result<(), Failure> {
    let mut patience = Patience::default();
    while matches!(error, SendError::Full) {
        producer.poll().map_err(Failure::new)?;
        patience.wait()?;
        if patience.looks() % LOOKS == 0 {
            thread::yield_now();
        }
        match producer.try_send_with(RECORD_BYTES, |place| record.write(place)) {
            Ok(()) => return Ok(()),
            Err(again) => error = again,
        }
    }
    Err(Failure::new(error))
}

/// The same in this process only.
///
/// # Errors
/// When the capture cannot be read.
pub fn count_alone(
    opening: &Opening,
    capture: &mut Capture,
) -> Result<(Counts, Duration), Failure> {
    let began = Instant::now();
    let mut counter = Counter::new(opening.flows_max);
    let mut taken = 0;
    while let Some(record) = next(capture, taken)? {
        counter.take(&record);
        taken += 1;
    }
    let counts = counter.counts(opening.top);
    Ok((counts, began.elapsed()))
}
