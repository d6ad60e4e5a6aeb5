//! Setting up a carrier: the objects of one side, before its peer is known, and connecting both.

use std::collections::VecDeque;
use std::sync::Arc;

use dunlin_link::{SendQueue, SleepWord, Ticket, WAKE_RECEIVES};
use dunlin_verbs::{
    thread, Access, ConnectAttributes, Device, EndpointAddress, QueuePair, QueuePairConfig,
    ReceiveQueue, ReceiveRequest, RemoteAddress, Transport, Verbs, VerbsError,
};

use super::one_sided::OneSidedWork;
use super::receives::Receives;
use super::{Carrier, QUIET, SEND_REQUESTS, SIGNAL_EVERY, SLEEP_AT};
use crate::channel::buffers::{BufferPool, Purpose};
use crate::channel::message::DESCRIPTOR_BYTES;
use crate::channel::opening::Opening;
use crate::channel::parameters::{named, named_place, Parameters, PeerParameters};
use crate::config::{ChannelConfig, MAX_MESSAGE_BYTES};

/// The parameter for the traffic class that a client wants in both directions ([`ChannelConfig::traffic_class`]).
pub(crate) const CLASS_PARAMETER: &str = "traffic-class";

/// Names of the parameters that all kinds of channel over a carrier exchange.
mod parameter {
    pub(super) const INLET: (&str, &str) = ("inlet-address", "inlet-key");
    pub(super) const EAGER: &str = "eager-bytes";
    pub(super) const LONGEST: &str = "max-message-bytes";
}

/// A carrier whose peer is not known yet.
#[derive(Debug)]
pub(in crate::channel) struct UnconnectedCarrier<D: Device> {
    queue_pair: D::QueuePair,
    completions: D::CompletionQueue,
    receives: usize,
    receive_id: u64,
    buffers: Option<Receives<D>>,
    wake: D::CompletionChannel,
    exports: Arc<BufferPool<D>>,
    landings: Arc<BufferPool<D>>,
    pub(in crate::channel) device: D,
    /// A domain for each connection: keys of other connections are of no use here.
    pub(in crate::channel) domain: D::ProtectionDomain,
    pub(in crate::channel) config: ChannelConfig,
    pub(in crate::channel) inline_bytes: usize,
}

/// What the peer may send that takes a RECEIVE, and the queue for the completions.
#[derive(Debug)]
pub(in crate::channel) enum Receiving<'a, Q> {
    /// Wake-ups.
    WakeUps,
    /// SENDs as well.
    Sends {
        /// Number of RECEIVEs that are kept posted.
        receives: usize,
        /// Size of each in bytes.
        bytes: usize,
    },
    /// Notifications as well, whose queue is shared by many carriers. Its poller passes them to [`Carrier::arrived`].
    Notifications {
        /// The queue.
        queue: &'a Q,
        /// The id by which its owner knows the carrier; not [`QUIET`].
        id: u64,
        /// Number of RECEIVEs that are kept posted.
        receives: usize,
    },
}

/// The memory that the peer may write.
#[derive(Debug)]
pub(in crate::channel) struct Inlet<D: Device> {
    pub(in crate::channel) region: D::Region,
    /// Its offset in the region.
    pub(in crate::channel) at: usize,
}

/// What the peer has stated about itself.
#[derive(Clone, Copy, Debug)]
pub(in crate::channel) struct Peer {
    pub(in crate::channel) inlet: RemoteAddress,
    /// Maximum length of a payload that it accepts with its message, and of any.
    pub(in crate::channel) eager: usize,
    longest: usize,
    /// The traffic class that it requests; zero if none.
    traffic_class: u8,
}

impl Peer {
    /// Reads what peers of all kinds of channel state; those of this kind accept payloads of up to `eager_most` bytes
    /// with their messages.
    pub(in crate::channel) fn read(
        said: PeerParameters<'_>,
        eager_most: usize,
    ) -> Result<Self, VerbsError> {
        let eager = said.number(parameter::EAGER, DESCRIPTOR_BYTES..=eager_most)?;
        let class = said.optional(CLASS_PARAMETER, 0..=u8::MAX.into())?;
        Ok(Self {
            inlet: said.place(parameter::INLET)?,
            eager,
            longest: said.number(parameter::LONGEST, eager..=MAX_MESSAGE_BYTES)?,
            traffic_class: class.unwrap_or(0) as u8,
        })
    }
}

