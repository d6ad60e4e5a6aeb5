//! Rings by address: one end connects, the other listens, over a device that the caller provides.
//!
//! The code for sending and receiving is compiled for its device, so unlike a stream, a ring is generic over the device
//! type: open the device, and pass it to a [`RingBuilder`]. The ring itself, its designs and its two ends are those of
//! the crate `dunlin-ring`, which is re-exported here.

use dunlin_bootstrap::Capability;
pub use dunlin_ring::*;
use dunlin_rpc::capability;
use dunlin_verbs::Device;

use crate::meeting::{self, settings_of_terms, Listener, MeetError, Terms};

/// The kind that a client requests in the handshake. Which end it has is in its offer.
const KIND: &str = "ring";

/// Settings for connecting rings by address. Both sides of a ring need the same configuration and the same secret.
#[derive(Clone, Debug)]
#[must_use = "a ring does nothing until it is connected or listens"]
pub struct RingBuilder<D: Device> {
    device: D,
    config: RingConfig,
    terms: Terms,
}

impl<D: Device> RingBuilder<D> {
    /// Creates a builder for rings of this configuration, over a device.
    pub fn new(device: &D, config: RingConfig) -> Self {
        Self {
            device: device.clone(),
            config,
            terms: Terms::default(),
        }
    }

    settings_of_terms!();

    /// Connects to a listener that has consumers.
    ///
    /// # Errors
    /// Says which step failed, and what would help.
    pub fn connect_producer(&self, address: &str) -> Result<Producer<D>, MeetError> {
        let open = |_: &str| {
            let end = UnconnectedProducer::new(&self.device, &self.config)?;
            let offer = end.offer().encode();
            Ok((end, offer))
        };
        let join =
            |end: UnconnectedProducer<D>, theirs: &_| Ok(end.connect(&Offer::decode(theirs))?);
        let met = meeting::connect(address, KIND, &self.terms, self.capabilities()?, open, join);
        met.map(|(end, _)| end)
    }

    /// Connects to a listener that has producers.
    ///
    /// # Errors
    /// As for [`RingBuilder::connect_producer`].
    pub fn connect_consumer(&self, address: &str) -> Result<Consumer<D>, MeetError> {
        let open = |_: &str| {
            let end = UnconnectedConsumer::new(&self.device, &self.config)?;
            let offer = end.offer().encode();
            Ok((end, offer))
        };
        let join =
            |end: UnconnectedConsumer<D>, theirs: &_| Ok(end.connect(&Offer::decode(theirs))?);
        let met = meeting::connect(address, KIND, &self.terms, self.capabilities()?, open, join);
        met.map(|(end, _)| end)
    }

    /// Listens, with a consumer for each producer that connects.
    ///
    /// # Errors
    /// When the port is not available.
    pub fn bind_consumers(&self, address: &str) -> Result<Listener<Consumer<D>>, MeetError> {
        let Self { device, config, .. } = self.clone();
        let meet = move |_: &str, theirs: &_| {
            let theirs = Offer::decode(theirs);
            meeting::confirm(&device, &theirs.address)?;
            let end = UnconnectedConsumer::new(&device, &config)?;
            let mut offer = end.offer();
            offer.address = device.address_for(offer.address, &theirs.address);
            Ok((end.connect(&theirs)?, offer.encode()))
        };
        Listener::bind(address, KIND, &self.terms, self.capabilities()?, meet)
    }

    /// Listens, with a producer for each consumer that connects.
    ///
    /// # Errors
    /// When the port is not available.
    pub fn bind_producers(&self, address: &str) -> Result<Listener<Producer<D>>, MeetError> {
        let Self { device, config, .. } = self.clone();
        let meet = move |_: &str, theirs: &_| {
            let theirs = Offer::decode(theirs);
            meeting::confirm(&device, &theirs.address)?;
            let end = UnconnectedProducer::new(&device, &config)?;
            let mut offer = end.offer();
            offer.address = device.address_for(offer.address, &theirs.address);
            Ok((end.connect(&theirs)?, offer.encode()))
        };
        Listener::bind(address, KIND, &self.terms, self.capabilities()?, meet)
    }

    fn capabilities(&self) -> Result<Vec<Capability>, MeetError> {
        let described = capability(self.device.attributes());
        described.map_err(|source| MeetError::Io {
            call: "determining this host's identity",
            source,
        })
    }
}
