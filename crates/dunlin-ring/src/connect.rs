//! Connecting the two ends of a ring: each creates its objects, tells the other where they are, and connects.
//!
//! The message that they exchange is an [`Offer`].

use dunlin_link::WAKE_RECEIVES;
use dunlin_verbs::{
    Access, ConnectAttributes, Device, Placement, QueuePair, QueuePairConfig, ReceiveQueue,
    Transport, Verbs,
};

use crate::config::RingConfig;
use crate::consumer::Consumer;
use crate::cores::{EndMemory, UnconnectedConsumerCore, UnconnectedProducerCore};
use crate::design::{Design, HeadSync, TailSync};
use crate::error::ConfigError;
use crate::link::{Link, Sleeping, SEND_REQUESTS};
use crate::offer::{Offer, Role};
use crate::producer::Producer;

/// Messages of at most this length are sent inline, as in perftest, which saves a DMA on hardware.
const INLINE_BYTES: usize = 220;
/// Number of RECEIVEs kept posted where WRITEs carry immediate data.
const RECEIVES: usize = 512;

/// The queue pair of one end, before it knows its peer.
#[derive(Debug)]
struct End<D: Device> {
    link: Link<D>,
    domain: D::ProtectionDomain,
    inline_bytes: usize,
    /// For an end that must be able to sleep: the channel on which it sleeps.
    channel: Option<D::CompletionChannel>,
}

impl<D: Device> End<D> {
    fn new(device: &D, config: &RingConfig, role: Role, wakes: bool) -> Result<Self, ConfigError> {
        config.check()?;
        check_device(device, &config.design, wakes)?;
        let attributes = device.attributes();
        // A separate domain for each end: a key of another connection is of no use here.
        let domain = device.create_protection_domain()?;
        let pulls = config.design.head_sync == HeadSync::LazyPull;
        let notified = config.design.tail_sync == TailSync::CompletionQueue;
        let least = if wakes { WAKE_RECEIVES } else { 1 };
        let receives = match role {
            Role::Consumer if notified => RECEIVES.min(attributes.max_receive_requests),
            Role::Consumer | Role::Producer => least,
        };
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
        let mut link = Link::new(queue_pair, completions);
        if wakes || (notified && role == Role::Consumer) {
            link.post_receives(receives)
                .map_err(|error| ConfigError::Unsupported {
                    device: attributes.name.clone(),
                    what: error.to_string(),
                })?;
        }
        Ok(Self {
            link,
            domain,
            inline_bytes,
            channel,
        })
    }

    fn connect(mut self, memory: &EndMemory<D>, offer: &Offer) -> Result<Link<D>, ConfigError> {
        let attributes = ConnectAttributes {
            timeout_ns: 500_000_000,
            ..ConnectAttributes::default()
        };
        let queue_pair = &mut self.link.queue_pair;
        queue_pair.to_ready_to_receive(Some(&offer.address), attributes)?;
        queue_pair.to_ready_to_send()?;
        if let Some(channel) = self.channel {
            let at = memory.geometry.words.sleep;
            let peer = offer.memory.plus(at as u64);
            self.link.sleeping = Some(Sleeping::new(channel, memory.inlet.clone(), at, peer));
        }
        Ok(self.link)
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
    core: UnconnectedProducerCore<D>,
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
        let core = UnconnectedProducerCore::make(device, &end.domain, config, wakes)?;
        Ok(Self { end, core })
    }

    /// Returns what the consumer must know.
    pub fn offer(&self) -> Offer {
        self.core.offer(self.end.link.queue_pair.address())
    }

    /// Connects it to the consumer that made an offer.
    ///
    /// # Errors
    /// When the two configurations differ, or the device does not accept the address.
    pub fn connect(self, consumer: &Offer) -> Result<Producer<D>, ConfigError> {
        let inline_bytes = self.end.inline_bytes;
        let link = self.end.connect(&self.core.memory, consumer)?;
        Ok(Producer::new(
            self.core.connect(consumer, inline_bytes)?,
            link,
        ))
    }
}

/// A consumer that is not connected to a producer yet.
#[derive(Debug)]
pub struct UnconnectedConsumer<D: Device> {
    end: End<D>,
    core: UnconnectedConsumerCore<D>,
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
        let core = UnconnectedConsumerCore::make(device, &end.domain, config, wakes)?;
        Ok(Self { end, core })
    }

    /// Returns what the producer must know.
    pub fn offer(&self) -> Offer {
        self.core.offer(self.end.link.queue_pair.address())
    }

    /// Connects it to the producer that made an offer.
    ///
    /// # Errors
    /// When the two configurations differ, or the device does not accept the address.
    pub fn connect(self, producer: &Offer) -> Result<Consumer<D>, ConfigError> {
        let link = self.end.connect(&self.core.memory, producer)?;
        Ok(Consumer::new(self.core.connect(producer)?, link))
    }
}