impl<D: Device> UnconnectedCarrier<D> {
    /// Creates the objects of one side, whose requests carry up to `inline_bytes` inline and have up to `segments`
    /// segments, as far as the device supports it. `wake` is raised when the peer wakes this channel.
    pub(in crate::channel) fn new(
        device: &D,
        wake: &D::CompletionChannel,
        config: &ChannelConfig,
        (inline_bytes, segments): (usize, usize),
        receiving: &Receiving<'_, D::CompletionQueue>,
    ) -> Result<Self, VerbsError> {
        let attributes = device.attributes();
        let domain = device.create_protection_domain()?;
        let (receive_id, receives, bytes) = match *receiving {
            Receiving::WakeUps => (QUIET, WAKE_RECEIVES, None),
            Receiving::Sends { receives, bytes } => (0, receives, Some(bytes)),
            Receiving::Notifications { id, receives, .. } => (id, receives, None),
        };
        let with_memory = bytes.map_or(0, |_| receives);
        let entries = SEND_REQUESTS + WAKE_RECEIVES.max(with_memory);
        let completions = device.create_completion_queue(entries, Some(wake))?;
        let inline_bytes = attributes.max_inline_bytes.min(inline_bytes);
        let mut queue_pair = device.create_queue_pair(
            &domain,
            &QueuePairConfig {
                transport: Transport::ReliableConnection,
                send_completions: &completions,
                receive_completions: match *receiving {
                    Receiving::Notifications { queue, .. } => queue,
                    Receiving::WakeUps | Receiving::Sends { .. } => &completions,
                },
                send_requests: SEND_REQUESTS,
                receive_queue: match bytes {
                    None => ReceiveQueue::OwnEmpty(receives),
                    Some(_) => ReceiveQueue::Own(receives),
                },
                segments: attributes.max_segments.min(segments),
                inline_bytes,
            },
        )?;
        let mut access = Access::REMOTE_WRITE | Access::REMOTE_READ;
        if attributes.transports.rc.contains(Verbs::ATOMIC) {
            access |= Access::REMOTE_ATOMIC;
        }
        queue_pair.to_init(access)?;
        let buffers = bytes.map(|bytes| Receives::new(device, &domain, (receives, bytes)));
        Ok(Self {
            buffers: buffers.transpose()?,
            queue_pair,
            completions,
            receives,
            receive_id,
            wake: wake.clone(),
            exports: BufferPool::new(device, &domain, Purpose::Export),
            landings: BufferPool::new(device, &domain, Purpose::Landing),
            device: device.clone(),
            domain,
            config: config.clone(),
            inline_bytes,
        })
    }

    /// The address of this side for the peer.
    pub(in crate::channel) fn address(&self) -> EndpointAddress {
        self.queue_pair.address()
    }

    /// The parameters that peers of all kinds of channel need in addition to the address.
    pub(in crate::channel) fn parameters(&self, inlet: RemoteAddress) -> Parameters {
        let mut parameters = Parameters::from(named([
            (parameter::EAGER, self.config.eager_bytes as u64),
            (parameter::LONGEST, self.config.max_message_bytes as u64),
        ]));
        parameters.extend(named_place(parameter::INLET, inlet));
        parameters
    }

    /// This side of a channel, which states `parameters`; `join` makes the channel once the peer is known.
    pub(in crate::channel) fn opening<C>(
        self,
        parameters: Parameters,
        join: impl FnOnce(Self, &EndpointAddress, &Parameters) -> Result<C, VerbsError> + 'static,
    ) -> Opening<C> {
        Opening {
            address: self.address(),
            parameters,
            join: Box::new(|peer, parameters| join(self, peer, parameters)),
        }
    }

