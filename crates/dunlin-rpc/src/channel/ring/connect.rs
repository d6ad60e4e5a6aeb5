//! Setting up a channel: the objects of one side, the parameters that it sends, and how it interprets those of the
//! peer.

use dunlin_verbs::{Access, Device, EndpointAddress, Placement, Region, VerbsError};

use super::{RingChannel, RING_AT};
use crate::channel::batch::{Form, LINE_BYTES};
use crate::channel::buffers::staging_for;
use crate::channel::carrier::{Inlet, Peer, Receiving, UnconnectedCarrier};
use crate::channel::inbox::Inbox;
use crate::channel::opening::Opening;
use crate::channel::outbox::Outbox;
use crate::channel::parameters::{named, Parameters, PeerParameters};
use crate::config::ChannelConfig;

/// Names of the parameters that two sides exchange.
mod parameter {
    pub(super) const LINES: &str = "ring-lines";
    pub(super) const CANARIES: &str = "ring-canaries";
    /// One: the owner's device places the bytes of a WRITE in order. An absent parameter means no.
    pub(super) const IN_ORDER: &str = "ring-in-order";
    /// One: a WRITE of the owner's device is a message, so it writes batches in one WRITE if its peer's device places
    /// in order.
    pub(super) const ONE_WRITE: &str = "ring-one-write";
}

impl<D: Device> RingChannel<D> {
    /// Creates the objects of one side. `wake` is raised when the peer wakes this channel.
    pub(crate) fn open(
        device: &D,
        wake: &D::CompletionChannel,
        config: &ChannelConfig,
    ) -> Result<Opening<Self>, VerbsError> {
        let inline_bytes = Outbox::batch_bytes(config.eager_bytes);
        let carrier =
            UnconnectedCarrier::new(device, wake, config, (inline_bytes, 1), &Receiving::WakeUps)?;
        let inlet_bytes = RING_AT + config.ring_bytes;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let region = device.allocate_region(&carrier.domain, inlet_bytes, access)?;
        let canaries = crate::random::random(device)?;
        let mut parameters = carrier.parameters(region.remote());
        parameters.extend(named([
            (parameter::LINES, (config.ring_bytes / LINE_BYTES) as u64),
            (parameter::CANARIES, canaries),
            (parameter::IN_ORDER, u64::from(in_order(device))),
            (parameter::ONE_WRITE, u64::from(one_write(device))),
        ]));
        let inlet = Inlet { region, at: 0 };
        Ok(
            carrier.opening(parameters, move |carrier, peer, parameters| {
                Self::join(carrier, (inlet, canaries), peer, parameters)
            }),
        )
    }

    /// See [`UnconnectedCarrier::join`].
    fn join(
        carrier: UnconnectedCarrier<D>,
        (inlet, own_canaries): (Inlet<D>, u64),
        peer: &EndpointAddress,
        parameters: &Parameters,
    ) -> Result<Self, VerbsError> {
        let said = PeerParameters::new("a ring", parameters);
        // Each side knows both: its own parameters and those of the peer.
        let device = &carrier.device;
        let sends = Form::between(one_write(device), said.is_set(parameter::IN_ORDER));
        let receives = Form::between(said.is_set(parameter::ONE_WRITE), in_order(device));
        let lines = said.number(parameter::LINES, 64..=1 << 20)?;
        if !lines.is_power_of_two() {
            let words = format!("its ring-lines is {lines}: it must be a power of two");
            return Err(VerbsError::Peer(words));
        }
        let theirs = Peer::read(said, lines * LINE_BYTES / 4)?;
        let canaries = said.word(parameter::CANARIES)?;
        let carrier = carrier.join(peer, inlet, theirs)?;
        let (own_lines, own_eager) = (
            carrier.config.ring_bytes / LINE_BYTES,
            carrier.config.eager_bytes,
        );
        let eager = theirs.eager.min(own_eager);
        let lengths = (carrier.inline_bytes, Outbox::batch_bytes(eager));
        let (device, domain) = (&carrier.device, &carrier.domain);
        let staging = staging_for(device, domain, lengths, lines * LINE_BYTES)?;
        Ok(Self {
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

fn in_order<D: Device>(device: &D) -> bool {
    device.attributes().placement == Placement::InOrder
}

fn one_write<D: Device>(device: &D) -> bool {
    device.attributes().writes_are_messages
}
