//! The ends of a ring before they know each other, without a queue pair: their memory, and connecting them to what the
//! other end offers.

use dunlin_verbs::{Access, Device, EndpointAddress, Region};

use crate::config::RingConfig;
use crate::consumer::{self, ConsumerCore};
use crate::design::{Batching, HeadSync};
use crate::error::ConfigError;
use crate::geometry::Geometry;
use crate::memory::{Inbound, Mirror};
use crate::offer::{Offer, Role, Terms};
use crate::policy::{Pacing, Receiver, Sender};
use crate::producer::{self, ConsumerPlaces, ProducerCore};

/// Length in bytes of the words of a producer that its consumer writes.
pub const PRODUCER_WORDS_BYTES: usize = 256;
/// The part of the first page of a consumer's memory that the ring does not use, where its words have cache lines of
/// their own: for words of others, which then need no region of theirs.
pub const FREE_BYTES: std::ops::Range<usize> = 256..4096;

/// The memory of one end that the other end accesses.
#[derive(Debug)]
pub(crate) struct EndMemory<D: Device> {
    config: RingConfig,
    pub(crate) geometry: Geometry,
    terms: Terms,
    pub(crate) inlet: D::Region,
    /// Where it begins in the region.
    at: usize,
}

impl<D: Device> EndMemory<D> {
    fn new(
        device: &D,
        domain: &D::ProtectionDomain,
        config: &RingConfig,
        (role, wakes): (Role, bool),
    ) -> Result<Self, ConfigError> {
        let geometry = Geometry::new(config)?;
        let mut access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let length = match role {
            Role::Producer => PRODUCER_WORDS_BYTES,
            Role::Consumer => {
                access.set(
                    Access::REMOTE_READ,
                    config.design.head_sync == HeadSync::LazyPull,
                );
                geometry.words.array + geometry.array_bytes()
            }
        };
        Ok(Self {
            config: *config,
            geometry,
            terms: Terms::new(role, config, wakes),
            inlet: device.allocate_region(domain, length, access)?,
            at: 0,
        })
    }

    pub(crate) fn offer(&self, address: EndpointAddress) -> Offer {
        Offer {
            address,
            memory: self.inlet.remote().plus(self.at as u64),
            terms: self.terms,
        }
    }
}

/// A [`ProducerCore`] that is not connected to a consumer yet.
#[derive(Debug)]
pub struct UnconnectedProducerCore<D: Device> {
    pub(crate) memory: EndMemory<D>,
    local: Mirror<D::Region>,
}

impl<D: Device> UnconnectedProducerCore<D> {
    /// Allocates the memory of this end in the domain of the queue pair that will carry the ring.
    ///
    /// # Errors
    /// When the configuration contradicts itself, or a limit of the device is reached.
    pub fn new(
        device: &D,
        domain: &D::ProtectionDomain,
        config: &RingConfig,
    ) -> Result<Self, ConfigError> {
        Self::make(device, domain, config, false)
    }

    pub(crate) fn make(
        device: &D,
        domain: &D::ProtectionDomain,
        config: &RingConfig,
        wakes: bool,
    ) -> Result<Self, ConfigError> {
        let memory = EndMemory::new(device, domain, config, (Role::Producer, wakes))?;
        Self::with_memory(device, domain, memory)
    }

    /// As [`UnconnectedProducerCore::new`], with words of [`PRODUCER_WORDS_BYTES`] at `at` in a region that the
    /// consumer may write, such as the [`FREE_BYTES`] of the other direction's consumer.
    ///
    /// # Errors
    /// As for [`UnconnectedProducerCore::new`].
    ///
    /// # Panics
    /// When the words are not inside the region, or not aligned to a cache line.
    pub fn within(
        device: &D,
        domain: &D::ProtectionDomain,
        config: &RingConfig,
        (inlet, at): (D::Region, usize),
    ) -> Result<Self, ConfigError> {
        assert!(
            at % crate::LINE_BYTES == 0 && inlet.memory().contains(at, PRODUCER_WORDS_BYTES),
            "the words must be inside the region, on cache lines of their own"
        );
        let memory = EndMemory {
            config: *config,
            geometry: Geometry::new(config)?,
            terms: Terms::new(Role::Producer, config, false),
            inlet,
            at,
        };
        Self::with_memory(device, domain, memory)
    }

