//! The client's side: sends requests by WRITE.

use dunlin_link::SendQueue;
use dunlin_verbs::{
    Access, Completion, CompletionQueue, Device, Operation, Payload, QueuePair, Region,
    RemoteAddress, Segment, SendRequest, VerbsError, Work,
};

use super::{parameter, Pair, WHAT};
use crate::channel::buffers::staging_for;
use crate::channel::call_id::slot_of;
use crate::channel::datagram::sends::ENTRIES;
use crate::channel::message::{Header, Kind};
use crate::channel::parameters::{Parameters, PeerParameters};
use crate::channel::pool::block::{Draft, Seals};
use crate::channel::pool::{block_bytes, capacity, zone_bytes};
use crate::channel::ChannelError;
use crate::config::{MAX_MESSAGE_BYTES, SIGNAL_EVERY};
use crate::effort;

/// An uplink whose server is not known yet.
#[derive(Debug)]
pub(crate) struct UnconnectedUplink<D: Device> {
    pair: Pair<D>,
    device: D,
}

impl<D: Device> UnconnectedUplink<D> {
    /// Creates one.
    ///
    /// # Errors
    /// When the device has no WRITE over UC, or a limit is reached.
    pub(crate) fn new(device: &D) -> Result<Self, VerbsError> {
        let inline_bytes = device.attributes().max_inline_bytes;
        Ok(Self {
            pair: Pair::new(device, Access::empty(), inline_bytes)?,
            device: device.clone(),
        })
    }

    /// Adds the parameters that the server needs.
    pub(crate) fn tell(&self, parameters: &mut Parameters) {
        self.pair.tell(parameters);
    }

    /// Connects it to the server.
    ///
    /// # Errors
    /// When the server's parameters describe no valid zone.
    pub(crate) fn join(mut self, parameters: &Parameters) -> Result<Uplink<D>, VerbsError> {
        let said = PeerParameters::new(WHAT, parameters);
        self.pair.join(said)?;
        let eager = said.number(parameter::EAGER, 0..=MAX_MESSAGE_BYTES)?;
        let secret = said.word(parameter::SECRET)?;
        let bytes = block_bytes(eager);
        let inline_bytes = self.device.attributes().max_inline_bytes;
        let (device, domain) = (&self.device, &self.pair.domain);
        let staging = staging_for(device, domain, (inline_bytes, bytes), zone_bytes(eager))?;
        Ok(Uplink {
            pair: self.pair,
            zone: said.place(parameter::ZONE)?,
            bytes,
            capacity: capacity(eager),
            seals: Seals::sum(secret),
            draft: Draft::new(bytes),
            staging,
            inline_bytes,
            queue: SendQueue::new(ENTRIES, SIGNAL_EVERY),
            failed: None,
        })
    }
}

/// The path of requests.
#[derive(Debug)]
pub(crate) struct Uplink<D: Device> {
    pair: Pair<D>,
    zone: RemoteAddress,
    /// Size of a block, and maximum length of a request in one, in bytes.
    bytes: usize,
    capacity: usize,
    seals: Seals,
    draft: Draft,
    /// Staging memory for requests too long to be inline, until their call has ended: each block belongs to one call.
    staging: Option<D::Region>,
    inline_bytes: usize,
    queue: SendQueue,
    failed: Option<ChannelError>,
}

impl<D: Device> Uplink<D> {
    /// Checks that all requests could be written.
    ///
    /// # Errors
    /// When the queue pair has failed.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), ChannelError> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Maximum length of a request sent in this way.
    #[inline]
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Whether a request can be sent now.
    ///
    /// # Errors
    /// When the queue pair has failed.
    #[inline]
    pub(crate) fn make_room(&mut self) -> Result<bool, ChannelError> {
        if self.queue.has_entries(1) {
            return Ok(true);
        }
        self.reclaim()?;
        Ok(self.queue.has_entries(1))
    }

    /// Takes completions.
    ///
    /// # Errors
    /// When the queue pair has failed.
    #[cold]
    pub(crate) fn reclaim(&mut self) -> Result<(), ChannelError> {
        let mut completions = [Completion::EMPTY; 8];
        let polled = self.pair.completions.poll(&mut completions);
        let count = polled.map_err(|error| ChannelError::queue_pair(error.to_string()))?;
        for completion in &completions[..count] {
            let ended = self.queue.complete(completion);
            ended.map_err(|status| ChannelError::queue_pair(status.to_string()))?;
        }
        Ok(())
    }

    /// WRITEs a request, for which there is room, into the block of its call. [`Uplink::check`] reports a failure.
    #[inline]
    pub(crate) fn write(&mut self, handler: u16, call: u64, payload: &[u8]) {
        let header = Header::new(Kind::Request, handler, call, payload.len());
        self.put(slot_of(call), header, payload);
    }

    /// WRITEs a message into a block.
    #[inline]
    pub(crate) fn put(&mut self, block: usize, header: Header, payload: &[u8]) {
        self.draft.fill(payload);
        let message = self.draft.finish(header, 0, &self.seals, block);
        D::charge(effort::SEALED);
        D::charge(Work::Copy(message.len()));
        let at = (block + 1) * self.bytes - message.len();
        let write = Operation::Write {
            remote: self.zone.plus(at as u64),
            immediate: None,
        };
        let flags = self.queue.enter();
        let segment;
        let payload = match &self.staging {
            Some(region) if message.len() > self.inline_bytes => {
                region.memory().write(at, message);
                segment = [Segment {
                    region,
                    offset: at,
                    length: message.len(),
                }];
                Payload::Segments(&segment)
            }
            _ => Payload::Inline(message),
        };
        let request = SendRequest::new(0, write, payload, flags);
        if let Err(error) = self.pair.queue_pair.post_send(&[request]) {
            self.failed = Some(ChannelError::queue_pair(error.to_string()));
        }
    }

    /// WRITEs bytes that are not a message into a block.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn tear(&mut self, block: usize, bytes: &[u8]) {
        let at = (block + 1) * self.bytes - bytes.len();
        self.scribble(self.zone.plus(at as u64), bytes);
    }

    /// WRITEs any bytes to any address.
    #[cfg(any(test, feature = "conformance"))]
    pub(crate) fn scribble(&mut self, remote: RemoteAddress, bytes: &[u8]) {
        let write = Operation::Write {
            remote,
            immediate: None,
        };
        let payload = Payload::Inline(bytes);
        let request = SendRequest::new(0, write, payload, self.queue.enter());
        if let Err(error) = self.pair.queue_pair.post_send(&[request]) {
            self.failed = Some(ChannelError::queue_pair(error.to_string()));
        }
    }

    /// The address of the zone for requests.
    #[cfg(any(test, feature = "conformance"))]
    pub(crate) fn zone(&self) -> RemoteAddress {
        self.zone
    }
}
