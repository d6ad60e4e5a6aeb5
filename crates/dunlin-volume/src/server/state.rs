//! A server's state of its volumes: for each block its version, its checksum and its location. Values without threads
//! and without a disk.
//!
//! Records may be applied in any order and more than once: for each block the highest version counts. A record of the
//! version that a block has replaces its bytes if they are the same by their checksum: the former place may be damaged.

use std::collections::{BTreeMap, HashMap};

use super::log::Segment;
use crate::types::{Version, BLOCK_BYTES};
use crate::wire::{BlockState, Described, Head, Kind, Record};

/// The whole state.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) copies: HashMap<u64, Copy>,
    /// The files of the log, by number; empty if all blocks are in memory.
    pub(super) segments: BTreeMap<u32, Segment>,
}

/// The server's copy of one volume.
#[derive(Debug)]
pub(super) struct Copy {
    pub(super) described: Described,
    chunks: HashMap<u64, Chunk>,
}

#[derive(Debug)]
struct Chunk {
    entries: Box<[Entry]>,
    /// Computed from the versions of all blocks.
    digest: u64,
    /// The data, if it is kept in memory.
    memory: Vec<Option<Box<[u8]>>>,
}

/// The state of one block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) version: Version,
    pub(super) place: Place,
    sum: u32,
}

/// Where the data of a block is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Place {
    /// It is all zeros.
    #[default]
    Zeros,
    /// In memory.
    Memory,
    /// In a file of the log.
    Log { segment: u32, offset: u32 },
}

impl Entry {
    pub(super) fn state(&self) -> BlockState {
        BlockState {
            version: self.version,
            sum: (self.place != Place::Zeros).then_some(self.sum),
        }
    }
}

/// The contribution of a block to the digest of its chunk (the finalizer of MurmurHash3).
fn mixed(block: u64, version: Version) -> u64 {
    let mut word = version.0 ^ block.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    word = (word ^ word >> 33).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    word = (word ^ word >> 33).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    word ^ word >> 33
}

impl Copy {
    pub(super) fn new(described: Described) -> Self {
        Self {
            described,
            chunks: HashMap::new(),
        }
    }

    /// Whether these blocks are in the volume and placed on this server.
    pub(super) fn has(&self, first: u64, count: u32) -> bool {
        let Described { shape, place, .. } = &self.described;
        shape.is_within_chunk(first, count) && shape.set_of(shape.chunk(first)) & 1 << place != 0
    }

    fn split(&self, block: u64) -> (u64, usize) {
        let blocks = u64::from(self.described.shape.chunk_blocks);
        (block / blocks, (block % blocks) as usize)
    }

    /// The state of a block.
    pub(super) fn entry(&self, block: u64) -> Entry {
        let (chunk, at) = self.split(block);
        self.chunks
            .get(&chunk)
            .map_or_else(Entry::default, |chunk| chunk.entries[at])
    }

    /// The data of a block that is kept in memory.
    pub(super) fn bytes(&self, block: u64) -> Option<&[u8]> {
        let (chunk, at) = self.split(block);
        self.chunks.get(&chunk)?.memory.get(at)?.as_deref()
    }

    pub(super) fn digest(&self, chunk: u64) -> u64 {
        self.chunks.get(&chunk).map_or(0, |chunk| chunk.digest)
    }

    /// Number of blocks in a chunk: the last one may be shorter.
    pub(super) fn blocks_of(&self, chunk: u64) -> u32 {
        let shape = &self.described.shape;
        let first = chunk.saturating_mul(u64::from(shape.chunk_blocks));
        shape
            .blocks
            .saturating_sub(first)
            .min(u64::from(shape.chunk_blocks)) as u32
    }

    fn chunk(&mut self, chunk: u64) -> &mut Chunk {
        let blocks = self.described.shape.chunk_blocks as usize;
        self.chunks.entry(chunk).or_insert_with(|| Chunk {
            entries: vec![Entry::default(); blocks].into(),
            digest: 0,
            memory: Vec::new(),
        })
    }
}

impl State {
    /// Applies a record at this position of the log, or one that is to be kept in memory.
    pub(super) fn apply(&mut self, record: &Record<'_>, at: Option<(u32, u32)>) {
        let Head {
            volume,
            version,
            first,
            count,
            kind,
        } = record.head;
        let Some(copy) = self.copies.get_mut(&volume) else {
            return;
        };
        if !copy.has(first, count) {
            return;
        }
        let (number, from) = copy.split(first);
        let chunk = copy.chunk(number);
        for nth in 0..count {
            let entry = &mut chunk.entries[from + nth as usize];
            let is_same = kind == Kind::Data
                && version == entry.version
                && entry.state().sum == Some(record.sum(nth));
            if version <= entry.version && !is_same {
                continue;
            }
            let block = first + u64::from(nth);
            let place = match (kind, at) {
                (Kind::Zeros, _) => Place::Zeros,
                (Kind::Data, None) => Place::Memory,
                (Kind::Data, Some((segment, offset))) => Place::Log {
                    segment,
                    offset: offset + record.head.data_at(nth) as u32,
                },
            };
            let before = mixed(block, entry.version);
            let before = if entry.version == Version::default() {
                0
            } else {
                before
            };
            let digest = chunk.digest.wrapping_sub(before);
            chunk.digest = digest.wrapping_add(mixed(block, version));
            let old = std::mem::replace(
                entry,
                Entry {
                    version,
                    place,
                    sum: record.sum(nth),
                },
            );
            keep(
                &mut chunk.memory,
                from + nth as usize,
                place,
                record.block(nth),
            );
            release(&mut self.segments, old.place);
            hold(&mut self.segments, place);
        }
    }

