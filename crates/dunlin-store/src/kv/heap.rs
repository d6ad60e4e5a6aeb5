//! The allocator of items: chunks of size classes in blocks of 64 KiB, and runs of blocks for long items.
//!
//! A block belongs to one class while it holds any item, and to none once the last is freed, so a store whose items
//! change their lengths does not run out of memory that other classes hold (memcached moves pages between its slab
//! classes for that reason). The free lists are in private memory, one bit per chunk: a peer that can write the items
//! cannot change them.

use std::collections::{BTreeMap, BTreeSet};

use super::classes::{class_bytes, class_of, run_blocks, Chunk, CLASSES, RUN, UNIT_BYTES};
use super::layout::BLOCK_BYTES;
use super::KvError;

/// Number of words for a block's bits: one bit for each chunk of the smallest class.
const WORDS: usize = BLOCK_BYTES / UNIT_BYTES / 64;
/// The block is in no list.
const UNLISTED: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// In a free run, or inside a used run but not its first block.
    None,
    /// Chunks of a class: the number in use, and the block's index among the blocks of the class with free chunks.
    Class { class: u8, used: u16, listed: u32 },
    /// The first block of a used run.
    Run { blocks: u32 },
}

/// Which parts of the memory for items are free.
#[derive(Debug)]
pub(crate) struct Heap {
    /// Offset of the first block.
    start: usize,
    blocks: Vec<Use>,
    /// `WORDS` words per block: the chunks in use.
    bits: Vec<u64>,
    /// For each class, the blocks with free chunks.
    with_room: [Vec<u32>; CLASSES],
    free_runs: FreeRuns,
    /// Bytes of the chunks and runs in use.
    used_bytes: usize,
}

impl Heap {
    /// Creates an allocator for `blocks` blocks from `start` on, all free.
    pub(crate) fn new(start: usize, blocks: u32) -> Self {
        let mut free_runs = FreeRuns::default();
        free_runs.give_back(0, blocks);
        Self {
            start,
            blocks: vec![Use::None; blocks as usize],
            bits: vec![0; blocks as usize * WORDS],
            with_room: std::array::from_fn(|_| Vec::new()),
            free_runs,
            used_bytes: 0,
        }
    }

    /// Bytes that items occupy, including the unused ends of their chunks.
    pub(crate) fn used_bytes(&self) -> usize {
        self.used_bytes
    }

    /// Bytes in total.
    pub(crate) fn total_bytes(&self) -> usize {
        self.blocks.len() * BLOCK_BYTES
    }

    /// Allocates a chunk for an item of `bytes`.
    pub(crate) fn allocate(&mut self, bytes: usize) -> Result<Chunk, KvError> {
        let mut found = self.try_allocate(bytes);
        if found.is_none() {
            self.close_empty_blocks();
            found = self.try_allocate(bytes);
        }
        found.ok_or_else(|| KvError::NoMemory {
            needed: bytes,
            free: self.total_bytes() - self.used_bytes,
            total: self.total_bytes(),
        })
    }

    fn try_allocate(&mut self, bytes: usize) -> Option<Chunk> {
        match class_of(bytes) {
            Some(class) => self.allocate_shared(class),
            None => self.allocate_run(run_blocks(bytes)),
        }
    }

    fn allocate_run(&mut self, blocks: u32) -> Option<Chunk> {
        let first = self.free_runs.take(blocks)?;
        self.blocks[first as usize] = Use::Run { blocks };
        self.used_bytes += blocks as usize * BLOCK_BYTES;
        Some(Chunk {
            offset: self.start + first as usize * BLOCK_BYTES,
            code: RUN,
        })
    }

    fn allocate_shared(&mut self, class: u8) -> Option<Chunk> {
        let block = match self.with_room[usize::from(class)].last() {
            Some(block) => *block,
            None => self.open_block(class)?,
        } as usize;
        let (chunk_bytes, words) = (class_bytes(class), block * WORDS..(block + 1) * WORDS);
        let bits = &mut self.bits[words];
        // A block in this list has a free chunk, and bits beyond its last chunk are marked as used.
        let (word, free) = bits.iter_mut().enumerate().find(|(_, w)| **w != u64::MAX)?;
        let bit = (!*free).trailing_zeros() as usize;
        *free |= 1 << bit;
        let Use::Class { used, .. } = &mut self.blocks[block] else {
            return None;
        };
        *used += 1;
        if usize::from(*used) == BLOCK_BYTES / chunk_bytes {
            self.unlist(block);
        }
        self.used_bytes += chunk_bytes;
        Some(Chunk {
            offset: self.start + block * BLOCK_BYTES + (word * 64 + bit) * chunk_bytes,
            code: class,
        })
    }

