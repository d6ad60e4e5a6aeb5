//! Messages too long to be sent with the others: the sender exports them, the receiver fetches them by READ, or by
//! several READs in sequence where one is not long enough.

use dunlin_link::Completed;
use dunlin_verbs::{
    Device, Operation, Payload, PostErrorKind, QueuePair, RemoteAddress, RemoteKey, Segment,
    SendFlags, SendRequest,
};

use super::{Carrier, QUIET};
use crate::channel::buffers::Buffer;
use crate::channel::message::Descriptor;
use crate::channel::ChannelError;

/// A payload that has not been requested completely.
#[derive(Debug)]
pub(super) struct Fetch<D: Device> {
    id: u64,
    buffer: Buffer<D>,
    remote: RemoteAddress,
    /// Number of bytes for which READs were posted.
    asked: usize,
}

impl<D: Device> Carrier<D> {
    /// Starts to fetch the payload described by `descriptor`; [`Carrier::take_fetched`] returns it under `id`.
    ///
    /// # Errors
    /// When the descriptor is invalid, or describes more than this side accepts.
    pub(crate) fn fetch(&mut self, id: u64, descriptor: &[u8]) -> Result<(), ChannelError> {
        if id == QUIET {
            return Err(ChannelError::violation("a call with a reserved number"));
        }
        let descriptor = Descriptor::decode(descriptor)
            .ok_or_else(|| ChannelError::violation("a long message without a descriptor"))?;
        let length = usize::try_from(descriptor.length)
            .ok()
            .filter(|&length| length <= self.config.max_message_bytes)
            .ok_or_else(|| ChannelError::violation("a message longer than negotiated"))?;
        let buffer = self.landings.take(length).map_err(ChannelError::memory)?;
        let remote = RemoteAddress {
            address: descriptor.address,
            key: RemoteKey(descriptor.key),
        };
        self.fetches.push_back(Fetch {
            id,
            buffer,
            remote,
            asked: 0,
        });
        self.post_fetches()
    }

    /// Posts READs that wait for room in the send queue.
    pub(super) fn post_fetches(&mut self) -> Result<(), ChannelError> {
        while !self.fetches.is_empty() {
            if !self.has_entries(1) || !self.post_part()? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Posts the next READ of the first fetch; `false`: the queue is full. READs complete in order, so the last
    /// completion covers all.
    fn post_part(&mut self) -> Result<bool, ChannelError> {
        let most = self.longest_verb();
        let Some(fetch) = self.fetches.front_mut() else {
            return Ok(false);
        };
        let left = fetch.buffer.len() - fetch.asked;
        let length = left.min(most);
        let flags = match length == left {
            true => SendFlags::SIGNALED,
            false => self.sends.next_flags(),
        };
        let segment = [Segment {
            region: fetch.buffer.region(),
            offset: fetch.asked,
            length,
        }];
        let remote = fetch.remote.plus(fetch.asked as u64);
        let read = Operation::Read { remote };
        let request = SendRequest::new(QUIET, read, Payload::Segments(&segment), flags);
        match self.queue_pair.post_send(&[request]) {
            Ok(()) => {}
            Err(error) if matches!(error.kind, PostErrorKind::Full { .. }) => return Ok(false),
            Err(error) => {
                let error = ChannelError::queue_pair(error.to_string());
                return Err(self.fail(error));
            }
        }
        self.sends.post_one(flags);
        fetch.asked += length;
        if length == left {
            if let Some(Fetch { id, buffer, .. }) = self.fetches.pop_front() {
                self.reading.push_back(self.sends.hold((id, buffer)));
            }
        }
        Ok(true)
    }

    /// Number of bytes of the payloads that are being fetched.
    pub(crate) fn fetching_bytes(&self) -> usize {
        let waiting = self.fetches.iter().map(|fetch| &fetch.buffer);
        let reading = self.reading.iter().map(|held| &held.value().1);
        waiting.chain(reading).map(Buffer::len).sum()
    }

    /// Whether READs are in flight or fetched payloads wait to be taken.
    #[inline]
    pub(crate) fn is_fetching(&self) -> bool {
        !self.fetches.is_empty() || !self.reading.is_empty()
    }

    /// The next fetched payload, with the caller's id.
    pub(crate) fn take_fetched(&mut self) -> Option<(u64, Completed<Buffer<D>>)> {
        let read = self.sends.finish_first(&mut self.reading)?;
        Some(read.split())
    }
}