    /// A block in a file that is being cleaned is in another file from now on, if it was still there.
    pub(super) fn moved(&mut self, volume: u64, block: u64, from: Place, to: Place) {
        let Some(copy) = self.copies.get_mut(&volume) else {
            return;
        };
        let (number, at) = copy.split(block);
        let Some(chunk) = copy.chunks.get_mut(&number) else {
            return;
        };
        let entry = &mut chunk.entries[at];
        if entry.place == from {
            entry.place = to;
            release(&mut self.segments, from);
            hold(&mut self.segments, to);
        }
    }

    /// Removes the volume.
    pub(super) fn remove(&mut self, volume: u64) {
        let Some(copy) = self.copies.remove(&volume) else {
            return;
        };
        let chunks = copy.chunks.values();
        for entry in chunks.flat_map(|chunk| chunk.entries.iter()) {
            release(&mut self.segments, entry.place);
        }
        // It is not known which zeros were the volume's: files are checked again.
        for segment in self.segments.values_mut() {
            segment.zeros = 0;
        }
    }
}

/// Stores the data in memory, replacing any previous data, if that is where it belongs.
fn keep(memory: &mut Vec<Option<Box<[u8]>>>, at: usize, place: Place, bytes: Option<&[u8]>) {
    match (place, bytes) {
        (Place::Memory, Some(bytes)) => {
            if memory.len() <= at {
                memory.resize_with(at + 1, || None);
            }
            match &mut memory[at] {
                Some(kept) => kept.copy_from_slice(bytes),
                none => *none = Some(bytes.into()),
            }
        }
        _ => {
            if let Some(kept) = memory.get_mut(at) {
                *kept = None;
            }
        }
    }
}

fn release(segments: &mut BTreeMap<u32, Segment>, place: Place) {
    if let Place::Log { segment, .. } = place {
        if let Some(segment) = segments.get_mut(&segment) {
            segment.live = segment.live.saturating_sub(BLOCK_BYTES as u64);
        }
    }
}

fn hold(segments: &mut BTreeMap<u32, Segment>, place: Place) {
    if let Place::Log { segment, .. } = place {
        if let Some(segment) = segments.get_mut(&segment) {
            segment.live += BLOCK_BYTES as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Shape;
    use proptest::prelude::*;

    fn state() -> State {
        let shape = Shape {
            id: 1,
            name: "birds".into(),
            blocks: 100,
            chunk_blocks: 64,
            copies: 1,
            servers: 1,
        };
        let described = Described {
            shape,
            place: 0,
            epoch: 1,
            owner: 1,
            whole: true,
            settled: 0,
        };
        let copies = HashMap::from([(1, Copy::new(described))]);
        State {
            copies,
            ..State::default()
        }
    }

    fn records() -> impl Strategy<Value = Vec<(u64, u32, bool)>> {
        prop::collection::vec((0..100_u64, 1..4_u32, any::<bool>()), 1..40)
    }

    proptest! {
        #[test]
        fn the_order_in_which_records_come_does_not_matter(records in records(), seed: u64) {
            let encoded: Vec<Vec<u8>> = records.iter().zip(1..).map(|((first, count, zeros), version)| {
                let kind = if *zeros { Kind::Zeros } else { Kind::Data };
                let version = Version::new(1, version);
                let head = Head { volume: 1, version, first: *first, count: *count, kind };
                let mut bytes = Vec::new();
                head.encode(&vec![version.0 as u8; *count as usize * BLOCK_BYTES], &mut bytes);
                bytes
            }).collect();
            let mut shuffled: Vec<&Vec<u8>> = encoded.iter().chain(&encoded).collect();
            fastrand::Rng::with_seed(seed).shuffle(&mut shuffled);
            let (mut one, mut other) = (state(), state());
            for bytes in &encoded {
                one.apply(&Record::parse(bytes).unwrap(), None);
            }
            for bytes in shuffled {
                other.apply(&Record::parse(bytes).unwrap(), None);
            }
            let (one, other) = (&one.copies[&1], &other.copies[&1]);
            for block in 0..100 {
                prop_assert_eq!(one.entry(block), other.entry(block));
                prop_assert_eq!(one.bytes(block), other.bytes(block));
                let state = one.entry(block).state();
                let zeros = [0; BLOCK_BYTES];
                prop_assert!(state.fits(one.bytes(block).unwrap_or(&zeros)));
            }
            for chunk in 0..2 {
                prop_assert_eq!(one.digest(chunk), other.digest(chunk));
            }
        }
    }

    #[test]
    fn a_record_that_leaves_its_chunk_is_not_applied() {
        let mut state = state();
        for first in [63, 99, 100, u64::MAX] {
            let version = Version::new(1, 1);
            let head = Head {
                volume: 1,
                version,
                first,
                count: 2,
                kind: Kind::Zeros,
            };
            let mut bytes = Vec::new();
            head.encode(&[], &mut bytes);
            state.apply(&Record::parse(&bytes).unwrap(), None);
        }
        assert_eq!(state.copies[&1].digest(0), 0);
        assert_eq!(state.copies[&1].digest(1), 0);
    }
}
