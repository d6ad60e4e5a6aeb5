//! The connection to one other rank: a ring in each direction, over any device.
//!
//! The code of a ring is compiled for its device, and each pair of ranks chooses its own, so the type of the device is
//! hidden behind one virtual call for each step.

use std::collections::BTreeMap;

use dunlin_bootstrap::{Address, Capability, Refusal};
use dunlin_ring::{
    ConfigError, Consumer, Message, Producer, Received, RingConfig, RingError, SendError,
    StreamOffer, UnconnectedConsumer, UnconnectedProducer, STREAM_OFFER_BYTES,
};
use dunlin_rpc::{capabilities_towards, visit_device, DeviceVisitor};
use dunlin_verbs::{Device, PeerConfirmation};
use std::time::Duration;

use crate::error::JoinError;

/// Time within which a peer's device must confirm that the queue pairs are its own.
const CONFIRMING: Duration = Duration::from_secs(2);
/// The two offers of a rank, of its producer and of its consumer: as those of a stream.
const OFFERS_BYTES: usize = STREAM_OFFER_BYTES;

/// What was found at the head of the inbound ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// A message, which was consumed.
    Message,
    /// A message, which was left in the ring.
    Left,
    /// Nothing at present.
    Empty,
    /// The other rank has closed the ring.
    End,
}

