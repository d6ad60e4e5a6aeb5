//! The RECEIVEs of a datagram queue pair: one place for each datagram that its sessions may have on their way.
//!
//! Places come in blocks, one with each session, and stay for the next. A place that was read goes back when nothing else is to be done, or in a
//! batch with others: one post, one doorbell (FaSST's cheap RECEIVE posting). So at low load no request and no answer waits for it.

use std::sync::Arc;

use dunlin_verbs::{
    Access, Device, QueuePair, ReceiveRequest, Region, Segment, VerbsError, GRH_BYTES,
};

use super::RECEIVES_AT_ONCE;
use crate::channel::ChannelError;

/// The datagram begins here in its place, on a cache line, behind its routing header.
const DATAGRAM_AT: usize = 64;

/// Blocks of one registration, at most.
const BLOCKS_AT_ONCE: usize = 16;

/// Places that are posted together for the first time: those of a session.
#[derive(Debug)]
pub(crate) struct Block<D: Device> {
    region: Arc<D::Region>,
    first: usize,
    places: usize,
}

/// Where blocks come from: each registration holds as many as there were before it. A NIC with few large regions translates few addresses,
/// and the places of blocks that stand one behind the other lie in all sets of a cache, where those of regions that begin alike would fight for a
/// few.
#[derive(Debug)]
pub(crate) struct Stock<D: Device> {
    region: Option<Arc<D::Region>>,
    /// Blocks that were taken, of this registration and of all; and those that this one holds.
    taken: usize,
    all: usize,
    holds: usize,
}

impl<D: Device> Stock<D> {
    /// Nothing is registered yet.
    pub(crate) fn new() -> Self {
        Self {
            region: None,
            taken: 0,
            all: 0,
            holds: 0,
        }
    }

    /// A block of `places` for datagrams of at most `packet_bytes`; both are always the same.
    ///
    /// # Errors
    /// When there is no memory to register.
    pub(crate) fn take(
        &mut self,
        device: &D,
        domain: &D::ProtectionDomain,
        places: usize,
        packet_bytes: usize,
    ) -> Result<Block<D>, VerbsError> {
        let region = match &self.region {
            Some(region) if self.taken < self.holds => region,
            _ => {
                let holds = self.all.clamp(1, BLOCKS_AT_ONCE);
                let length = holds * places * place_bytes(packet_bytes);
                let region = device.allocate_region(domain, length, Access::LOCAL_WRITE)?;
                (self.taken, self.holds) = (0, holds);
                self.region.insert(Arc::new(region))
            }
        };
        let block = Block {
            region: Arc::clone(region),
            first: self.taken * places,
            places,
        };
        self.taken += 1;
        self.all += 1;
        Ok(block)
    }
}

fn place_bytes(packet_bytes: usize) -> usize {
    DATAGRAM_AT + packet_bytes.next_multiple_of(64)
}

/// All of them.
#[derive(Debug)]
pub(super) struct Receives<D: Device> {
    blocks: Vec<Block<D>>,
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
        self.blocks.push(block);
        self.idle_block(self.blocks.len() - 1);
    }

    /// All places of a block may be posted.
    fn idle_block(&mut self, number: usize) {
        let ids = (0..self.blocks[number].places as u64).map(|place| (number as u64) << 32 | place);
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
        let block = &self.blocks[(id >> 32) as usize];
        let place = block.first + id as u32 as usize;
        (&block.region, place * place_bytes(self.packet_bytes))
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
            return self.post_together(queue_pair);
        }
        Ok(())
    }

    /// Nothing has come: posts one that is idle. Says whether there was one; then something may have come meanwhile.
    #[inline]
    pub(super) fn post_one(&mut self, queue_pair: &mut D::QueuePair) -> Result<bool, ChannelError> {
        if self.idle.is_empty() {
            return Ok(false);
        }
        self.post::<1>(1, queue_pair)?;
        Ok(true)
    }

    /// Posts all that are idle.
    pub(super) fn post_all(&mut self, queue_pair: &mut D::QueuePair) -> Result<(), ChannelError> {
        while !self.idle.is_empty() {
            self.post_together(queue_pair)?;
        }
        Ok(())
    }

    /// Posts as many as go together.
    fn post_together(&mut self, queue_pair: &mut D::QueuePair) -> Result<(), ChannelError> {
        match self.idle.len().min(self.together) {
            1 => self.post::<1>(1, queue_pair),
            count => self.post::<RECEIVES_AT_ONCE>(count, queue_pair),
        }
    }

    /// Posts the last `count` of those that are idle, at most `N`, for which there is room: one is posted for each datagram at low load, and what
    /// describes it should not take sixteen.
    #[inline]
    fn post<const N: usize>(
        &mut self,
        count: usize,
        queue_pair: &mut D::QueuePair,
    ) -> Result<(), ChannelError> {
        let first = self.idle.len() - count;
        let ids: [u64; N] =
            std::array::from_fn(|i| self.idle[(first + i).min(self.idle.len() - 1)]);
        let segments = ids.map(|id| {
            let (region, at) = self.at(id);
            [Segment {
                region,
                offset: at + DATAGRAM_AT - GRH_BYTES,
                length: GRH_BYTES + self.packet_bytes,
            }]
        });
        let requests: [ReceiveRequest<'_, D::Region>; N] =
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
