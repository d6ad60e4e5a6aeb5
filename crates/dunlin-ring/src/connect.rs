//! Connecting the two ends of a ring: each creates its objects, tells the other where they are, and connects.
//!
//! The message that they exchange is an [`Offer`].

use dunlin_link::WAKE_RECEIVES;
use dunlin_verbs::{
    Access, ConnectAttributes, Device, Placement, QueuePair, QueuePairConfig, ReceiveQueue,
    ReceiveRequest, Region, Transport, Verbs,
};

use crate::config::RingConfig;
use crate::consumer::{self, Consumer};
use crate::design::{Batching, Design, HeadSync, TailSync};
use crate::error::ConfigError;
use crate::geometry::Geometry;
use crate::link::{Link, Sleeping, SEND_REQUESTS};
use crate::memory::{Inbound, Mirror};
use crate::offer::{Offer, Role, Terms};
use crate::policy::{Pacing, Receiver, Sender};
use crate::producer::{self, ConsumerPlaces, Producer};

/// Messages of at most this length are sent inline, as in perftest, which saves a DMA on hardware.
const INLINE_BYTES: usize = 220;
/// Number of RECEIVEs kept posted where WRITEs carry immediate data.
const RECEIVES: usize = 512;

/// The objects of one end, before it knows its peer.
#[derive(Debug)]
struct End<D: Device> {
    config: RingConfig,
    geometry: Geometry,
    terms: Terms,
    link: Link<D>,
    inlet: D::Region,
    domain: D::ProtectionDomain,
    inline_bytes: usize,
    /// For an end that must be able to sleep: the channel on which it sleeps.
    channel: Option<D::CompletionChannel>,
}

impl<D: Device> End<D> {
    fn new(device: &D, config: &RingConfig, role: Role, wakes: bool) -> Result<Self, ConfigError> {
        let geometry = Geometry::new(config)?;
        check_device(device, &config.design, wakes)?;
        let attributes = device.attributes();
        // A separate domain for each end: a key of another connection is of no use here.
        let domain = device.create_protection_domain()?;
        let pulls = config.design.head_sync == HeadSync::LazyPull;
        let notified = config.design.tail_sync == TailSync::CompletionQueue;
        let least = if wakes { WAKE_RECEIVES } else { 1 };
        let (length, access, receives) = match role {
            Role::Producer => {
                let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
                (geometry.words.sleep + 64, access, least)
            }
            Role::Consumer => {
                let mut access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
                access.set(Access::REMOTE_READ, pulls);
                let receives = if notified {
                    RECEIVES.min(attributes.max_receive_requests)
                } else {
                    least
                };
                let length = geometry.words.array + geometry.array_bytes();
                (length, access, receives)
            }
        };
        let inlet = device.allocate_region(&domain, length, access)?;
        let channel = wakes
            .then(|| device.create_completion_channel())
            .transpose()?;
        let completions =
            device.create_completion_queue(SEND_REQUESTS + receives, channel.as_ref())?;
        let inline_bytes = INLINE_BYTES.min(attributes.max_inline_bytes);
        let mut queue_pair = device.create_queue_pair(
            &domain,
            &QueuePairConfig {
                transport: Transport::ReliableConnection,
                send_completions: &completions,
                receive_completions: &completions,
                send_requests: SEND_REQUESTS,
                receive_queue: ReceiveQueue::Own(receives),
                segments: 1,
                inline_bytes,
            },
        )?;
        let mut granted = Access::REMOTE_WRITE;
        granted.set(Access::REMOTE_READ, pulls && role == Role::Consumer);
        queue_pair.to_init(granted)?;
        if notified && role == Role::Consumer {
            for _ in 0..receives {
                let request = ReceiveRequest {
                    id: 0,
                    segments: &[],
                };
                queue_pair
                    .post_receive(&[request])
                    .map_err(|error| ConfigError::Unsupported {
                        device: attributes.name.clone(),
                        what: error.to_string(),
                    })?;
            }
        }
        let mut link = Link::new(queue_pair, completions);
        if wakes {
            link.expect_wake_ups(WAKE_RECEIVES);
        }
        Ok(Self {
            config: *config,
            geometry,
            terms: Terms::new(role, config, wakes),
            link,
            inlet,
            domain,
            inline_bytes,
            channel,
        })
    }

    fn offer(&self) -> Offer {
        Offer {
            address: self.link.queue_pair.address(),
            memory: self.inlet.remote(),
            terms: self.terms,
        }
    }

    fn connect(&mut self, offer: &Offer) -> Result<(), ConfigError> {
        self.terms.agree(&offer.terms)?;
        let attributes = ConnectAttributes {
            timeout_ns: 500_000_000,
            ..ConnectAttributes::default()
        };
        let queue_pair = &mut self.link.queue_pair;
        queue_pair.to_ready_to_receive(Some(&offer.address), attributes)?;
        queue_pair.to_ready_to_send()?;
        if let Some(channel) = self.channel.take() {
            let at = self.geometry.words.sleep;
            let peer = offer.memory.plus(at as u64);
            self.link.sleeping = Some(Sleeping::new(channel, self.inlet.clone(), at, peer));
        }
        Ok(())
    }
}