/// Two connected rings.
pub(crate) trait Link: Send + std::fmt::Debug {
    /// Sends a ring message that `fill` makes in its slots; false when the ring is full.
    fn try_send(
        &mut self,
        length: usize,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<bool, RingError>;
    /// Passes the next ring message to `take`, which returns whether it has consumed it.
    fn take(&mut self, take: &mut dyn FnMut(Message<'_>) -> bool) -> Result<Taken, RingError>;
    /// Publishes everything that was sent.
    fn flush(&mut self) -> Result<(), RingError>;
    /// Does what is due.
    fn poll(&mut self) -> Result<(), RingError>;
    /// Checks whether the other rank is alive, about once a second.
    fn probe(&mut self) -> Result<(), RingError>;
    /// Ends the outbound ring.
    fn close(&mut self) -> Result<(), RingError>;
    /// Whether its end is known to have arrived.
    fn is_closed(&self) -> bool;
}

#[derive(Debug)]
struct Rings<D: Device> {
    producer: Producer<D>,
    consumer: Consumer<D>,
}

impl<D: Device> Link for Rings<D> {
    fn try_send(
        &mut self,
        length: usize,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<bool, RingError> {
        match self.producer.try_send_with(length, fill) {
            Ok(()) => Ok(true),
            Err(SendError::Full) => Ok(false),
            Err(SendError::Ring(error)) => Err(error),
            // The settings were checked, and nothing is sent after the end.
            Err(SendError::Length { .. } | SendError::Closed | _) => Err(RingError::PeerLost),
        }
    }

    fn take(&mut self, take: &mut dyn FnMut(Message<'_>) -> bool) -> Result<Taken, RingError> {
        Ok(match self.consumer.peek()? {
            Received::Message(arrived) => match take(arrived.message()) {
                true => {
                    arrived.give_back()?;
                    Taken::Message
                }
                false => {
                    arrived.leave();
                    Taken::Left
                }
            },
            Received::Empty => Taken::Empty,
            Received::End => Taken::End,
        })
    }

    fn flush(&mut self) -> Result<(), RingError> {
        self.producer.flush()
    }

    fn poll(&mut self) -> Result<(), RingError> {
        self.producer.poll()?;
        self.consumer.poll()
    }

    fn probe(&mut self) -> Result<(), RingError> {
        self.producer.probe()?;
        self.consumer.probe()
    }

    fn close(&mut self) -> Result<(), RingError> {
        self.consumer.push()?;
        self.producer.close()
    }

    fn is_closed(&self) -> bool {
        self.producer.is_closed()
    }
}

/// Two rings of this side that are not connected yet.
pub(crate) trait OpenLink {
    /// Connects them to the offers of the other side.
    fn connect(self: Box<Self>, theirs: &[u8; OFFERS_BYTES]) -> Result<Box<dyn Link>, ConfigError>;
}

impl<D: Device> OpenLink for (UnconnectedProducer<D>, UnconnectedConsumer<D>) {
    fn connect(self: Box<Self>, theirs: &[u8; OFFERS_BYTES]) -> Result<Box<dyn Link>, ConfigError> {
        let (producer, consumer) = *self;
        let theirs = StreamOffer::decode(theirs);
        Ok(Box::new(Rings {
            producer: producer.connect(&theirs.consumer)?,
            consumer: consumer.connect(&theirs.producer)?,
        }))
    }
}

/// Creates the rings of this side on the device of this name, towards the rank at an address.
pub(crate) fn open(
    device: &str,
    towards: Option<&Address>,
    config: &RingConfig,
) -> Result<(Box<dyn OpenLink>, [u8; OFFERS_BYTES]), JoinError> {
    visit_device(device, towards, Opening(config))?
}

struct Opening<'a>(&'a RingConfig);

impl DeviceVisitor for Opening<'_> {
    type Output = Result<(Box<dyn OpenLink>, [u8; OFFERS_BYTES]), JoinError>;

    fn visit<D: Device>(self, device: &D) -> Self::Output {
        let producer = UnconnectedProducer::new(device, self.0)?;
        let consumer = UnconnectedConsumer::new(device, self.0)?;
        let offers = StreamOffer {
            producer: producer.offer(),
            consumer: consumer.offer(),
        };
        Ok((Box::new((producer, consumer)), offers.encode()))
    }
}

/// Creates the rings of this side on the device of this name, and connects them to the offers of a rank that has
/// connected. Its device must confirm them before anything is created.
pub(crate) fn admit(
    device: &str,
    config: &RingConfig,
    theirs: &[u8; OFFERS_BYTES],
) -> Result<(Box<dyn Link>, [u8; OFFERS_BYTES]), Refusal> {
    let admitted = visit_device(device, None, Admitting { config, theirs });
    admitted.unwrap_or_else(|error| Err(rejected(error)))
}

struct Admitting<'a> {
    config: &'a RingConfig,
    theirs: &'a [u8; OFFERS_BYTES],
}

impl DeviceVisitor for Admitting<'_> {
    type Output = Result<(Box<dyn Link>, [u8; OFFERS_BYTES]), Refusal>;

    fn visit<D: Device>(self, device: &D) -> Self::Output {
        let StreamOffer { producer, consumer } = StreamOffer::decode(self.theirs);
        for address in [&producer.address, &consumer.address] {
            match device.confirm_peer(address, CONFIRMING) {
                Ok(PeerConfirmation::Confirmed { .. }) => {}
                // Its process may only have no time at present: the handshake tries again.
                Ok(PeerConfirmation::Silent) => return Err(Refusal::Unconfirmed),
                Err(error) => return Err(rejected(error)),
            }
        }
        let opened = Opening(self.config).visit(device);
        let (rings, offers) = opened.map_err(rejected)?;
        let mut offers = StreamOffer::decode(&offers);
        for own in [&mut offers.producer, &mut offers.consumer] {
            own.address = device.address_for(own.address, &producer.address);
        }
        let link = rings.connect(self.theirs).map_err(rejected)?;
        Ok((link, offers.encode()))
    }
}

fn rejected(error: impl std::fmt::Display) -> Refusal {
    Refusal::rejected(error.to_string())
}

/// Encodes offers as numbers of the handshake, by their positions.
pub(crate) fn to_numbers(offers: &[u8; OFFERS_BYTES]) -> BTreeMap<String, u64> {
    let words = offers.as_chunks().0.iter().enumerate();
    words
        .map(|(at, word)| (format!("{at:02}"), u64::from_le_bytes(*word)))
        .collect()
}

/// Decodes the offers in these numbers.
pub(crate) fn from_numbers(
    numbers: &BTreeMap<String, u64>,
) -> Result<[u8; OFFERS_BYTES], &'static str> {
    let mut offers = [0; OFFERS_BYTES];
    for (at, bytes) in offers.chunks_exact_mut(8).enumerate() {
        let word = numbers.get(&format!("{at:02}"));
        let word = word.ok_or("a part of its offer is missing")?;
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    Ok(offers)
}

/// The devices that can be used here, all or those with the name or kind `only`.
pub(crate) fn capabilities(
    only: Option<&str>,
    towards: Option<&Address>,
) -> Result<Vec<Capability>, JoinError> {
    let described = capabilities_towards(towards);
    let (mut found, missing) = described.map_err(|source| JoinError::Io {
        call: "this host's identity",
        source,
    })?;
    let names: Vec<String> = found.iter().map(|one| one.device.clone()).collect();
    found.retain(|one| only.is_none_or(|only| one.device == only || one.kind() == only));
    match found.is_empty() {
        true => {
            let missing = missing.join("; ");
            Err(JoinError::Device(match only {
                Some(only) => format!(
                    "'{only}' cannot be used on this host, which has {}; not available: {missing}",
                    names.join(", ")
                ),
                None => missing,
            }))
        }
        false => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offers_come_back_from_numbers() {
        let offers: [u8; OFFERS_BYTES] = std::array::from_fn(|at| at as u8);
        let mut numbers = to_numbers(&offers);
        assert_eq!(from_numbers(&numbers), Ok(offers));
        numbers.remove("07");
        assert!(from_numbers(&numbers).is_err());
    }
}
