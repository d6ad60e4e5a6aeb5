//! Setting up a carrier: the objects of one side, before its peer is known, and connecting both.

use std::collections::VecDeque;
use std::sync::Arc;

use dunlin_link::{SendQueue, SleepWord, Ticket, WAKE_RECEIVES};
use dunlin_verbs::{
    thread, Access, ConnectAttributes, Device, EndpointAddress, QueuePair, QueuePairConfig,
    ReceiveQueue, ReceiveRequest, RemoteAddress, RemoteKey, Transport, Verbs, VerbsError,
};

use super::one_sided::OneSidedWork;
use super::receives::Receives;
use super::{Carrier, QUIET, SEND_REQUESTS, SIGNAL_EVERY, SLEEP_AT};
use crate::channel::buffers::{BufferPool, Purpose};
use crate::channel::{Parameters, CLASS_PARAMETER};
use crate::config::ChannelConfig;

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

/// The queue for completions of RECEIVEs, if it is not the carrier's own but shared by many. Its poller passes them to
/// [`Carrier::arrived`].
#[derive(Debug)]
pub(in crate::channel) struct Arrivals<'a, Q> {
    /// The queue.
    pub(in crate::channel) queue: &'a Q,
    /// The id by which its owner knows the carrier; not [`QUIET`].
    pub(in crate::channel) id: u64,
    /// Number of RECEIVEs that are kept posted.
    pub(in crate::channel) receives: usize,
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
    /// Maximum length of a payload that it accepts.
    pub(in crate::channel) longest: usize,
    /// The traffic class that it requests; zero if none.
    pub(in crate::channel) traffic_class: u8,
}

impl<D: Device> UnconnectedCarrier<D> {
    /// Creates the objects of one side, whose requests carry up to `inline_bytes` inline if the device supports it.
    /// `wake` is raised when the peer wakes this channel.
    pub(in crate::channel) fn new(
        device: &D,
        wake: &D::CompletionChannel,
        config: &ChannelConfig,
        inline_bytes: usize,
    ) -> Result<Self, VerbsError> {
        Self::with_arrivals(device, wake, config, inline_bytes, (None, 1))
    }

    /// As [`UnconnectedCarrier::new`], for a channel whose messages are SENDs: with RECEIVEs of this number and size.
    pub(in crate::channel) fn with_buffers(
        device: &D,
        wake: &D::CompletionChannel,
        config: &ChannelConfig,
        inline_bytes: usize,
        (count, bytes): (usize, usize),
    ) -> Result<Self, VerbsError> {
        let receives = Some((count, bytes));
        Self::with(device, wake, config, inline_bytes, (None, 1, receives))
    }

    /// As [`UnconnectedCarrier::new`], with a queue for the completions of RECEIVEs, and this number of segments per
    /// request if the device supports it.
    pub(in crate::channel) fn with_arrivals(
        device: &D,
        wake: &D::CompletionChannel,
        config: &ChannelConfig,
        inline_bytes: usize,
        (arrivals, segments): (Option<Arrivals<'_, D::CompletionQueue>>, usize),
    ) -> Result<Self, VerbsError> {
        Self::with(
            device,
            wake,
            config,
            inline_bytes,
            (arrivals, segments, None),
        )
    }

    #[allow(clippy::type_complexity)]
    fn with(
        device: &D,
        wake: &D::CompletionChannel,
        config: &ChannelConfig,
        inline_bytes: usize,
        (arrivals, segments, buffers): (
            Option<Arrivals<'_, D::CompletionQueue>>,
            usize,
            Option<(usize, usize)>,
        ),
    ) -> Result<Self, VerbsError> {
        let attributes = device.attributes();
        let domain = device.create_protection_domain()?;
        let with_memory = buffers.map_or(0, |(count, _)| count);
        let entries = SEND_REQUESTS + WAKE_RECEIVES.max(with_memory);
        let completions = device.create_completion_queue(entries, Some(wake))?;
        let inline_bytes = attributes.max_inline_bytes.min(inline_bytes);
        let (queue, receive_id, receives) = match &arrivals {
            None if with_memory > 0 => (&completions, 0, with_memory),
            None => (&completions, QUIET, WAKE_RECEIVES),
            Some(arrivals) => (arrivals.queue, arrivals.id, arrivals.receives),
        };
        let receive_queue = match buffers {
            Some((count, _)) => ReceiveQueue::Own(count),
            // Wake-ups only.
            None => ReceiveQueue::OwnEmpty(receives),
        };
        let mut queue_pair = device.create_queue_pair(
            &domain,
            &QueuePairConfig {
                transport: Transport::ReliableConnection,
                send_completions: &completions,
                receive_completions: queue,
                send_requests: SEND_REQUESTS,
                receive_queue,
                segments: attributes.max_segments.min(segments),
                inline_bytes,
            },
        )?;
        let mut access = Access::REMOTE_WRITE | Access::REMOTE_READ;
        if attributes.transports.rc.contains(Verbs::ATOMIC) {
            access |= Access::REMOTE_ATOMIC;
        }
        queue_pair.to_init(access)?;
        let buffers = buffers.map(|of| Receives::new(device, &domain, of));
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

/// A number among the peer's parameters; `what` names the set that it belongs to.
pub(in crate::channel) fn number(
    parameters: &Parameters,
    what: &str,
    name: &str,
    most: usize,
) -> Result<usize, VerbsError> {
    let value = parameters.get(name).copied().ok_or_else(|| {
        VerbsError::Peer(format!(
            "it did not send its {name}: not {what} of this version"
        ))
    })?;
    usize::try_from(value)
        .ok()
        .filter(|&value| value <= most)
        .ok_or_else(|| {
            VerbsError::Peer(format!("its {name} is {value}, above the limit of {most}"))
        })
}

/// The traffic class that a client requests; zero if none.
pub(in crate::channel) fn traffic_class(parameters: &Parameters) -> Result<u8, VerbsError> {
    let class = parameters.get(CLASS_PARAMETER).copied().unwrap_or(0);
    u8::try_from(class).map_err(|_| {
        VerbsError::Peer(format!(
            "its {CLASS_PARAMETER} is {class}, above the limit of 255"
        ))
    })
}

/// A location in the peer's memory, from the parameters with these names.
pub(in crate::channel) fn place(
    parameters: &Parameters,
    what: &str,
    (address, key): (&str, &str),
) -> Result<RemoteAddress, VerbsError> {
    let key = number(parameters, what, key, u32::MAX as usize)?;
    let address = number(parameters, what, address, usize::MAX)?;
    Ok(RemoteAddress {
        address: address as u64,
        key: RemoteKey(key as u32),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traffic_class_has_eight_bits() {
        let said = |class| Parameters::from([(CLASS_PARAMETER.to_string(), class)]);
        assert_eq!(traffic_class(&Parameters::new()).unwrap(), 0);
        assert_eq!(traffic_class(&said(255)).unwrap(), 255);
        for class in [256, u64::MAX] {
            let error = traffic_class(&said(class)).unwrap_err();
            assert!(error.to_string().contains("limit of 255"), "{error}");
        }
    }
}
