//! Setting up a channel of SENDs: the objects of one side, the parameters that it sends, and how it interprets those of
//! the peer.

use std::collections::VecDeque;

use dunlin_link::WAKE_RECEIVES;
use dunlin_verbs::{Access, Device, EndpointAddress, Region, VerbsError};

use super::{slot_bytes, Outgoing, SentChannel, Window};
use crate::channel::buffers::staging_for;
use crate::channel::carrier::{Inlet, Peer, Receiving, UnconnectedCarrier};
use crate::channel::opening::Opening;
use crate::channel::parameters::{Parameters, PeerParameters};
use crate::config::ChannelConfig;

/// Longest payload that a peer may take with its message: a quarter of the longest ring.
const EAGER_BYTES_MAX: usize = 4 << 20;
/// The parameter for the number of RECEIVEs of a side.
const RECEIVES_PARAMETER: &str = "sent-receives";
/// Number of RECEIVEs of a side.
const RECEIVES: usize = 64;
/// Maximum number that a peer may have.
const RECEIVES_MAX: usize = 4096;
/// Size of the inlet, which the carrier's one-sided operations target if they have no other target.
const INLET_BYTES: usize = 4096;

impl<D: Device> SentChannel<D> {
    /// Creates the objects of one side. `wake` is raised when something arrives.
    pub(crate) fn open(
        device: &D,
        wake: &D::CompletionChannel,
        config: &ChannelConfig,
    ) -> Result<Opening<Self>, VerbsError> {
        let bytes = slot_bytes(config.eager_bytes);
        // In addition to those of messages: the first message of a side is a wake-up.
        let receives = RECEIVES + WAKE_RECEIVES;
        let receiving = Receiving::Sends { receives, bytes };
        let carrier = UnconnectedCarrier::new(device, wake, config, (bytes, 1), &receiving)?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let region = device.allocate_region(&carrier.domain, INLET_BYTES, access)?;
        let mut parameters = carrier.parameters(region.remote());
        parameters.insert(RECEIVES_PARAMETER.to_owned(), RECEIVES as u64);
        let inlet = Inlet { region, at: 0 };
        Ok(carrier.opening(parameters, |carrier, peer, parameters| {
            Self::join(carrier, inlet, peer, parameters)
        }))
    }

    /// See [`UnconnectedCarrier::join`].
    fn join(
        carrier: UnconnectedCarrier<D>,
        inlet: Inlet<D>,
        peer: &EndpointAddress,
        parameters: &Parameters,
    ) -> Result<Self, VerbsError> {
        let said = PeerParameters::new("a channel of SENDs", parameters);
        let theirs = Peer::read(said, EAGER_BYTES_MAX)?;
        let receives = said.number(RECEIVES_PARAMETER, Window::LEAST..=RECEIVES_MAX)?;
        let carrier = carrier.join(peer, inlet, theirs)?;
        let own_eager = carrier.config().eager_bytes;
        let eager_bytes = theirs.eager.min(own_eager);
        let slot = slot_bytes(eager_bytes);
        let lengths = (carrier.inline_bytes(), slot);
        let (device, domain) = (&carrier.device, &carrier.domain);
        let staging = staging_for(device, domain, lengths, receives * slot)?;
        Ok(Self {
            window: Window::new(receives, RECEIVES),
            outgoing: Outgoing::new((receives, slot), staging, carrier.inline_bytes()),
            eager_bytes,
            posted: 0,
            arrived: VecDeque::with_capacity(RECEIVES),
            scratch: vec![0; slot_bytes(own_eager)].into(),
            carrier,
        })
    }
}
