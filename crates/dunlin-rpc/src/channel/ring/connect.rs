//! Setting up a channel: the objects of one side, what it tells the peer, and what it makes of the peer's answer.

use std::collections::VecDeque;
use std::sync::Arc;

use dunlin_verbs::{
    thread, Access, ConnectAttributes, Device, EndpointAddress, Placement, QueuePair,
    QueuePairConfig, ReceiveQueue, ReceiveRequest, Region, RemoteAddress, RemoteKey, Transport,
    Verbs, VerbsError,
};

use super::one_sided::OneSidedWork;
use super::{Parameters, RingChannel, PROBE_INTERVAL, QUIET, RECEIVES, RING_AT, SEND_REQUESTS};
use crate::channel::batch::{Form, LINE_BYTES};
use crate::channel::buffers::{BufferPool, Purpose};
use crate::channel::inbox::Inbox;
use crate::channel::message;
use crate::channel::outbox::Outbox;
use crate::config::ChannelConfig;

/// Names of the parameters that two sides exchange.
mod parameter {
    pub(super) const ADDRESS: &str = "inlet-address";
    pub(super) const KEY: &str = "inlet-key";
    pub(super) const LINES: &str = "ring-lines";
    pub(super) const EAGER: &str = "eager-bytes";
    pub(super) const LONGEST: &str = "max-message-bytes";
    pub(super) const CANARIES: &str = "ring-canaries";
    /// One: the owner's device places the bytes of a WRITE in order. What is not said is not so.
    pub(super) const IN_ORDER: &str = "ring-in-order";
    /// One: a WRITE of the owner's device is a message, so it writes batches in one where its peer's device places in order.
    pub(super) const ONE_WRITE: &str = "ring-one-write";
}

/// A channel whose peer is not known yet.
#[derive(Debug)]
pub(crate) struct UnconnectedRing<D: Device> {
    queue_pair: D::QueuePair,
    completions: D::CompletionQueue,
    wake: D::CompletionChannel,
    inlet: D::Region,
    canaries: u64,
    exports: Arc<BufferPool<D>>,
    landings: Arc<BufferPool<D>>,
    device: D,
    domain: D::ProtectionDomain,
    config: ChannelConfig,
    inline_bytes: usize,
}

impl<D: Device> UnconnectedRing<D> {
    /// Makes the objects of one side. `wake` is raised when the peer wakes this channel.
    pub(crate) fn new(
        device: &D,
        wake: &D::CompletionChannel,
        config: &ChannelConfig,
    ) -> Result<Self, VerbsError> {
        let attributes = device.attributes();
        // A domain for each connection: no key of another connection is of any use here.
        let domain = device.create_protection_domain()?;
        let inlet = device.allocate_region(
            &domain,
            RING_AT + config.ring_bytes,
            Access::LOCAL_WRITE | Access::REMOTE_WRITE,
        )?;
        let entries = SEND_REQUESTS + RECEIVES;
        let completions = device.create_completion_queue(entries, Some(wake))?;
        let inline_bytes = attributes
            .max_inline_bytes
            .min(Outbox::batch_bytes(config.eager_bytes));
        let mut queue_pair = device.create_queue_pair(
            &domain,
            &QueuePairConfig {
                transport: Transport::ReliableConnection,
                send_completions: &completions,
                receive_completions: &completions,
                send_requests: SEND_REQUESTS,
                receive_queue: ReceiveQueue::Own(RECEIVES),
                segments: 1,
                inline_bytes,
            },
        )?;
        let mut access = Access::REMOTE_WRITE | Access::REMOTE_READ;
        if attributes.transports.rc.contains(Verbs::ATOMIC) {
            access |= Access::REMOTE_ATOMIC;
        }
        queue_pair.to_init(access)?;
        let canaries = crate::fabric::random(device)?;
        Ok(Self {
            canaries,
            queue_pair,
            completions,
            wake: wake.clone(),
            inlet,
            exports: BufferPool::new(device, &domain, Purpose::Export),
            landings: BufferPool::new(device, &domain, Purpose::Landing),
            device: device.clone(),
            domain,
            config: config.clone(),
            inline_bytes,
        })
    }

    /// Where the peer reaches this side.
    pub(crate) fn address(&self) -> EndpointAddress {
        self.queue_pair.address()
    }

    /// What the peer must know beyond the address.
    pub(crate) fn parameters(&self) -> Parameters {
        let inlet = self.inlet.remote();
        let lines = self.config.ring_bytes / LINE_BYTES;
        [
            (parameter::ADDRESS, inlet.address),
            (parameter::KEY, u64::from(inlet.key.0)),
            (parameter::LINES, lines as u64),
            (parameter::EAGER, self.config.eager_bytes as u64),
            (parameter::LONGEST, self.config.max_message_bytes as u64),
            (parameter::CANARIES, self.canaries),
            (parameter::IN_ORDER, u64::from(self.in_order())),
            (parameter::ONE_WRITE, u64::from(self.one_write())),
        ]
        .map(|(name, value)| (name.to_string(), value))
        .into()
    }

