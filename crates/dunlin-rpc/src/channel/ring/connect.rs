//! Setting up a channel: the objects of one side, the parameters that it sends, and how it interprets those of the
//! peer.

use dunlin_verbs::{Access, Device, EndpointAddress, Placement, Region, VerbsError};

use super::{RingChannel, RING_AT};
use crate::channel::batch::{Form, LINE_BYTES};
use crate::channel::carrier::{self, Inlet, Peer, UnconnectedCarrier};
use crate::channel::inbox::Inbox;
use crate::channel::message;
use crate::channel::opening::Opening;
use crate::channel::outbox::Outbox;
use crate::channel::Parameters;
use crate::config::ChannelConfig;

/// Names of the parameters that two sides exchange.
mod parameter {
    pub(super) const ADDRESS: &str = "inlet-address";
    pub(super) const KEY: &str = "inlet-key";
    pub(super) const LINES: &str = "ring-lines";
    pub(super) const EAGER: &str = "eager-bytes";
    pub(super) const LONGEST: &str = "max-message-bytes";
    pub(super) const CANARIES: &str = "ring-canaries";
    /// One: the owner's device places the bytes of a WRITE in order. An absent parameter means no.
    pub(super) const IN_ORDER: &str = "ring-in-order";
    /// One: a WRITE of the owner's device is a message, so it writes batches in one WRITE if its peer's device places
    /// in order.
    pub(super) const ONE_WRITE: &str = "ring-one-write";
}

/// A channel whose peer is not known yet.
struct Unconnected<D: Device> {
    carrier: UnconnectedCarrier<D>,
    inlet: D::Region,
    canaries: u64,
}

impl<D: Device> RingChannel<D> {
    /// Creates the objects of one side. `wake` is raised when the peer wakes this channel.
    pub(crate) fn open(
        device: &D,
        wake: &D::CompletionChannel,
        config: &ChannelConfig,
    ) -> Result<Opening<Self>, VerbsError> {
        let inline_bytes = Outbox::batch_bytes(config.eager_bytes);
        let carrier = UnconnectedCarrier::new(device, wake, config, inline_bytes)?;
        let inlet = device.allocate_region(
            &carrier.domain,
            RING_AT + config.ring_bytes,
            Access::LOCAL_WRITE | Access::REMOTE_WRITE,
        )?;
        let unconnected = Unconnected {
            carrier,
            inlet,
            canaries: crate::random::random(device)?,
        };
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
        let lines = self.carrier.config.ring_bytes / LINE_BYTES;
        [
            (parameter::ADDRESS, inlet.address),
            (parameter::KEY, u64::from(inlet.key.0)),
            (parameter::LINES, lines as u64),
            (parameter::EAGER, self.carrier.config.eager_bytes as u64),
            (
                parameter::LONGEST,
                self.carrier.config.max_message_bytes as u64,
            ),
            (parameter::CANARIES, self.canaries),
            (parameter::IN_ORDER, u64::from(self.in_order())),
            (parameter::ONE_WRITE, u64::from(self.one_write())),
        ]
        .map(|(name, value)| (name.to_string(), value))
        .into()
    }

    fn in_order(&self) -> bool {
        self.carrier.device.attributes().placement == Placement::InOrder
    }

    fn one_write(&self) -> bool {
        self.carrier.device.attributes().writes_are_messages
    }

    /// See [`UnconnectedCarrier::join`].
    fn join(
        self,
        peer: &EndpointAddress,
        parameters: &Parameters,
    ) -> Result<RingChannel<D>, VerbsError> {
        let said = |name| parameters.get(name) == Some(&1);
        // Each side knows both: its own parameters and those of the peer.
        let sends = Form::between(self.one_write(), said(parameter::IN_ORDER));
        let receives = Form::between(said(parameter::ONE_WRITE), self.in_order());
        let number = |name, most| carrier::number(parameters, "a ring", name, most);
        let lines = number(parameter::LINES, 1 << 20)?;
        if !lines.is_power_of_two() || lines < 64 {
            return Err(VerbsError::Peer(format!(
                "its ring has {lines} lines, which is not a power of two"
            )));
        }
        let eager = number(parameter::EAGER, lines * LINE_BYTES / 4)?;
        if eager < message::DESCRIPTOR_BYTES {
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
        let at = (parameter::ADDRESS, parameter::KEY);
        let theirs = Peer {
            inlet: carrier::place(parameters, "a ring", at)?,
            longest,
            traffic_class: carrier::traffic_class(parameters)?,
        };
        let canaries = number(parameter::CANARIES, usize::MAX)? as u64;
        let Self {
            carrier,
            inlet,
            canaries: own_canaries,
        } = self;
        let inlet = Inlet {
            region: inlet,
            at: 0,
        };
        let carrier = carrier.join(peer, inlet, theirs)?;
        let (own_lines, own_eager) = (
            carrier.config.ring_bytes / LINE_BYTES,
            carrier.config.eager_bytes,
        );
        let eager = eager.min(own_eager);
        let staging = (carrier.inline_bytes < Outbox::batch_bytes(eager))
            .then(|| {
                let length = lines * LINE_BYTES;
                carrier
                    .device
                    .allocate_region(&carrier.domain, length, Access::LOCAL_WRITE)
            })
            .transpose()?;
        Ok(RingChannel {
            inbox: Inbox::new(RING_AT, own_lines, own_eager, own_canaries, receives),
            outbox: Outbox::new(lines, eager, canaries, sends),
            peer_eager_bytes: eager,
            staging,
            told_consumed: 0,
            peer_ring: None,
            asks: None,
            unreported: None,
            carrier,
        })
    }
}