/// Whether a device supports a design; if not, suggests an alternative.
fn check_device<D: Device>(device: &D, design: &Design, wakes: bool) -> Result<(), ConfigError> {
    let attributes = device.attributes();
    let unsupported = |what: &str| {
        Err(ConfigError::Unsupported {
            device: attributes.name.clone(),
            what: what.to_owned(),
        })
    };
    if design.tail_sync == TailSync::PollMessage && attributes.placement != Placement::InOrder {
        return unsupported(
            "polling messages requires WRITEs that are placed in address order; polling lengths (TailSync::PollLength) \
             does not",
        );
    }
    let rc = attributes.transports.rc;
    let mut needed = Verbs::WRITE;
    needed.set(Verbs::READ, design.head_sync == HeadSync::LazyPull);
    needed.set(
        Verbs::WRITE_WITH_IMMEDIATE,
        wakes || design.tail_sync == TailSync::CompletionQueue,
    );
    if !rc.contains(needed) {
        return unsupported(&format!("RC does not support {:?}", needed - rc));
    }
    if attributes.max_inline_bytes < 8 {
        return unsupported("pointers are sent inline, which requires 8 bytes");
    }
    if attributes.max_send_requests < SEND_REQUESTS {
        return unsupported("its send queues have fewer than 128 entries");
    }
    Ok(())
}

/// A producer that is not connected to a consumer yet.
#[derive(Debug)]
pub struct UnconnectedProducer<D: Device> {
    end: End<D>,
    local: Mirror<D::Region>,
}

impl<D: Device> UnconnectedProducer<D> {
    /// Creates the objects of this end.
    ///
    /// # Errors
    /// When the configuration contradicts itself, the device does not support the design, or a limit of it is reached.
    pub fn new(device: &D, config: &RingConfig) -> Result<Self, ConfigError> {
        Self::make(device, config, false)
    }

    /// The same, with what is needed to sleep and to wake the other end: for streams. The design must use write twice.
    pub(crate) fn waking(device: &D, config: &RingConfig) -> Result<Self, ConfigError> {
        Self::make(device, config, true)
    }

    fn make(device: &D, config: &RingConfig, wakes: bool) -> Result<Self, ConfigError> {
        let end = End::new(device, config, Role::Producer, wakes)?;
        let geometry = &end.geometry;
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
        let region = device.allocate_region(&end.domain, first + bytes, Access::LOCAL_WRITE)?;
        let local = Mirror::new(region, first, bytes);
        Ok(Self { end, local })
    }

    /// Returns what the consumer must know.
    pub fn offer(&self) -> Offer {
        self.end.offer()
    }

    /// Connects it to the consumer that made an offer.
    ///
    /// # Errors
    /// When the two configurations differ, or the device does not accept the address.
    pub fn connect(mut self, consumer: &Offer) -> Result<Producer<D>, ConfigError> {
        self.end.connect(consumer)?;
        let End {
            config,
            geometry,
            link,
            inlet,
            inline_bytes,
            ..
        } = self.end;
        let pacing = match config.design.batching {
            Batching::Off => Pacing::Thresholds { elastic: false },
            Batching::Adaptive { elastic, .. } => Pacing::Thresholds { elastic },
            Batching::InFlight { most } => Pacing::InFlight { most },
        };
        let at = |offset: usize| consumer.memory.plus(offset as u64);
        let words = geometry.words;
        Ok(Producer::new(producer::Parts {
            sender: Sender::new(geometry.units, geometry.advance, geometry.transmit, pacing),
            geometry,
            design: config.design,
            link,
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

/// A consumer that is not connected to a producer yet.
#[derive(Debug)]
pub struct UnconnectedConsumer<D: Device> {
    end: End<D>,
}

impl<D: Device> UnconnectedConsumer<D> {
    /// Creates the objects of this end.
    ///
    /// # Errors
    /// As for [`UnconnectedProducer::new`].
    pub fn new(device: &D, config: &RingConfig) -> Result<Self, ConfigError> {
        Self::make(device, config, false)
    }

    /// The same, with what is needed to sleep and to wake the other end: for streams. The design must use write twice.
    pub(crate) fn waking(device: &D, config: &RingConfig) -> Result<Self, ConfigError> {
        Self::make(device, config, true)
    }

    fn make(device: &D, config: &RingConfig, wakes: bool) -> Result<Self, ConfigError> {
        let end = End::new(device, config, Role::Consumer, wakes)?;
        Ok(Self { end })
    }

    /// Returns what the producer must know.
    pub fn offer(&self) -> Offer {
        self.end.offer()
    }

    /// Connects it to the producer that made an offer.
    ///
    /// # Errors
    /// When the two configurations differ, or the device does not accept the address.
    pub fn connect(mut self, producer: &Offer) -> Result<Consumer<D>, ConfigError> {
        self.end.connect(producer)?;
        let End {
            config,
            geometry,
            link,
            inlet,
            ..
        } = self.end;
        let words = geometry.words;
        let array = Inbound::new(inlet.clone(), words.array, geometry.array_bytes());
        Ok(Consumer::new(consumer::Parts {
            receiver: Receiver::new(geometry.units, geometry.push),
            geometry,
            design: config.design,
            link,
            array,
            inlet,
            peer_head: producer.memory.plus(words.head as u64),
        }))
    }
}
