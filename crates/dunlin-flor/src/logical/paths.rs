//! A queue pair for data, and its receive buffers.

use dunlin_verbs::{
    Access, ConnectAttributes, Device, EndpointAddress, Operation, Payload, PostError,
    PostErrorKind, QueuePair, QueuePairConfig, QueuePairState, ReceiveQueue, ReceiveRequest,
    Region, Segment, SendFlags, SendRequest, VerbsError,
};

use super::memory::{Fronts, Source};
use super::{shared_acks, LinkConfig};
use crate::connection::{Piece, Verb, WorkRequest};
use crate::wire::{MAX_BODY_BYTES, SEND_HEADER_BYTES};

/// Length of a receive buffer in bytes: the connection's own messages always fit.
fn receive_bytes(config: &LinkConfig) -> usize {
    let most = (config.connection.max_fragment_bytes as usize).max(MAX_BODY_BYTES);
    (SEND_HEADER_BYTES + most).next_multiple_of(64)
}

/// Time without an answer before RC's NIC retries: with two retries (Flor §6) a dead queue pair is abandoned after
/// about 50 ms; a peer's thread may be off its core for as long as software devices need.
const RC_TIMEOUT_NS: u64 = 17_000_000;

/// The result of posting while there is no queue pair.
const NONE: PostError = PostError {
    index: 0,
    kind: PostErrorKind::State(QueuePairState::Reset),
};

/// Path and slot of a receive buffer, from the id of its RECEIVE.
pub(super) fn receive_of(id: u64) -> (usize, usize) {
    ((id >> 32) as usize, id as u32 as usize)
}

/// See the module.
#[derive(Debug)]
pub(super) struct PathEnd<D: Device> {
    path: usize,
    /// `None` while the device has no replacement for one that was fenced.
    queue_pair: Option<D::QueuePair>,
    number: u32,
    address: EndpointAddress,
    buffers: D::Region,
    receive_bytes: usize,
    retries: u8,
    /// Slots that are not posted and not being read.
    free: Vec<usize>,
    /// Number of RECEIVEs that the device has.
    posted: usize,
    fenced: bool,
    renewing: bool,
    /// The peer's address, if the device has not connected it yet, and when to try again.
    unconnected: Option<(EndpointAddress, u64)>,
    /// Applies to what is connected from now on.
    pub(super) traffic_class: u8,
}

impl<D: Device> PathEnd<D> {
    pub(super) fn new(
        device: &D,
        domain: &D::ProtectionDomain,
        config: &LinkConfig,
        ends: (&D::CompletionQueue, &D::CompletionQueue),
        path: usize,
    ) -> Result<Self, VerbsError> {
        let receive_bytes = receive_bytes(config);
        let bytes = config.receives * receive_bytes;
        let queue_pair = queue_pair(device, domain, config, ends)?;
        let mut end = Self {
            path,
            number: queue_pair.number(),
            address: queue_pair.address(),
            queue_pair: Some(queue_pair),
            buffers: device.allocate_region(domain, bytes, Access::LOCAL_WRITE)?,
            receive_bytes,
            retries: config.retries,
            free: (0..config.receives).collect(),
            posted: 0,
            fenced: false,
            renewing: false,
            unconnected: None,
            traffic_class: config.traffic_class,
        };
        end.init()?;
        Ok(end)
    }