    /// Assigns a free block to a class.
    fn open_block(&mut self, class: u8) -> Option<u32> {
        let block = self.free_runs.take(1)?;
        self.blocks[block as usize] = Use::Class {
            class,
            used: 0,
            listed: UNLISTED,
        };
        let chunks = BLOCK_BYTES / class_bytes(class);
        let bits = &mut self.bits[block as usize * WORDS..][..WORDS];
        for (word, bits) in bits.iter_mut().enumerate() {
            let here = chunks.saturating_sub(word * 64);
            *bits = if here >= 64 { 0 } else { u64::MAX << here };
        }
        self.list(block as usize);
        Some(block)
    }

    /// Frees a chunk that [`Heap::allocate`] returned.
    ///
    /// # Panics
    /// When the chunk was not allocated, or is already free.
    pub(crate) fn give_back(&mut self, chunk: Chunk) {
        let at = chunk.offset - self.start;
        let block = at / BLOCK_BYTES;
        match self.blocks[block] {
            Use::Run { blocks } => {
                self.blocks[block] = Use::None;
                self.free_runs.give_back(block as u32, blocks);
                self.used_bytes -= blocks as usize * BLOCK_BYTES;
            }
            Use::Class { class, used, .. } => {
                let chunk_bytes = class_bytes(class);
                let index = at % BLOCK_BYTES / chunk_bytes;
                let word = &mut self.bits[block * WORDS + index / 64];
                let bit = 1 << (index % 64);
                assert!(*word & bit != 0, "a free chunk was freed again");
                *word &= !bit;
                self.used_bytes -= chunk_bytes;
                self.one_less(block, class, used - 1);
            }
            Use::None => panic!("memory that is not allocated was freed"),
        }
    }

    fn one_less(&mut self, block: usize, class: u8, left: u16) {
        if let Use::Class { used, listed, .. } = &mut self.blocks[block] {
            *used = left;
            if *listed == UNLISTED {
                self.list(block);
            }
        }
        // The last block with free chunks stays with its class, so that a single item that comes and goes does not open
        // a block each time.
        if left == 0 && self.with_room[usize::from(class)].len() > 1 {
            self.close_block(block);
        }
    }

    fn close_block(&mut self, block: usize) {
        self.unlist(block);
        self.blocks[block] = Use::None;
        self.free_runs.give_back(block as u32, 1);
    }

    #[cold]
    fn close_empty_blocks(&mut self) {
        for class in 0..CLASSES {
            for index in (0..self.with_room[class].len()).rev() {
                let block = self.with_room[class][index] as usize;
                if matches!(self.blocks[block], Use::Class { used: 0, .. }) {
                    self.close_block(block);
                }
            }
        }
    }

    fn list(&mut self, block: usize) {
        if let Use::Class { class, listed, .. } = &mut self.blocks[block] {
            let list = &mut self.with_room[usize::from(*class)];
            *listed = list.len() as u32;
            list.push(block as u32);
        }
    }

    fn unlist(&mut self, block: usize) {
        let Use::Class { class, listed, .. } = &mut self.blocks[block] else {
            return;
        };
        let list = &mut self.with_room[usize::from(*class)];
        let place = std::mem::replace(listed, UNLISTED);
        list.swap_remove(place as usize);
        if let Some(moved) = list.get(place as usize) {
            if let Use::Class { listed, .. } = &mut self.blocks[*moved as usize] {
                *listed = place;
            }
        }
    }
}

/// Runs of free blocks, by position and by length.
#[derive(Debug, Default)]
struct FreeRuns {
    lengths: BTreeMap<u32, u32>,
    by_length: BTreeSet<(u32, u32)>,
}

