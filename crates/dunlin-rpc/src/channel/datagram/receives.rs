//! The RECEIVEs of a datagram queue pair: one place for each datagram that its sessions may have on their way.
//!
//! Places come in blocks, one with each session, and stay for the next. A place that was read goes back when nothing else is to be done, or in a
//! batch with others: one post, one doorbell (FaSST's cheap RECEIVE posting). So at low load no request and no answer waits for it.

use dunlin_verbs::{
    Access, Device, QueuePair, ReceiveRequest, Region, Segment, VerbsError, GRH_BYTES,
};

use super::RECEIVES_AT_ONCE;
use crate::channel::ChannelError;

/// The datagram begins here in its place, on a cache line, behind its routing header.
const DATAGRAM_AT: usize = 64;

/// Places of one registration.
#[derive(Debug)]
pub(crate) struct Block<D: Device>(D::Region);

impl<D: Device> Block<D> {
    /// Registers `places` of them for datagrams of at most `packet_bytes`.
    pub(crate) fn allocate(
        device: &D,
        domain: &D::ProtectionDomain,
        places: usize,
        packet_bytes: usize,
    ) -> Result<Self, VerbsError> {
        let length = places * place_bytes(packet_bytes);
        device
            .allocate_region(domain, length, Access::LOCAL_WRITE)
            .map(Self)
    }
}

fn place_bytes(packet_bytes: usize) -> usize {
    DATAGRAM_AT + packet_bytes.next_multiple_of(64)
}

/// All of them.
#[derive(Debug)]
pub(super) struct Receives<D: Device> {
    blocks: Vec<D::Region>,
    packet_bytes: usize,
    /// Places posted at once.
    together: usize,
    /// Places that are not posted: block in the upper half, place in the lower.
    idle: Vec<u64>,
}

impl<D: Device> Receives<D> {
    pub(super) fn new(packet_bytes: usize, together: usize) -> Self {
        Self {
            blocks: Vec::new(),
            packet_bytes,
            together,
            idle: Vec::new(),
        }
    }

    /// Adds a block; its places are posted by [`Receives::post_all`].
    pub(super) fn add(&mut self, block: Block<D>) {
        self.blocks.push(block.0);
        self.idle_block(self.blocks.len() - 1);
    }

    /// All places of a block may be posted.
    fn idle_block(&mut self, number: usize) {
        let places = self.blocks[number].memory().len() / place_bytes(self.packet_bytes);
        let ids = (0..places as u64).map(|place| (number as u64) << 32 | place);
        self.idle.extend(ids);
    }

    /// All places are idle again: the queue pair that had them is gone.
    pub(super) fn reclaim(&mut self) {
        self.idle.clear();
        for number in 0..self.blocks.len() {
            self.idle_block(number);
        }
    }

    fn at(&self, id: u64) -> (&D::Region, usize) {
        let region = &self.blocks[(id >> 32) as usize];
        (region, id as u32 as usize * place_bytes(self.packet_bytes))
    }

    /// Copies the beginning of the datagram in a place.
    #[inline]
    pub(super) fn read(&self, id: u64, target: &mut [u8]) {
        let (region, at) = self.at(id);
        region.memory().read(at + DATAGRAM_AT, target);
    }

    /// The place was read. Its RECEIVE is posted by [`Receives::post_one`], or with the next batch.
    #[inline]
    pub(super) fn give_back(
        &mut self,
        id: u64,
        queue_pair: &mut D::QueuePair,
    ) -> Result<(), ChannelError> {
        self.idle.push(id);
        if self.idle.len() >= self.together {
            return self.post(self.together, queue_pair);
        }
        Ok(())
    }

    /// Nothing has come: posts one that is idle. Says whether there was one; then something may have come meanwhile.
    #[inline]
    pub(super) fn post_one(&mut self, queue_pair: &mut D::QueuePair) -> Result<bool, ChannelError> {
        if self.idle.is_empty() {
            return Ok(false);
        }
        self.post(1, queue_pair)?;
        Ok(true)
    }

    /// Posts all that are idle.
    pub(super) fn post_all(&mut self, queue_pair: &mut D::QueuePair) -> Result<(), ChannelError> {
        while !self.idle.is_empty() {
            self.post(self.together, queue_pair)?;
        }
        Ok(())
    }

    /// Posts so many of them, at most `together`.
    fn post(&mut self, most: usize, queue_pair: &mut D::QueuePair) -> Result<(), ChannelError> {
        let count = self.idle.len().min(most);
        let first = self.idle.len() - count;
        let ids: [u64; RECEIVES_AT_ONCE] =
            std::array::from_fn(|i| self.idle[(first + i).min(self.idle.len() - 1)]);
        let segments = ids.map(|id| {
            let (region, at) = self.at(id);
            [Segment {
                region,
                offset: at + DATAGRAM_AT - GRH_BYTES,
                length: GRH_BYTES + self.packet_bytes,
            }]
        });
        let requests: [ReceiveRequest<'_, D::Region>; RECEIVES_AT_ONCE] =
            std::array::from_fn(|i| ReceiveRequest {
                id: ids[i],
                segments: &segments[i],
            });
        queue_pair
            .post_receive(&requests[..count])
            .map_err(|error| ChannelError::queue_pair(error.to_string()))?;
        self.idle.truncate(first);
        Ok(())
    }
}