    fn init(&mut self) -> Result<(), VerbsError> {
        if let Some(queue_pair) = &mut self.queue_pair {
            queue_pair.to_init(Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
            (self.number, self.address) = (queue_pair.number(), queue_pair.address());
        }
        self.post_receives().map_err(|error| VerbsError::Invalid {
            argument: "receives",
            why: error.to_string(),
        })
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn address(&self) -> EndpointAddress {
        self.address
    }

    pub(super) fn connect(
        &mut self,
        peer: &EndpointAddress,
        timeout_ns: u64,
        retries: u8,
    ) -> Result<(), VerbsError> {
        let attributes = ConnectAttributes {
            timeout_ns: timeout_ns.max(RC_TIMEOUT_NS),
            retry_count: retries.max(self.retries),
            traffic_class: self.traffic_class,
            ..ConnectAttributes::default()
        };
        if let Some(queue_pair) = &mut self.queue_pair {
            queue_pair.to_ready_to_receive(Some(peer), attributes)?;
            queue_pair.to_ready_to_send()?;
        }
        Ok(())
    }

    /// Connects a backup; returns whether it is connected. If the device cannot do it now, which leaves the queue pair
    /// in Init, it is tried again later: a missing backup is no reason to stop the primary.
    pub(super) fn connect_backup(&mut self, peer: &EndpointAddress) -> bool {
        self.unconnected = None;
        if self.connect(peer, 0, 0).is_ok() {
            return true;
        }
        let state = self.queue_pair.as_ref().map(QueuePair::state);
        match state {
            Some(QueuePairState::Init) => self.unconnected = Some((*peer, u64::MAX)),
            _ => self.fence(),
        }
        false
    }

    /// Sets when to try again, if necessary.
    pub(super) fn try_again_at(&mut self, at_ns: u64) {
        if let Some((_, again_ns)) = &mut self.unconnected {
            *again_ns = at_ns;
        }
    }

    pub(super) fn unconnected(&self) -> Option<(EndpointAddress, u64)> {
        self.unconnected
    }

    pub(super) fn fence(&mut self) {
        self.fenced = true;
        self.unconnected = None;
        if let Some(queue_pair) = &mut self.queue_pair {
            queue_pair.to_error();
        }
    }

    pub(super) fn ask_to_renew(&mut self) {
        self.renewing = true;
    }

    /// Whether all its RECEIVEs have been returned, so that everything that arrived before the fence was seen.
    pub(super) fn can_renew(&self) -> bool {
        self.renewing && self.posted == 0
    }

    /// Renews the queue pair. If that fails, it may be tried again.
    pub(super) fn renew(
        &mut self,
        device: &D,
        domain: &D::ProtectionDomain,
        config: &LinkConfig,
        ends: (&D::CompletionQueue, &D::CompletionQueue),
    ) -> Result<(), VerbsError> {
        // First, because a device may have only as many as all connections use.
        self.queue_pair = None;
        self.queue_pair = Some(queue_pair(device, domain, config, ends)?);
        self.fenced = false;
        let free = self.free.clone();
        let result = self.init();
        if result.is_err() {
            // The RECEIVEs of a queue pair disappear with it, without completions.
            self.queue_pair = None;
            (self.free, self.posted, self.fenced) = (free, 0, true);
        }
        self.renewing = result.is_err();
        result
    }

    /// Records that a RECEIVE has completed; its buffer is being read.
    pub(super) fn taken(&mut self) {
        self.posted = self.posted.saturating_sub(1);
    }

    /// Records that a buffer is free: it is not being read any more, or its RECEIVE was flushed.
    pub(super) fn returned(&mut self, slot: usize) {
        self.free.push(slot);
    }

    /// Records that a RECEIVE was flushed.
    pub(super) fn flushed(&mut self, slot: usize) {
        self.taken();
        self.returned(slot);
    }

    pub(super) fn read(&self, slot: usize, offset: usize, target: &mut [u8]) {
        let memory = self.buffers.memory();
        memory.read(slot * self.receive_bytes + offset, target);
    }

    pub(super) fn post_receives(&mut self) -> Result<(), PostError> {
        if self.fenced {
            return Ok(());
        }
        let Some(queue_pair) = &mut self.queue_pair else {
            return Ok(());
        };
        while let Some(slot) = self.free.pop() {
            let segment = Segment {
                region: &self.buffers,
                offset: slot * self.receive_bytes,
                length: self.receive_bytes,
            };
            let request = ReceiveRequest {
                id: (self.path as u64) << 32 | slot as u64,
                segments: &[segment],
            };
            if let Err(error) = queue_pair.post_receive(&[request]) {
                self.free.push(slot);
                return Err(error);
            }
            self.posted += 1;
        }
        Ok(())
    }

    /// Posts an acknowledgement that shares the queue pair.
    pub(super) fn post_ack(
        &mut self,
        id: u64,
        segment: Segment<'_, D::Region>,
    ) -> Result<(), PostError> {
        let segments = [segment];
        let queue_pair = self.queue_pair.as_mut().ok_or(NONE)?;
        queue_pair.post_send(&[SendRequest::new(
            id,
            Operation::Send { immediate: None },
            Payload::Segments(&segments),
            SendFlags::SIGNALED,
        )])
    }

    /// Posts a work request whose bytes are in the slot `front` and the source.
    pub(super) fn post(
        &mut self,
        work: &WorkRequest,
        source: Option<(Piece, &Source<D::Region>)>,
        front: Option<(&Fronts<D::Region>, usize)>,
    ) -> Result<(), PostError> {
        let mut parts = [None; 2];
        let operation = match &work.verb {
            Verb::Send { front: bytes, .. } => {
                parts[0] = front.map(|(fronts, slot)| Segment {
                    region: fronts.region(),
                    offset: Fronts::<D::Region>::offset(slot),
                    length: bytes.bytes().len(),
                });
                Operation::Send { immediate: None }
            }
            Verb::Write {
                remote, immediate, ..
            } => Operation::Write {
                remote: *remote,
                immediate: Some(*immediate),
            },
        };
        parts[1] = source
            .filter(|(piece, _)| piece.bytes > 0)
            .map(|(piece, source)| Segment {
                region: &source.region,
                offset: source.offset + piece.offset as usize,
                length: piece.bytes as usize,
            });
        let (both, one);
        let segments: &[Segment<'_, D::Region>] = match parts {
            [Some(front), Some(piece)] => {
                both = [front, piece];
                &both
            }
            [Some(part), None] | [None, Some(part)] => {
                one = [part];
                &one
            }
            [None, None] => &[],
        };
        let queue_pair = self.queue_pair.as_mut().ok_or(NONE)?;
        queue_pair.post_send(&[SendRequest::new(
            work.global.0,
            operation,
            Payload::Segments(segments),
            SendFlags::SIGNALED,
        )])
    }
}

fn queue_pair<D: Device>(
    device: &D,
    domain: &D::ProtectionDomain,
    config: &LinkConfig,
    (sends, receives): (&D::CompletionQueue, &D::CompletionQueue),
) -> Result<D::QueuePair, VerbsError> {
    device.create_queue_pair(
        domain,
        &QueuePairConfig {
            transport: config.deployment.transport(),
            send_completions: sends,
            receive_completions: receives,
            send_requests: match config.shares_acks {
                true => config.connection.send_queue + shared_acks::SLOTS,
                false => config.connection.send_queue,
            },
            receive_queue: ReceiveQueue::Own(config.receives),
            // A header and the piece behind it.
            segments: 2,
            inline_bytes: 0,
        },
    )
}
