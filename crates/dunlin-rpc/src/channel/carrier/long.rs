//! Messages too long to cross with the others: the sender exports them, the receiver fetches them by READ, by several
//! one behind the other where one cannot bring so much.

use dunlin_verbs::{
    Device, Operation, Payload, PostErrorKind, QueuePair, RemoteAddress, RemoteKey, Segment,
    SendFlags, SendRequest,
};

use super::{Carrier, QUIET};
use crate::channel::buffers::Buffer;
use crate::channel::message::Descriptor;
use crate::channel::ChannelError;

/// A READ that has completed.
#[derive(Debug)]
pub(crate) struct Fetched<D: Device> {
    /// What the caller named it.
    pub(crate) id: u64,
    /// The payload.
    pub(crate) buffer: Buffer<D>,
}

/// A READ under way.
#[derive(Debug)]
pub(super) struct Fetch<D: Device> {
    pub(super) id: u64,
    pub(super) buffer: Buffer<D>,
    pub(super) remote: RemoteAddress,
    /// Bytes that READs were posted for.
    asked: usize,
    /// All of them.
    pub(super) posted: bool,
}

impl<D: Device> Carrier<D> {
    /// Starts to fetch the payload that `descriptor` names; it is found in [`Carrier::take_fetched`] under `id`.
    ///
    /// # Errors
    /// When the descriptor is not one, or names more than this side takes.
    pub(crate) fn fetch(&mut self, id: u64, descriptor: &[u8]) -> Result<(), ChannelError> {
        if id == QUIET {
            return Err(ChannelError::violation("a call with a reserved number"));
        }
        let descriptor = Descriptor::decode(descriptor)
            .ok_or_else(|| ChannelError::violation("a long message without a descriptor"))?;
        let length = usize::try_from(descriptor.length)
            .ok()
            .filter(|&length| length <= self.config.max_message_bytes)
            .ok_or_else(|| ChannelError::violation("a message longer than agreed"))?;
        let buffer = self
            .landings
            .take(length)
            .map_err(|e| ChannelError::memory(e.to_string()))?;
        let remote = RemoteAddress {
            address: descriptor.address,
            key: RemoteKey(descriptor.key),
        };
        self.fetches.push(Fetch {
            id,
            buffer,
            remote,
            asked: 0,
            posted: false,
        });
        self.post_fetches()
    }

    /// Posts READs that wait for room in the send queue.
    pub(super) fn post_fetches(&mut self) -> Result<(), ChannelError> {
        for i in 0..self.fetches.len() {
            while !self.fetches[i].posted {
                if !self.has_entries(1) || !self.post_part(i)? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Posts the next READ of a fetch; `false`: the queue is full. READs complete in order, so the last tells of all.
    fn post_part(&mut self, index: usize) -> Result<bool, ChannelError> {
        let fetch = &self.fetches[index];
        let left = fetch.buffer.len() - fetch.asked;
        let length = left.min(self.longest_verb());
        let (id, flags) = match length == left {
            true => (fetch.id, SendFlags::SIGNALED),
            false => (QUIET, self.next_flags()),
        };
        let segment = [Segment {
            region: fetch.buffer.region(),
            offset: fetch.asked,
            length,
        }];
        let remote = fetch.remote.plus(fetch.asked as u64);
        let read = Operation::Read { remote };
        let request = SendRequest::new(id, read, Payload::Segments(&segment), flags);
        match self.queue_pair.post_send(&[request]) {
            Ok(()) => {}
            Err(error) if matches!(error.kind, PostErrorKind::Full { .. }) => return Ok(false),
            Err(error) => {
                let error = ChannelError::queue_pair(error.to_string());
                return Err(self.fail(error));
            }
        }
        self.note_posted(flags);
        let fetch = &mut self.fetches[index];
        fetch.asked += length;
        fetch.posted = length == left;
        Ok(true)
    }

    /// Bytes of the payloads that are being fetched.
    pub(crate) fn fetching_bytes(&self) -> usize {
        self.fetches.iter().map(|fetch| fetch.buffer.len()).sum()
    }

    /// Whether READs are under way or wait to be taken.
    #[inline]
    pub(crate) fn is_fetching(&self) -> bool {
        !self.fetches.is_empty() || !self.fetched.is_empty()
    }

    /// The next fetched payload.
    pub(crate) fn take_fetched(&mut self) -> Option<Fetched<D>> {
        self.fetched.pop()
    }
}
