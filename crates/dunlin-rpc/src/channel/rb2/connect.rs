//! Setting up a channel over RB²'s rings: the objects of one side, the parameters that it sends, and how it interprets
//! those of the peer.
//!
//! Both rings have the size that the client chooses, up to what the server allows ([`ChannelConfig::ring_bytes`]): each
//! end of a ring must know it before it knows its peer.

use dunlin_ring::{
    ConfigError, Design, LengthLimit, Offer, Optimisation, RingConfig, UnconnectedConsumerCore,
    UnconnectedProducerCore, FREE_BYTES, OFFER_NUMBERS, PRODUCER_WORDS_BYTES,
};
use dunlin_verbs::{Device, EndpointAddress, Region, VerbsError};

use super::taken::Taken;
use super::Rb2Channel;
use crate::channel::carrier::{Inlet, Peer, Receiving, UnconnectedCarrier};
use crate::channel::message::HEADER_BYTES;
use crate::channel::opening::Opening;
use crate::channel::parameters::{Parameters, PeerParameters};
use crate::config::ChannelConfig;

/// Names of the parameters that two sides exchange beyond those of every carrier.
mod parameter {
    pub(super) const SLOTS: &str = "ring-slots";
    /// The offers of the ring that this side writes and of the one that it reads, with the number of the word.
    pub(super) const PRODUCER: &str = "ring-producer";
    pub(super) const CONSUMER: &str = "ring-consumer";
}

/// For error messages about the peer's parameters.
const WHAT: &str = "a channel over RB²'s rings";
/// Size of a slot: a short message with its headers takes one, which is written without further checks.
const SLOT_BYTES: usize = 128;
/// Smallest number of slots of a ring.
const SLOTS_MIN: usize = 64;
/// Messages of at most this length are sent inline.
const INLINE_BYTES: usize = 220;
/// Where the carrier's control words and those of the producer are in the memory of the consumer, so that a connection
/// needs no region for them.
const CARRIER_AT: usize = 1024;
const PRODUCER_AT: usize = 2048;
const _: () =
    assert!(FREE_BYTES.start <= CARRIER_AT && PRODUCER_AT + PRODUCER_WORDS_BYTES <= FREE_BYTES.end);

/// A channel whose peer is not known yet.
struct Unconnected<D: Device> {
    carrier: UnconnectedCarrier<D>,
    slots: usize,
    producer: UnconnectedProducerCore<D>,
    consumer: UnconnectedConsumerCore<D>,
}

/// A ring's error while it is being set up.
fn refused(error: ConfigError) -> VerbsError {
    match error {
        ConfigError::Verbs(error) => error,
        error => VerbsError::Peer(error.to_string()),
    }
}

impl<D: Device> Rb2Channel<D> {
    /// Creates the objects of the dialling side. `wake` is raised when the peer wakes this channel.
    pub(crate) fn open(
        device: &D,
        wake: &D::CompletionChannel,
        config: &ChannelConfig,
    ) -> Result<Opening<Self>, VerbsError> {
        Self::with_slots(device, wake, config, config.ring_bytes / SLOT_BYTES)
    }

    /// Creates the objects of the side that was dialled, with rings of the size that the peer has chosen.
    pub(crate) fn open_for_peer(
        device: &D,
        wake: &D::CompletionChannel,
        config: &ChannelConfig,
        parameters: &Parameters,
    ) -> Result<Opening<Self>, VerbsError> {
        let most = config.ring_bytes / SLOT_BYTES;
        let said = PeerParameters::new(WHAT, parameters);
        let slots = said.number(parameter::SLOTS, SLOTS_MIN..=most)?;
        if !slots.is_power_of_two() {
            let words = format!("its ring-slots is {slots}: it must be a power of two");
            return Err(VerbsError::Peer(words));
        }
        Self::with_slots(device, wake, config, slots)
    }

    fn with_slots(
        device: &D,
        wake: &D::CompletionChannel,
        config: &ChannelConfig,
        slots: usize,
    ) -> Result<Opening<Self>, VerbsError> {
        let carrier =
            UnconnectedCarrier::new(device, wake, config, (INLINE_BYTES, 1), &Receiving::WakeUps)?;
        let ring = RingConfig {
            // A flush publishes what there is, so nothing waits for the completion of the advancement before it.
            design: Design::RB2.without(Optimisation::Elastic),
            slots,
            slot_bytes: SLOT_BYTES,
            ..RingConfig::default()
        };
        let domain = &carrier.domain;
        let consumer = UnconnectedConsumerCore::new(device, domain, &ring).map_err(refused)?;
        let words = (consumer.inlet().clone(), PRODUCER_AT);
        let producer = UnconnectedProducerCore::within(device, domain, &ring, words);
        let unconnected = Unconnected {
            producer: producer.map_err(refused)?,
            consumer,
            slots,
            carrier,
        };
        Ok(Opening {
            address: unconnected.carrier.address(),
            parameters: unconnected.parameters(),
            join: Box::new(|peer, parameters| unconnected.join(peer, parameters)),
        })
    }
}

impl<D: Device> Unconnected<D> {
    /// The parameters that the peer needs in addition to the address.
    fn parameters(&self) -> Parameters {
        let mut parameters = self
            .carrier
            .parameters(self.consumer.inlet().remote().plus(CARRIER_AT as u64));
        parameters.insert(parameter::SLOTS.to_owned(), self.slots as u64);
        let address = self.carrier.address();
        let offers = [
            (parameter::PRODUCER, self.producer.offer(address)),
            (parameter::CONSUMER, self.consumer.offer(address)),
        ];
        for (name, offer) in offers {
            let words = offer.numbers().into_iter().enumerate();
            parameters.extend(words.map(|(at, word)| (format!("{name}-{at}"), word)));
        }
        parameters
    }

    /// See [`UnconnectedCarrier::join`].
    fn join(
        self,
        peer: &EndpointAddress,
        parameters: &Parameters,
    ) -> Result<Rb2Channel<D>, VerbsError> {
        let said = PeerParameters::new(WHAT, parameters);
        let theirs = Peer::read(said, self.slots * SLOT_BYTES / 4)?;
        let offer = |name: &str| {
            let mut words = [0; OFFER_NUMBERS];
            for (at, word) in words.iter_mut().enumerate() {
                *word = said.word(&format!("{name}-{at}"))?;
            }
            Ok::<_, VerbsError>(Offer::from_numbers(*peer, words))
        };
        let inline_bytes = self.carrier.inline_bytes;
        let producer = self
            .producer
            .connect(&offer(parameter::CONSUMER)?, inline_bytes);
        let producer = producer.map_err(refused)?;
        let inlet = Inlet {
            region: self.consumer.inlet().clone(),
            at: CARRIER_AT,
        };
        let consumer = self.consumer.connect(&offer(parameter::PRODUCER)?);
        let consumer = consumer.map_err(refused)?;
        let carrier = self.carrier.join(peer, inlet, theirs)?;
        let (LengthLimit::AtMost(fits) | LengthLimit::Exactly(fits)) = producer.limit();
        let own_eager = carrier.config().eager_bytes;
        Ok(Rb2Channel {
            eager_bytes: theirs.eager.min(own_eager).min(fits - HEADER_BYTES),
            taken: Taken::new(HEADER_BYTES + own_eager, SLOT_BYTES),
            carrier,
            producer,
            consumer,
        })
    }
}
