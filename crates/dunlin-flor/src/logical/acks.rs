//! The queue pair for acknowledgements: UD, with a completion queue of its own (Flor §4.1).

use dunlin_verbs::{
    Access, Completion, CompletionOpcode, CompletionQueue, CompletionQueueError, ConnectAttributes,
    Destination, Device, EndpointAddress, Notify, Operation, Payload, PostError, QueuePair,
    QueuePairConfig, ReceiveQueue, ReceiveRequest, Region, Segment, SendFlags, SendRequest,
    Transport, VerbsError, GRH_BYTES,
};

use crate::ack::{Ack, MAX_ACK_BYTES};

/// Number of datagrams in each direction: those that are not taken in time are lost, and their numbers are acknowledged
/// again after a retransmission.
const SLOTS: usize = 64;
const SLOT_BYTES: usize = 256;
const _: () = assert!(GRH_BYTES + MAX_ACK_BYTES <= SLOT_BYTES);

#[derive(Debug)]
struct Peer<H> {
    handle: H,
    address: EndpointAddress,
}

/// See the module.
#[derive(Debug)]
pub(super) struct AckEnd<D: Device> {
    queue_pair: D::QueuePair,
    completions: D::CompletionQueue,
    /// Receive slots, followed by send slots.
    buffers: D::Region,
    free: Vec<usize>,
    /// Applies to what is connected from now on.
    pub(super) traffic_class: u8,
    peer: Option<Peer<D::AddressHandle>>,
}

impl<D: Device> AckEnd<D> {
    pub(super) fn new(
        device: &D,
        domain: &D::ProtectionDomain,
        channel: Option<&D::CompletionChannel>,
        traffic_class: u8,
    ) -> Result<Self, VerbsError> {
        let completions = device.create_completion_queue(2 * SLOTS, channel)?;
        let mut queue_pair = device.create_queue_pair(
            domain,
            &QueuePairConfig {
                transport: Transport::UnreliableDatagram,
                send_completions: &completions,
                receive_completions: &completions,
                send_requests: SLOTS,
                receive_queue: ReceiveQueue::Own(SLOTS),
                segments: 1,
                inline_bytes: 0,
            },
        )?;
        queue_pair.to_init(Access::LOCAL_WRITE)?;
        let bytes = 2 * SLOTS * SLOT_BYTES;
        let mut end = Self {
            queue_pair,
            completions,
            buffers: device.allocate_region(domain, bytes, Access::LOCAL_WRITE)?,
            free: (SLOTS..2 * SLOTS).collect(),
            traffic_class,
            peer: None,
        };
        for slot in 0..SLOTS {
            end.post_receive(slot)
                .map_err(|error| VerbsError::Invalid {
                    argument: "receives of acknowledgements",
                    why: error.to_string(),
                })?;
        }
        end.queue_pair
            .to_ready_to_receive(None, ConnectAttributes::default())?;
        end.queue_pair.to_ready_to_send()?;
        Ok(end)
    }

    pub(super) fn request_notify(&mut self) -> Result<(), VerbsError> {
        self.completions.request_notify(Notify::Next)
    }

    pub(super) fn address(&self) -> EndpointAddress {
        self.queue_pair.address()
    }

    /// Sends acknowledgements to this peer from now on.
    pub(super) fn connect(
        &mut self,
        device: &D,
        domain: &D::ProtectionDomain,
        peer: &EndpointAddress,
    ) -> Result<(), VerbsError> {
        let class = self.traffic_class;
        self.peer = Some(Peer {
            handle: device.create_address_handle_of_class(domain, peer, class)?,
            address: *peer,
        });
        Ok(())
    }

    fn post_receive(&mut self, slot: usize) -> Result<(), PostError> {
        let segment = Segment {
            region: &self.buffers,
            offset: slot * SLOT_BYTES,
            length: SLOT_BYTES,
        };
        self.queue_pair.post_receive(&[ReceiveRequest {
            id: slot as u64,
            segments: &[segment],
        }])
    }

    pub(super) fn poll(&mut self, some: &mut [Completion]) -> Result<usize, CompletionQueueError> {
        self.completions.poll(some)
    }

    /// Returns what a completion brought, if it is an acknowledgement.
    pub(super) fn take(
        &mut self,
        completion: &Completion,
    ) -> Result<Option<([u8; MAX_ACK_BYTES], usize)>, PostError> {
        let slot = completion.id as usize;
        if slot >= SLOTS {
            self.free.push(slot);
            return Ok(None);
        }
        if !completion.is_success() || completion.opcode != CompletionOpcode::Receive {
            return Ok(None);
        }
        let length = completion.bytes.saturating_sub(GRH_BYTES);
        let mut bytes = [0; MAX_ACK_BYTES];
        let taken = (length <= MAX_ACK_BYTES).then(|| {
            let memory = self.buffers.memory();
            memory.read(slot * SLOT_BYTES + GRH_BYTES, &mut bytes[..length]);
            (bytes, length)
        });
        self.post_receive(slot)?;
        Ok(taken)
    }

    /// Sends an acknowledgement; without a free slot it is dropped, as if lost.
    pub(super) fn send(&mut self, ack: &Ack) -> Result<(), PostError> {
        let Some(peer) = &self.peer else {
            return Ok(());
        };
        let Some(slot) = self.free.pop() else {
            return Ok(());
        };
        let mut bytes = [0; MAX_ACK_BYTES];
        let length = ack.encode(&mut bytes);
        let offset = slot * SLOT_BYTES;
        self.buffers.memory().write(offset, &bytes[..length]);
        let segment = Segment {
            region: &self.buffers,
            offset,
            length,
        };
        let segments = [segment];
        let mut request = SendRequest::new(
            slot as u64,
            Operation::Send { immediate: None },
            Payload::Segments(&segments),
            SendFlags::SIGNALED,
        );
        request.destination = Some(Destination {
            handle: &peer.handle,
            queue_pair: peer.address.queue_pair,
            queue_key: peer.address.queue_key,
        });
        self.queue_pair.post_send(&[request])
    }
}
