//! The send queue of a datagram queue pair: lists of datagrams to any peers with one doorbell, few of them signaled.

use dunlin_link::{Ended, SendQueue};
use dunlin_verbs::{
    Completion, CompletionStatus, Destination, Device, Operation, Payload, QueuePair, Region,
    Segment, SendFlags, SendRequest, VerbsError, Work,
};

use crate::channel::buffers::staging_for;
use crate::channel::ChannelError;
use crate::config::{DatagramBatches, DOORBELL};
use crate::effort;

/// Number of entries of the send queue.
pub(super) const ENTRIES: usize = 256;

/// The destination of a session's datagrams.
#[derive(Debug)]
pub(crate) struct Route<D: Device> {
    pub(crate) handle: D::AddressHandle,
    pub(crate) queue_pair: u32,
    pub(crate) queue_key: u32,
}

/// The requests posted, and the memory for payloads that are too long to be inline.
#[derive(Debug)]
pub(super) struct Sends<D: Device> {
    /// A place for each entry of the send queue, if the device cannot inline a whole datagram.
    staging: Option<D::Region>,
    packet_bytes: usize,
    inline_bytes: usize,
    /// Number of datagrams per doorbell.
    together: usize,
    queue: SendQueue,
}

impl<D: Device> Sends<D> {
    pub(super) fn new(
        device: &D,
        domain: &D::ProtectionDomain,
        packet_bytes: usize,
        batches: &DatagramBatches,
    ) -> Result<Self, VerbsError> {
        let inline_bytes = inline_bytes(device, packet_bytes);
        let lengths = (inline_bytes, packet_bytes);
        Ok(Self {
            staging: staging_for(device, domain, lengths, ENTRIES * packet_bytes)?,
            packet_bytes,
            inline_bytes,
            together: batches.sends,
            queue: SendQueue::new(ENTRIES, batches.sends_per_completion),
        })
    }

    /// Whether `entries` more fit into the send queue.
    #[inline]
    pub(super) fn has_entries(&self, entries: usize) -> bool {
        self.queue.has_entries(entries)
    }

    /// Number of datagrams per doorbell.
    #[inline]
    pub(super) fn together(&self) -> usize {
        self.together
    }

    /// Handles a completion of the queue pair, of a SEND or of a RECEIVE.
    ///
    /// # Errors
    /// When the request failed.
    #[inline]
    pub(super) fn complete(&mut self, completion: &Completion) -> Result<Ended, CompletionStatus> {
        self.queue.complete(completion)
    }

    /// Makes the next SEND signaled.
    pub(super) fn signal_next(&mut self) {
        self.queue.signal_next();
    }

    /// Forgets what was posted, because the queue pair is gone.
    pub(super) fn forget(&mut self) {
        self.queue = self.queue.renewed();
    }

    /// Whether every SEND is known to be completed.
    pub(super) fn are_done(&self) -> bool {
        self.queue.outstanding() == 0
    }

    /// Sends one datagram, for which there is an entry.
    #[inline]
    pub(super) fn post_one(
        &mut self,
        queue_pair: &mut D::QueuePair,
        route: &Route<D>,
        bytes: &[u8],
    ) -> Result<(), ChannelError> {
        if bytes.len() > self.inline_bytes {
            return self.post(queue_pair, &[(route, bytes)]);
        }
        D::charge(effort::SENT);
        let request = plain(route, Payload::Inline(bytes), self.queue.enter());
        post(queue_pair, &[request])
    }

    /// Sends up to [`DOORBELL`] datagrams, for which there are entries.
    pub(super) fn post(
        &mut self,
        queue_pair: &mut D::QueuePair,
        datagrams: &[(&Route<D>, &[u8])],
    ) -> Result<(), ChannelError> {
        let Self {
            staging,
            packet_bytes,
            inline_bytes,
            queue,
            ..
        } = self;
        let Some(&(last, _)) = datagrams.last() else {
            return Ok(());
        };
        let count = datagrams.len().min(DOORBELL);
        D::charge(effort::SENT_TOGETHER);
        for _ in 0..count {
            D::charge(effort::SENT_EACH);
        }
        let first = queue.last().number() as usize;
        let segments: Option<[[Segment<'_, D::Region>; 1]; DOORBELL]> =
            staging.as_ref().map(|region| {
                std::array::from_fn(|i| {
                    let bytes = datagrams.get(i).map_or(&[][..], |datagram| datagram.1);
                    let offset = (first + i) % ENTRIES * *packet_bytes;
                    if bytes.len() > *inline_bytes {
                        D::charge(Work::Copy(bytes.len()));
                        region.memory().write(offset, bytes);
                    }
                    [Segment {
                        region,
                        offset,
                        length: bytes.len(),
                    }]
                })
            });
        let requests: [_; DOORBELL] = std::array::from_fn(|i| {
            let Some(&(route, bytes)) = datagrams.get(i) else {
                // Only those before it are posted.
                return plain(last, Payload::Inline(&[]), SendFlags::empty());
            };
            let payload = match &segments {
                Some(segments) if bytes.len() > *inline_bytes => Payload::Segments(&segments[i]),
                _ => Payload::Inline(bytes),
            };
            plain(route, payload, queue.enter())
        });
        post(queue_pair, &requests[..count])
    }
}

#[inline]
fn plain<'a, D: Device>(
    route: &'a Route<D>,
    payload: Payload<'a, D::Region>,
    flags: SendFlags,
) -> SendRequest<'a, D::Region, D::AddressHandle> {
    let send = Operation::Send { immediate: None };
    let mut request = SendRequest::new(0, send, payload, flags);
    request.destination = Some(Destination {
        handle: &route.handle,
        queue_pair: route.queue_pair,
        queue_key: route.queue_key,
    });
    request
}

#[inline]
fn post<Q: QueuePair>(
    queue_pair: &mut Q,
    requests: &[SendRequest<'_, Q::Region, Q::AddressHandle>],
) -> Result<(), ChannelError> {
    queue_pair
        .post_send(requests)
        .map_err(|error| ChannelError::queue_pair(error.to_string()))
}

/// Number of bytes of a datagram that the device can inline.
pub(super) fn inline_bytes<D: Device>(device: &D, packet_bytes: usize) -> usize {
    device.attributes().max_inline_bytes.min(packet_bytes)
}