    fn with_memory(
        device: &D,
        domain: &D::ProtectionDomain,
        memory: EndMemory<D>,
    ) -> Result<Self, ConfigError> {
        let (config, geometry) = (&memory.config, &memory.geometry);
        let bytes = if config.design.mirrored {
            geometry.array_bytes()
        } else {
            // One message with its prefix and suffix.
            geometry.prefix + geometry.longest + geometry.suffix
        };
        // The array has the same offset from a cache line as the consumer's.
        let first = if config.design.cache_lines {
            0
        } else {
            geometry.words.array
        };
        let region = device.allocate_region(domain, first + bytes, Access::LOCAL_WRITE)?;
        let local = Mirror::new(region, first, bytes);
        Ok(Self { memory, local })
    }

    /// Returns what the consumer must know; the queue pair has this address.
    pub fn offer(&self, address: EndpointAddress) -> Offer {
        self.memory.offer(address)
    }

    /// Connects it to the consumer that made an offer. Messages of up to `inline_bytes` are sent inline, which the
    /// queue pair must allow; pointers, of 8 bytes, always are.
    ///
    /// # Errors
    /// When the two configurations differ.
    pub fn connect(
        self,
        consumer: &Offer,
        inline_bytes: usize,
    ) -> Result<ProducerCore<D>, ConfigError> {
        self.memory.terms.agree(&consumer.terms)?;
        let EndMemory {
            config,
            mut geometry,
            inlet,
            at: own,
            ..
        } = self.memory;
        let pacing = match config.design.batching {
            Batching::Off => Pacing::Thresholds { elastic: false },
            Batching::Adaptive { elastic, .. } => Pacing::Thresholds { elastic },
            Batching::InFlight { most } => Pacing::InFlight { most },
        };
        let at = |offset: usize| consumer.memory.plus(offset as u64);
        let words = geometry.words;
        geometry.words = words.producer_at(own);
        Ok(ProducerCore::new(producer::Parts {
            sender: Sender::new(geometry.units, geometry.advance, geometry.transmit, pacing),
            geometry,
            design: config.design,
            local: self.local,
            inlet,
            places: ConsumerPlaces {
                array: at(words.array),
                tail: at(words.tail),
                end: at(words.end),
                published_head: at(words.published_head),
            },
            inline_bytes,
        }))
    }
}

/// A [`ConsumerCore`] that is not connected to a producer yet.
#[derive(Debug)]
pub struct UnconnectedConsumerCore<D: Device> {
    pub(crate) memory: EndMemory<D>,
}

impl<D: Device> UnconnectedConsumerCore<D> {
    /// Allocates the memory of this end in the domain of the queue pair that will carry the ring.
    ///
    /// # Errors
    /// As for [`UnconnectedProducerCore::new`].
    pub fn new(
        device: &D,
        domain: &D::ProtectionDomain,
        config: &RingConfig,
    ) -> Result<Self, ConfigError> {
        Self::make(device, domain, config, false)
    }

    pub(crate) fn make(
        device: &D,
        domain: &D::ProtectionDomain,
        config: &RingConfig,
        wakes: bool,
    ) -> Result<Self, ConfigError> {
        let memory = EndMemory::new(device, domain, config, (Role::Consumer, wakes))?;
        Ok(Self { memory })
    }

    /// The memory that the producer writes; see [`FREE_BYTES`].
    pub fn inlet(&self) -> &D::Region {
        &self.memory.inlet
    }

    /// Returns what the producer must know; the queue pair has this address.
    pub fn offer(&self, address: EndpointAddress) -> Offer {
        self.memory.offer(address)
    }

    /// Connects it to the producer that made an offer.
    ///
    /// # Errors
    /// When the two configurations differ.
    pub fn connect(self, producer: &Offer) -> Result<ConsumerCore<D>, ConfigError> {
        self.memory.terms.agree(&producer.terms)?;
        let EndMemory {
            config,
            geometry,
            inlet,
            ..
        } = self.memory;
        let words = geometry.words;
        let array = Inbound::new(inlet.clone(), words.array, geometry.array_bytes());
        Ok(ConsumerCore::new(consumer::Parts {
            receiver: Receiver::new(geometry.units, geometry.push),
            geometry,
            design: config.design,
            array,
            inlet,
            peer_head: producer.memory.plus(words.head as u64),
        }))
    }
}
