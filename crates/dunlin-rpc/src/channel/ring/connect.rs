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
        let carrier =
            UnconnectedCarrier::new(device, wake, config, (inline_bytes, 1), &Receiving::WakeUps)?;
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
        let lines = self.carrier.config.ring_bytes / LINE_BYTES;
        let mut parameters = self.carrier.parameters(self.inlet.remote());
        parameters.extend(named([
            (parameter::LINES, lines as u64),
            (parameter::CANARIES, self.canaries),
            (parameter::IN_ORDER, u64::from(self.in_order())),
            (parameter::ONE_WRITE, u64::from(self.one_write())),
        ]));
        parameters
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
        let said = PeerParameters::new("a ring", parameters);
        // Each side knows both: its own parameters and those of the peer.
        let sends = Form::between(self.one_write(), said.is_set(parameter::IN_ORDER));
        let receives = Form::between(said.is_set(parameter::ONE_WRITE), self.in_order());
        let lines = said.number(parameter::LINES, 64..=1 << 20)?;
        if !lines.is_power_of_two() {
            let words = format!("its ring-lines is {lines}: it must be a power of two");
            return Err(VerbsError::Peer(words));
        }
        let theirs = Peer::read(said, lines * LINE_BYTES / 4)?;
        let canaries = said.word(parameter::CANARIES)?;
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
        let eager = theirs.eager.min(own_eager);
        let lengths = (carrier.inline_bytes, Outbox::batch_bytes(eager));
        let (device, domain) = (&carrier.device, &carrier.domain);
        let staging = staging_for(device, domain, lengths, lines * LINE_BYTES)?;
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