impl FreeRuns {
    /// Takes the first blocks of the shortest run that is long enough.
    fn take(&mut self, blocks: u32) -> Option<u32> {
        let (length, first) = *self.by_length.range((blocks, 0)..).next()?;
        self.remove(first, length);
        if length > blocks {
            self.insert(first + blocks, length - blocks);
        }
        Some(first)
    }

    /// Frees a run and merges it with its free neighbours.
    fn give_back(&mut self, first: u32, blocks: u32) {
        let (mut first, mut length) = (first, blocks);
        if let Some((&before, &its)) = self.lengths.range(..first).next_back() {
            if before + its == first {
                self.remove(before, its);
                first = before;
                length += its;
            }
        }
        if let Some(&its) = self.lengths.get(&(first + length)) {
            self.remove(first + length, its);
            length += its;
        }
        self.insert(first, length);
    }

    fn insert(&mut self, first: u32, length: u32) {
        self.lengths.insert(first, length);
        self.by_length.insert((length, first));
    }

    fn remove(&mut self, first: u32, length: u32) {
        self.lengths.remove(&first);
        self.by_length.remove(&(length, first));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::classes::MAX_SHARED_BYTES;
    use super::*;

    const BLOCKS: u32 = 8;
    const START: usize = 3 * BLOCK_BYTES;

    fn length(chunk: Chunk, bytes: usize) -> usize {
        match chunk.code {
            RUN => run_blocks(bytes) as usize * BLOCK_BYTES,
            class => class_bytes(class),
        }
    }

    proptest! {
        /// Chunks never overlap or leave the memory, and everything that is freed is available again.
        #[test]
        fn chunks_are_apart(steps in prop::collection::vec((any::<bool>(), 0usize..200_000, any::<prop::sample::Index>()), 1..200)) {
            let mut heap = Heap::new(START, BLOCKS);
            let mut held: Vec<(Chunk, usize)> = Vec::new();
            for (take, bytes, which) in steps {
                // Most are short: many share a block.
                let bytes = if bytes % 3 > 0 { bytes % 700 } else { bytes };
                if !take && !held.is_empty() {
                    let (chunk, _) = held.swap_remove(which.index(held.len()));
                    heap.give_back(chunk);
                } else {
                    match heap.allocate(bytes) {
                        Ok(chunk) => held.push((chunk, bytes)),
                        Err(error) => {
                            let full = matches!(error, KvError::NoMemory { needed, .. } if needed == bytes);
                            prop_assert!(full && !held.is_empty() || bytes > BLOCKS as usize * BLOCK_BYTES);
                        }
                    }
                }
                let mut ends: Vec<(usize, usize)> = held
                    .iter()
                    .map(|(chunk, bytes)| (chunk.offset, chunk.offset + length(*chunk, *bytes)))
                    .collect();
                ends.sort_unstable();
                prop_assert!(ends.windows(2).all(|two| two[0].1 <= two[1].0));
                prop_assert!(ends.iter().all(|(from, to)| *from >= START && *to <= START + heap.total_bytes()));
                let used: usize = ends.iter().map(|(from, to)| to - from).sum();
                prop_assert_eq!(used, heap.used_bytes());
            }
            for (chunk, _) in held {
                heap.give_back(chunk);
            }
            prop_assert_eq!(heap.used_bytes(), 0);
        }
    }

    /// Blocks of one class can later serve another, and then long items.
    #[test]
    fn memory_moves_between_classes() {
        let mut heap = Heap::new(START, BLOCKS);
        for bytes in [32, 1000, MAX_SHARED_BYTES, 3 * BLOCK_BYTES, 64] {
            let mut held = Vec::new();
            while let Ok(chunk) = heap.allocate(bytes) {
                held.push(chunk);
            }
            // All blocks except the remainder of a division by three, and what a class leaves unused at the end of a
            // block.
            assert!(heap.used_bytes() * 4 >= heap.total_bytes() * 3, "{bytes}");
            for chunk in held {
                heap.give_back(chunk);
            }
        }
    }

    #[test]
    #[should_panic(expected = "freed again")]
    fn nothing_is_given_back_twice() {
        let mut heap = Heap::new(START, BLOCKS);
        let chunk = heap.allocate(100).unwrap();
        heap.allocate(100).unwrap();
        heap.give_back(chunk);
        heap.give_back(chunk);
    }
}
