//! Setting up a channel of SENDs: the objects of one side, the parameters that it sends, and how it interprets those of
//! the peer.

use std::collections::VecDeque;

use dunlin_link::WAKE_RECEIVES;
use dunlin_verbs::{Access, Device, EndpointAddress, Region, VerbsError};

use super::{slot_bytes, Outgoing, SentChannel, Window};
use crate::channel::carrier::{self, Inlet, Peer, UnconnectedCarrier};
use crate::channel::message::DESCRIPTOR_BYTES;
use crate::channel::opening::Opening;
use crate::channel::Parameters;
use crate::config::ChannelConfig;

/// Names of the parameters that two sides exchange.
mod parameter {
    pub(super) const INLET: (&str, &str) = ("inlet-address", "inlet-key");
    pub(super) const RECEIVES: &str = "sent-receives";
    pub(super) const EAGER: &str = "eager-bytes";
    pub(super) const LONGEST: &str = "max-message-bytes";
}

/// For error messages about the peer's parameters.
const WHAT: &str = "a channel of SENDs";
/// Number of RECEIVEs of a side.
const RECEIVES: usize = 64;
/// Maximum number that a peer may have.
const RECEIVES_MAX: usize = 4096;
/// Size of the inlet, which the carrier's one-sided operations target if they have no other target.
const INLET_BYTES: usize = 4096;

/// A channel whose peer is not known yet.
struct Unconnected<D: Device> {
    carrier: UnconnectedCarrier<D>,
    inlet: D::Region,
}

impl<D: Device> SentChannel<D> {
    /// Creates the objects of one side. `wake` is raised when something arrives.
    pub(crate) fn open(
        device: &D,
        wake: &D::CompletionChannel,
        config: &ChannelConfig,
    ) -> Result<Opening<Self>, VerbsError> {
        let bytes = slot_bytes(config.eager_bytes);
        // In addition to those of messages: the first message of a side is a wake-up.
        let count = RECEIVES + WAKE_RECEIVES;
        let carrier =
            UnconnectedCarrier::with_buffers(device, wake, config, bytes, (count, bytes))?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let inlet = device.allocate_region(&carrier.domain, INLET_BYTES, access)?;
        let unconnected = Unconnected { carrier, inlet };
        Ok(Opening {
            address: unconnected.carrier.address(),
            parameters: unconnected.parameters(),
            join: Box::new(|peer, parameters| unconnected.join(peer, parameters)),
        })
    }
}

impl<D: Device> Unconnected<D> {
    fn parameters(&self) -> Parameters {
        let inlet = self.inlet.remote();
        let config = &self.carrier.config;
        [
            (parameter::INLET.0, inlet.address),
            (parameter::INLET.1, u64::from(inlet.key.0)),
            (parameter::RECEIVES, RECEIVES as u64),
            (parameter::EAGER, config.eager_bytes as u64),
            (parameter::LONGEST, config.max_message_bytes as u64),
        ]
        .map(|(name, value)| (name.to_string(), value))
        .into()
    }

    /// See [`UnconnectedCarrier::join`].
    fn join(
        self,
        peer: &EndpointAddress,
        parameters: &Parameters,
    ) -> Result<SentChannel<D>, VerbsError> {
        let number = |name, most| carrier::number(parameters, WHAT, name, most);
        let eager = number(parameter::EAGER, 1 << 20)?;
        if eager < DESCRIPTOR_BYTES {
            return Err(VerbsError::Peer(format!(
                "its eager-bytes is {eager}, too small for a descriptor"
            )));
        }
        let longest = number(parameter::LONGEST, 1 << 30)?;
        if longest < eager {
            return Err(VerbsError::Peer(format!(
                "its max-message-bytes is {longest}, less than its eager-bytes, {eager}"
            )));
        }
        let receives = number(parameter::RECEIVES, RECEIVES_MAX)?;
        if receives < Window::LEAST {
            return Err(VerbsError::Peer(format!(
                "it has {receives} RECEIVEs, fewer than the minimum of {}",
                Window::LEAST
            )));
        }
        let theirs = Peer {
            inlet: carrier::place(parameters, WHAT, parameter::INLET)?,
            longest,
            traffic_class: carrier::traffic_class(parameters)?,
        };
        let Self { carrier, inlet } = self;
        let inlet = Inlet {
            region: inlet,
            at: 0,
        };
        let carrier = carrier.join(peer, inlet, theirs)?;
        let own_eager = carrier.config().eager_bytes;
        let eager_bytes = eager.min(own_eager);
        let slot = slot_bytes(eager_bytes);
        let staging = (carrier.inline_bytes() < slot)
            .then(|| {
                let domain = &carrier.domain;
                let length = receives * slot;
                carrier
                    .device
                    .allocate_region(domain, length, Access::LOCAL_WRITE)
            })
            .transpose()?;
        Ok(SentChannel {
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