    /// Connects the side that was dialled, before its peer: this side posts nothing until it has heard from the peer,
    /// because a queue pair accepts requests only when its owner has connected it, and the time for that should not be
    /// bounded by a timeout of a request.
    pub(in crate::channel) fn join(
        self,
        address: &EndpointAddress,
        inlet: Inlet<D>,
        peer: Peer,
    ) -> Result<Carrier<D>, VerbsError> {
        let Self { mut queue_pair, .. } = self;
        let timeouts = ConnectAttributes {
            timeout_ns: 500_000_000,
            // A side that announces a sleep has a RECEIVE for its wake-up. Waiting for one that has none would block
            // our sends.
            receiver_not_ready_retries: 0,
            traffic_class: match self.config.traffic_class {
                0 => peer.traffic_class,
                own => own,
            },
            ..Default::default()
        };
        queue_pair.to_ready_to_receive(Some(address), timeouts)?;
        queue_pair.to_ready_to_send()?;
        for receive in 0..self.receives {
            if let Some(buffers) = &self.buffers {
                buffers
                    .post(&mut queue_pair, receive)
                    .map_err(|e| VerbsError::Peer(e.to_string()))?;
                continue;
            }
            let wake_up = ReceiveRequest {
                id: self.receive_id,
                segments: &[],
            };
            queue_pair
                .post_receive(&[wake_up])
                .map_err(|e| VerbsError::Peer(e.to_string()))?;
        }
        Ok(Carrier {
            queue_pair,
            completions: self.completions,
            receive_id: self.receive_id,
            buffers: self.buffers,
            wake: self.wake,
            inlet: inlet.region,
            exports: self.exports,
            landings: self.landings,
            config: self.config,
            inline_bytes: self.inline_bytes,
            peer_inlet: peer.inlet,
            peer_longest: peer.longest,
            sends: SendQueue::new(SEND_REQUESTS, SIGNAL_EVERY),
            short: false,
            vain_looks: 0,
            stalled_since: thread::now(),
            fetches: VecDeque::new(),
            reading: VecDeque::new(),
            sleep: SleepWord::new(inlet.at + SLEEP_AT, peer.inlet.plus(SLEEP_AT as u64)),
            fence: Ticket::default(),
            unconfirmed: None,
            broken: None,
            asked: None,
            reported: None,
            one_sided: OneSidedWork::new(),
            ring_completed: None,
            met: false,
            waited_since: None,
            dialled: false,
            probe: None,
            next_probe: None,
            device: self.device,
            domain: self.domain,
        })
    }
}

impl<D: Device> Carrier<D> {
    /// Called by the dialling side: its peer is connected already, and is notified that this side is, too.
    pub(crate) fn greet(&mut self) -> Result<(), VerbsError> {
        self.met = true;
        self.dialled = true;
        self.wake_peer(0)
            .map_err(|error| VerbsError::Peer(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use dunlin_verbs::RemoteKey;

    use super::*;

    #[test]
    fn a_traffic_class_has_eight_bits() {
        let (inlet, key) = parameter::INLET;
        let mut parameters = Parameters::from(named([
            (inlet, 0),
            (key, 0),
            (parameter::EAGER, 24),
            (parameter::LONGEST, 24),
        ]));
        let read = |parameters: &_| Peer::read(PeerParameters::new("a ring", parameters), 24);
        assert_eq!(read(&parameters).unwrap().traffic_class, 0);
        parameters.insert(CLASS_PARAMETER.to_owned(), 255);
        assert_eq!(read(&parameters).unwrap().traffic_class, 255);
        for class in [256, u64::MAX] {
            parameters.insert(CLASS_PARAMETER.to_owned(), class);
            let error = read(&parameters).unwrap_err().to_string();
            assert!(error.contains("it must be from 0 to 255"), "{error}");
        }
    }

    #[test]
    fn a_peer_takes_a_descriptor_and_its_longest_message_is_no_shorter() {
        let read = |eager, longest| {
            let mut parameters = Parameters::from(named([
                (parameter::EAGER, eager),
                (parameter::LONGEST, longest),
            ]));
            let nowhere = RemoteAddress {
                address: 0,
                key: RemoteKey(0),
            };
            parameters.extend(named_place(parameter::INLET, nowhere));
            let read = Peer::read(PeerParameters::new("a ring", &parameters), 4096);
            read.map_err(|error| error.to_string())
        };
        assert!(read(24, 24).is_ok() && read(4096, 1 << 30).is_ok());
        for (eager, longest, words) in [
            (23, 100, "its eager-bytes is 23: it must be from 24 to 4096"),
            (
                4097,
                8192,
                "its eager-bytes is 4097: it must be from 24 to 4096",
            ),
            (24, 23, "its max-message-bytes is 23: it must be from 24 to"),
            (24, (1 << 30) + 1, "it must be from 24 to 1073741824"),
        ] {
            let error = read(eager, longest).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }
}