    fn in_order(&self) -> bool {
        self.device.attributes().placement == Placement::InOrder
    }

    fn one_write(&self) -> bool {
        self.device.attributes().writes_are_messages
    }

    /// Joins the side that dialled: its peer is joined already, and is told that this side is.
    pub(crate) fn connect(
        self,
        peer: &EndpointAddress,
        parameters: &Parameters,
    ) -> Result<RingChannel<D>, VerbsError> {
        let mut channel = self.join(peer, parameters)?;
        channel.met = true;
        channel.dialled = true;
        channel
            .wake_peer(0)
            .map_err(|error| VerbsError::Peer(error.to_string()))?;
        Ok(channel)
    }

    /// Joins the side that was dialled, before its peer: this side posts nothing until it has heard from there, because a queue pair takes
    /// requests only when its owner has come so far, and how long that takes no timeout of a request should bound.
    pub(crate) fn join(
        self,
        peer: &EndpointAddress,
        parameters: &Parameters,
    ) -> Result<RingChannel<D>, VerbsError> {
        let said = |name| parameters.get(name) == Some(&1);
        // Each side knows both: what it says of itself, and what it was told.
        let sends = Form::between(self.one_write(), said(parameter::IN_ORDER));
        let receives = Form::between(said(parameter::ONE_WRITE), self.in_order());
        let Self {
            mut queue_pair,
            completions,
            wake,
            inlet,
            config,
            ..
        } = self;
        let number = |name: &'static str, most: usize| {
            let value = parameters.get(name).copied().ok_or_else(|| {
                VerbsError::Peer(format!(
                    "it did not say its {name}: not a ring of this version"
                ))
            })?;
            usize::try_from(value)
                .ok()
                .filter(|&v| v <= most)
                .ok_or_else(|| VerbsError::Peer(format!("its {name} is {value}, more than {most}")))
        };
        let lines = number(parameter::LINES, 1 << 20)?;
        if !lines.is_power_of_two() || lines < 64 {
            return Err(VerbsError::Peer(format!(
                "its ring has {lines} lines: not a power of two"
            )));
        }
        let eager = number(parameter::EAGER, lines * LINE_BYTES / 4)?;
        if eager < message::DESCRIPTOR_BYTES {
            return Err(VerbsError::Peer(format!(
                "its eager-bytes is {eager}: not even a descriptor fits"
            )));
        }
        let longest = number(parameter::LONGEST, 1 << 30)?;
        if longest < eager {
            return Err(VerbsError::Peer(format!(
                "its max-message-bytes is {longest}, less than its eager-bytes, {eager}"
            )));
        }
        let key = number(parameter::KEY, u32::MAX as usize)?;
        let address = number(parameter::ADDRESS, usize::MAX)?;
        let canaries = number(parameter::CANARIES, usize::MAX)? as u64;
        let timeouts = ConnectAttributes {
            timeout_ns: 500_000_000,
            // A side that announces a sleep has a RECEIVE for its wake-up. Waiting for one that has not would block our sends.
            receiver_not_ready_retries: 0,
            ..Default::default()
        };
        queue_pair.to_ready_to_receive(Some(peer), timeouts)?;
        queue_pair.to_ready_to_send()?;
        for _ in 0..RECEIVES {
            let wake_up = ReceiveRequest {
                id: QUIET,
                segments: &[],
            };
            queue_pair
                .post_receive(&[wake_up])
                .map_err(|e| VerbsError::Peer(e.to_string()))?;
        }
        let eager = eager.min(config.eager_bytes);
        let staging = (self.inline_bytes < Outbox::batch_bytes(eager))
            .then(|| {
                let length = lines * LINE_BYTES;
                self.device
                    .allocate_region(&self.domain, length, Access::LOCAL_WRITE)
            })
            .transpose()?;
        Ok(RingChannel {
            inbox: Inbox::new(
                RING_AT,
                config.ring_bytes / LINE_BYTES,
                config.eager_bytes,
                self.canaries,
                receives,
            ),
            outbox: Outbox::new(lines, eager, canaries, sends),
            peer_inlet: RemoteAddress {
                address: address as u64,
                key: RemoteKey(key as u32),
            },
            peer_eager_bytes: eager,
            peer_longest: longest,
            queue_pair,
            completions,
            wake,
            inlet,
            exports: self.exports,
            landings: self.landings,
            staging,
            inline_bytes: self.inline_bytes,
            config,
            told_consumed: 0,
            unsignaled: 0,
            posted: 0,
            retired: 0,
            signaled: VecDeque::with_capacity(SEND_REQUESTS),
            vain_looks: 0,
            stalled_since: thread::now(),
            fetches: Vec::new(),
            fetched: Vec::new(),
            woken: 0,
            sleep: 0,
            asleep: false,
            announcement: 0,
            unconfirmed: None,
            broken: None,
            asked: None,
            asks: None,
            reported: None,
            one_sided: OneSidedWork::new(),
            met: false,
            waited_since: None,
            dialled: false,
            probe: None,
            next_probe: thread::now() + PROBE_INTERVAL,
            device: self.device,
            domain: self.domain,
        })
    }
}
