//! The RECEIVEs of a datagram queue pair: one place for each datagram that its sessions may have in flight.
//!
//! Places come in blocks, one with each session, and are reused by the next. A place that was read is reposted when
//! there is nothing else to do, or in a batch with others: one post, one doorbell (FaSST's cheap RECEIVE posting). So
//! at low load no request and no response waits for it.

use std::sync::Arc;

use dunlin_verbs::{
    Access, Device, QueuePair, ReceiveRequest, Region, Segment, VerbsError, GRH_BYTES,
};

use crate::channel::ChannelError;
use crate::config::RECEIVES_AT_ONCE;

/// Offset of the datagram in its place: on a cache line, after its routing header.
const DATAGRAM_AT: usize = 64;

/// Maximum number of blocks per registration.
const BLOCKS_AT_ONCE: usize = 16;

/// The places of a session, which are posted together the first time.
#[derive(Debug)]
pub(crate) struct Block<D: Device> {
    region: Arc<D::Region>,
    first: usize,
    places: usize,
}

/// A block of [`Receives`], and whether it is being retired.
#[derive(Debug)]
struct Held<D: Device> {
    block: Block<D>,
    /// For a block being retired: its places that are neither posted nor being read any more.
    leaves: Option<Vec<u64>>,
}

/// The source of blocks: each registration holds as many as there were before it. A NIC with few large regions
/// translates few addresses, and the places of contiguous blocks are distributed over all sets of a cache, where those
/// of equally aligned regions would compete for a few.
#[derive(Debug)]
pub(crate) struct Stock<D: Device> {
    region: Option<Arc<D::Region>>,
    /// Number of blocks taken, of this registration and in total; and the number that this registration holds.
    taken: usize,
    all: usize,
    holds: usize,
}

impl<D: Device> Stock<D> {
    /// A stock without registrations.
    pub(crate) fn new() -> Self {
        Self {
            region: None,
            taken: 0,
            all: 0,
            holds: 0,
        }
    }

    /// Takes a block of `places` for datagrams of at most `packet_bytes`; both are the same in every call.
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

    /// Called with the number of blocks that are left of those taken: drops memory that is no longer held elsewhere.
    pub(crate) fn left(&mut self, blocks: usize) {
        self.all = blocks;
        if self
            .region
            .as_ref()
            .is_some_and(|region| Arc::strong_count(region) == 1)
        {
            self.region = None;
        }
    }
}

fn place_bytes(packet_bytes: usize) -> usize {
    DATAGRAM_AT + packet_bytes.next_multiple_of(64)
}

/// The RECEIVEs of a queue pair.
#[derive(Debug)]
pub(super) struct Receives<D: Device> {
    blocks: Vec<Held<D>>,
    /// Number of blocks being retired.
    leaving: usize,
    packet_bytes: usize,
    /// Number of places posted at once.
    together: usize,
    /// Places that are not posted: block in the upper half, place in the lower.
    idle: Vec<u64>,
}

impl<D: Device> Receives<D> {
    pub(super) fn new(packet_bytes: usize, together: usize) -> Self {
        Self {
            blocks: Vec::new(),
            leaving: 0,
            packet_bytes,
            together,
            idle: Vec::new(),
        }
    }

    /// Adds a block; its places are posted by [`Receives::post_all`].
    pub(super) fn add(&mut self, block: Block<D>) {
        let held = Held {
            block,
            leaves: None,
        };
        let empty = self.blocks.iter().position(|held| held.block.places == 0);
        let number = match empty {
            Some(number) => {
                self.blocks[number] = held;
                number
            }
            None => {
                self.blocks.push(held);
                self.blocks.len() - 1
            }
        };
        self.idle_block(number);
    }

    /// Number of blocks that have places.
    pub(super) fn blocks(&self) -> usize {
        self.blocks
            .iter()
            .filter(|held| held.block.places > 0)
            .count()
    }

    /// Whether blocks are being retired.
    pub(super) fn has_leaving(&self) -> bool {
        self.leaving > 0
    }

    /// Retires the newest block: its places are not posted again, and when the last of them has been used its memory is
    /// released.
    pub(super) fn retire(&mut self) {
        let stays = |held: &Held<D>| held.block.places > 0 && held.leaves.is_none();
        let Some(number) = self.blocks.iter().rposition(stays).filter(|&at| at > 0) else {
            return;
        };
        let held = &mut self.blocks[number];
        let mut free = Vec::with_capacity(held.block.places);
        self.idle.retain(|&id| {
            let stays = (id >> 32) as usize != number;
            if !stays {
                free.push(id);
            }
            stays
        });
        let is_free = free.len() == held.block.places;
        held.leaves = Some(free);
        self.leaving += 1;
        if is_free {
            self.empty(number);
        }
    }

