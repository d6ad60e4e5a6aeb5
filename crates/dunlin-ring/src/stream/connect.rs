//! How the two ends of a stream come together.

use dunlin_verbs::Device;

use super::Stream;
use crate::{
    ConfigError, Design, Offer, RingConfig, UnconnectedConsumer, UnconnectedProducer, OFFER_BYTES,
};

/// The rings of a stream: RB² without batching of messages, because a stream does not know what its writer will do
/// next; 512 slots of 256 bytes each way.
pub fn stream_config() -> RingConfig {
    RingConfig {
        design: Design::RB2_LATENCY,
        slots: 512,
        slot_bytes: 256,
        ..RingConfig::default()
    }
}

/// What one end of a stream tells the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamOffer {
    /// Of the ring that this end writes.
    pub producer: Offer,
    /// Of the ring that this end reads.
    pub consumer: Offer,
}

/// Bytes of an encoded [`StreamOffer`].
pub const STREAM_OFFER_BYTES: usize = 2 * OFFER_BYTES;

impl StreamOffer {
    /// The wire form.
    pub fn encode(&self) -> [u8; STREAM_OFFER_BYTES] {
        let mut bytes = [0; STREAM_OFFER_BYTES];
        let (producer, consumer) = bytes.split_at_mut(OFFER_BYTES);
        producer.copy_from_slice(&self.producer.encode());
        consumer.copy_from_slice(&self.consumer.encode());
        bytes
    }

    /// Reads the wire form. Any bytes give an offer; whether it fits is found out by connecting.
    pub fn decode(bytes: &[u8; STREAM_OFFER_BYTES]) -> Self {
        let half = |at: usize| {
            let mut half = [0; OFFER_BYTES];
            half.copy_from_slice(&bytes[at..at + OFFER_BYTES]);
            Offer::decode(&half)
        };
        Self {
            producer: half(0),
            consumer: half(OFFER_BYTES),
        }
    }
}

/// An end of a stream that knows no peer yet.
#[derive(Debug)]
pub struct UnconnectedStream<D: Device> {
    producer: UnconnectedProducer<D>,
    consumer: UnconnectedConsumer<D>,
}

impl<D: Device> UnconnectedStream<D> {
    /// Makes the objects of this end; [`stream_config`] is what most want.
    ///
    /// # Errors
    /// As for [`UnconnectedProducer::new`]. Also when the configuration has messages of one length, or a tail that is
    /// not a word in memory.
    pub fn new(device: &D, config: &RingConfig) -> Result<Self, ConfigError> {
        let what = "a stream stands on rings with headers that write twice";
        if config.framing != crate::Framing::Header
            || config.design.tail_sync != crate::TailSync::WriteTwice
            || config.design.head_sync == crate::HeadSync::LazyPull
        {
            return Err(ConfigError::Design { what });
        }
        Ok(Self {
            producer: UnconnectedProducer::waking(device, config)?,
            consumer: UnconnectedConsumer::waking(device, config)?,
        })
    }

    /// What the peer must know.
    pub fn offer(&self) -> StreamOffer {
        StreamOffer {
            producer: self.producer.offer(),
            consumer: self.consumer.offer(),
        }
    }

    /// Joins it to the peer that made an offer.
    ///
    /// # Errors
    /// When the two were not configured alike, or the device does not take the address.
    pub fn connect(self, peer: &StreamOffer) -> Result<Stream<D>, ConfigError> {
        Ok(Stream::new(
            self.producer.connect(&peer.consumer)?,
            self.consumer.connect(&peer.producer)?,
        ))
    }
}
