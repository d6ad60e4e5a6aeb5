//! Connecting the two ends of a stream.

use dunlin_verbs::Device;

use super::Stream;
use crate::{
    ConfigError, Design, Offer, RingConfig, UnconnectedConsumer, UnconnectedProducer, OFFER_BYTES,
};

/// The configuration of a stream's rings: RB² without message batching, because a stream does not know what its writer
/// will do next; 512 slots of 256 bytes in each direction.
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
    /// The offer of the ring that this end writes.
    pub producer: Offer,
    /// The offer of the ring that this end reads.
    pub consumer: Offer,
}

/// Length of an encoded [`StreamOffer`] in bytes.
pub const STREAM_OFFER_BYTES: usize = 2 * OFFER_BYTES;

impl StreamOffer {
    /// Encodes the offer.
    pub fn encode(&self) -> [u8; STREAM_OFFER_BYTES] {
        let mut bytes = [0; STREAM_OFFER_BYTES];
        let (producer, consumer) = bytes.split_at_mut(OFFER_BYTES);
        producer.copy_from_slice(&self.producer.encode());
        consumer.copy_from_slice(&self.consumer.encode());
        bytes
    }

    /// Decodes an offer. Any bytes decode; whether the offer fits is checked when connecting.
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

/// An end of a stream that is not connected to a peer yet.
#[derive(Debug)]
pub struct UnconnectedStream<D: Device> {
    producer: UnconnectedProducer<D>,
    consumer: UnconnectedConsumer<D>,
}

impl<D: Device> UnconnectedStream<D> {
    /// Creates the objects of this end; most callers use [`stream_config`].
    ///
    /// # Errors
    /// As for [`UnconnectedProducer::new`]. Also when the configuration has fixed-length messages, or a tail that is
    /// not a word in memory.
    pub fn new(device: &D, config: &RingConfig) -> Result<Self, ConfigError> {
        let what = "a stream requires rings with message headers and TailSync::WriteTwice, without HeadSync::LazyPull";
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

    /// Returns what the peer must know.
    pub fn offer(&self) -> StreamOffer {
        StreamOffer {
            producer: self.producer.offer(),
            consumer: self.consumer.offer(),
        }
    }

    /// Connects it to the peer that made an offer.
    ///
    /// # Errors
    /// When the two configurations differ, or the device does not accept the address.
    pub fn connect(self, peer: &StreamOffer) -> Result<Stream<D>, ConfigError> {
        Ok(Stream::new(
            self.producer.connect(&peer.consumer)?,
            self.consumer.connect(&peer.producer)?,
        ))
    }
}