    /// Keeps a block that was being retired; those of its places that are not posted will be by [`Receives::post_all`].
    /// `false`: there is no such block.
    pub(super) fn take_back(&mut self) -> bool {
        let Some(free) = self.blocks.iter_mut().find_map(|held| held.leaves.take()) else {
            return false;
        };
        self.leaving -= 1;
        self.idle.extend(free);
        true
    }

    /// Called when no place of a block being retired is in use any more.
    fn empty(&mut self, number: usize) {
        // A placeholder that is never used; the first block is never retired.
        let region = Arc::clone(&self.blocks[0].block.region);
        self.blocks[number] = Held {
            block: Block {
                region,
                first: 0,
                places: 0,
            },
            leaves: None,
        };
        self.leaving -= 1;
    }

    /// Called when a place was used; `true` if it belongs to a block being retired.
    #[cold]
    fn leave(&mut self, id: u64) -> bool {
        let number = (id >> 32) as usize;
        let held = &mut self.blocks[number];
        let Some(free) = &mut held.leaves else {
            return false;
        };
        free.push(id);
        if free.len() == held.block.places {
            self.empty(number);
        }
        true
    }

    /// Marks all places of a block as ready to be posted.
    fn idle_block(&mut self, number: usize) {
        let ids =
            (0..self.blocks[number].block.places as u64).map(|place| (number as u64) << 32 | place);
        self.idle.extend(ids);
    }

    /// Marks all places as idle: the queue pair that had them is gone.
    pub(super) fn reclaim(&mut self) {
        self.idle.clear();
        for number in 0..self.blocks.len() {
            match self.blocks[number].leaves {
                Some(_) => self.empty(number),
                None => self.idle_block(number),
            }
        }
    }

    fn at(&self, id: u64) -> (&D::Region, usize) {
        let block = &self.blocks[(id >> 32) as usize].block;
        let place = block.first + id as u32 as usize;
        (&block.region, place * place_bytes(self.packet_bytes))
    }

    /// Copies the beginning of the datagram in a place.
    #[inline]
    pub(super) fn read(&self, id: u64, target: &mut [u8]) {
        let (region, at) = self.at(id);
        region.memory().read(at + DATAGRAM_AT, target);
    }

    /// Called when the place was read. Its RECEIVE is posted by [`Receives::post_one`], or with the next batch.
    #[inline]
    pub(super) fn give_back(
        &mut self,
        id: u64,
        queue_pair: &mut D::QueuePair,
    ) -> Result<(), ChannelError> {
        if self.leaving > 0 && self.leave(id) {
            return Ok(());
        }
        self.idle.push(id);
        if self.idle.len() >= self.together {
            return self.post_together(queue_pair);
        }
        Ok(())
    }

    /// Called when nothing has arrived: posts an idle place. Returns whether there was one; then something may have
    /// arrived meanwhile.
    #[inline]
    pub(super) fn post_one(&mut self, queue_pair: &mut D::QueuePair) -> Result<bool, ChannelError> {
        if self.idle.is_empty() {
            return Ok(false);
        }
        self.post::<1>(1, queue_pair)?;
        Ok(true)
    }

    /// Posts all idle places.
    pub(super) fn post_all(&mut self, queue_pair: &mut D::QueuePair) -> Result<(), ChannelError> {
        while !self.idle.is_empty() {
            self.post_together(queue_pair)?;
        }
        Ok(())
    }

    /// Posts as many as are posted at once.
    fn post_together(&mut self, queue_pair: &mut D::QueuePair) -> Result<(), ChannelError> {
        match self.idle.len().min(self.together) {
            1 => self.post::<1>(1, queue_pair),
            count => self.post::<RECEIVES_AT_ONCE>(count, queue_pair),
        }
    }

    /// Posts the last `count` idle places, at most `N`, for which there is room: at low load one is posted per
    /// datagram, and its request list should not have the size of sixteen.
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
        match queue_pair.post_receive(&requests[..count]) {
            Ok(()) => {
                self.idle.truncate(first);
                Ok(())
            }
            Err(error) => {
                // Those before the refused one are posted: if posted again, two datagrams would share a place.
                self.idle.drain(first..first + error.index.min(count));
                Err(ChannelError::queue_pair(error.to_string()))
            }
        }
    }
}
