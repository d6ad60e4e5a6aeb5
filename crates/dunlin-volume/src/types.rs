//! The types of a volume: its shape, the placement of its chunks, and the order of its writes.

use serde::{Deserialize, Serialize};

/// Length of a block in bytes.
pub const BLOCK_BYTES: usize = 4096;
/// Maximum number of blocks in one request to a server: 128 KiB, so that a long request does not delay short ones.
pub const MOST_BLOCKS_AT_ONCE: u32 = 32;
/// Default number of blocks in a chunk: 16 MiB.
pub const CHUNK_BLOCKS: u32 = 4096;
/// Maximum number of blocks in a volume: 16 TiB.
pub const MOST_BLOCKS: u64 = 1 << 32;
/// Maximum number of servers of a volume: a set of servers is one word.
pub const MOST_SERVERS: usize = 64;
/// Maximum number of copies of a block.
pub(crate) const MOST_COPIES: usize = 3;
/// Maximum length of a name.
pub const LONGEST_NAME: usize = 64;

/// The order of writes to a block: first by the writer's epoch, then by its count. Zero means that the block has never
/// been written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u64);

/// Number of bits of the count: 203 days at a million writes per second.
const COUNT_BITS: u32 = 44;

impl Version {
    /// Maximum number of opens of a volume.
    pub const MOST_EPOCHS: u64 = (1 << (64 - COUNT_BITS)) - 1;
    /// Maximum number of writes in one open.
    pub const MOST_WRITES: u64 = (1 << COUNT_BITS) - 1;

    /// The version of the write with this count in an epoch. Count zero is reserved for repairs: it is before
    /// everything that the epoch's owner writes.
    pub fn new(epoch: u64, count: u64) -> Self {
        Self(epoch << COUNT_BITS | count & Self::MOST_WRITES)
    }

    /// The epoch in which it was written.
    pub fn epoch(self) -> u64 {
        self.0 >> COUNT_BITS
    }
}

/// The properties with which a volume is created and which never change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// A random number drawn at its creation.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// Number of blocks.
    pub blocks: u64,
    /// Number of blocks in a chunk.
    pub chunk_blocks: u32,
    /// Number of copies of each block: 1 or 3.
    pub copies: u8,
    /// Number of servers over which it is spread.
    pub servers: u8,
}

/// Why a shape is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// The name is invalid.
    #[error("invalid name '{0}': use 1 to {LONGEST_NAME} of a-z, A-Z, 0-9, '.', '_' and '-'")]
    Name(String),
    /// The length is invalid.
    #[error(
        "invalid size of {0} blocks of {BLOCK_BYTES} bytes: it must be from 1 to {MOST_BLOCKS}"
    )]
    Blocks(u64),
    /// The chunk length is invalid.
    #[error("invalid chunk size of {0} blocks: it must be from {MOST_BLOCKS_AT_ONCE} to 65536")]
    Chunk(u32),
    /// The number of copies is invalid.
    #[error("invalid number of copies {0}: it must be 1 or 3")]
    Copies(u8),
    /// The number of servers is invalid.
    #[error("invalid number of servers {servers} for {copies} copies: it must be from {copies} to {MOST_SERVERS}")]
    Servers {
        /// Number of servers given.
        servers: usize,
        /// Number of copies required.
        copies: u8,
    },
}

impl Shape {
    /// Validates a shape that was received.
    ///
    /// # Errors
    /// See [`ShapeError`].
    pub fn validate(&self) -> Result<(), ShapeError> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if !(1..=LONGEST_NAME).contains(&self.name.len()) || !self.name.bytes().all(is_plain) {
            return Err(ShapeError::Name(self.name.clone()));
        }
        if !(1..=MOST_BLOCKS).contains(&self.blocks) {
            return Err(ShapeError::Blocks(self.blocks));
        }
        if !(MOST_BLOCKS_AT_ONCE..=1 << 16).contains(&self.chunk_blocks) {
            return Err(ShapeError::Chunk(self.chunk_blocks));
        }
        if ![1, 3].contains(&self.copies) {
            return Err(ShapeError::Copies(self.copies));
        }
        let (servers, copies) = (usize::from(self.servers), self.copies);
        if !(usize::from(copies)..=MOST_SERVERS).contains(&servers) {
            return Err(ShapeError::Servers { servers, copies });
        }
        Ok(())
    }

    /// Number of copies that a write must be on before it is acknowledged, and that an open must reach: any two such
    /// sets intersect.
    pub fn majority(&self) -> u32 {
        u32::from(self.copies) / 2 + 1
    }

    /// Length in bytes.
    pub fn bytes(&self) -> u64 {
        self.blocks * BLOCK_BYTES as u64
    }

    /// Number of chunks.
    pub fn chunks(&self) -> u64 {
        self.blocks.div_ceil(u64::from(self.chunk_blocks))
    }

    /// The chunk of a block.
    pub fn chunk(&self, block: u64) -> u64 {
        block / u64::from(self.chunk_blocks)
    }

    /// The servers that have a chunk.
    pub fn servers_of(&self, chunk: u64) -> impl Iterator<Item = usize> {
        let servers = u64::from(self.servers);
        (0..u64::from(self.copies)).map(move |copy| ((chunk + copy) % servers) as usize)
    }

    /// The same servers, as a set.
    pub fn set_of(&self, chunk: u64) -> u64 {
        self.servers_of(chunk)
            .fold(0, |set, server| set | 1 << server)
    }

    /// Whether this many blocks from `first` on are in the volume and in one chunk.
    pub fn is_within_chunk(&self, first: u64, count: u32) -> bool {
        let last = first
            .checked_add(u64::from(count))
            .and_then(|end| end.checked_sub(1));
        last.is_some_and(|last| {
            count > 0 && last < self.blocks && self.chunk(first) == self.chunk(last)
        })
    }

    /// Maximum number of bytes of the volume that one of its servers stores.
    pub fn bytes_of_server(&self) -> u64 {
        let chunks = (self.chunks() * u64::from(self.copies)).div_ceil(u64::from(self.servers));
        chunks * u64::from(self.chunk_blocks) * BLOCK_BYTES as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(blocks: u64, servers: u8) -> Shape {
        Shape {
            id: 1,
            name: "birds".into(),
            blocks,
            chunk_blocks: 64,
            copies: 3,
            servers,
        }
    }

    #[test]
    fn chunks_are_spread_and_each_has_three_servers() {
        let shape = shape(1000, 5);
        let mut had = [0; 5];
        for chunk in 0..shape.chunks() {
            assert_eq!(shape.set_of(chunk).count_ones(), 3);
            shape.servers_of(chunk).for_each(|server| had[server] += 1);
        }
        assert!(had.iter().all(|had| (9..=10).contains(had)), "{had:?}");
    }

    #[test]
    fn versions_are_ordered_by_epoch_first() {
        let order = [(1, 0), (1, 1), (1, Version::MOST_WRITES), (2, 0), (2, 1)];
        let versions = order.map(|(epoch, count)| Version::new(epoch, count));
        assert!(versions.is_sorted());
        assert_eq!(versions[2].epoch(), 1);
    }

    #[test]
    fn what_crosses_the_end_or_a_chunk_is_not_within() {
        let shape = shape(100, 3);
        assert!(shape.is_within_chunk(63, 1) && shape.is_within_chunk(64, 36));
        for (first, count) in [(63, 2), (99, 2), (100, 1), (0, 0), (u64::MAX, 2)] {
            assert!(!shape.is_within_chunk(first, count), "{first} {count}");
        }
    }

    #[test]
    fn a_wrong_shape_is_named() {
        let wrong = |change: fn(&mut Shape)| {
            let mut shape = shape(100, 3);
            change(&mut shape);
            shape.validate().unwrap_err()
        };
        assert_eq!(shape(100, 3).validate(), Ok(()));
        assert!(matches!(
            wrong(|s| s.name = "a/b".into()),
            ShapeError::Name(_)
        ));
        assert_eq!(wrong(|s| s.blocks = 0), ShapeError::Blocks(0));
        assert_eq!(wrong(|s| s.copies = 2), ShapeError::Copies(2));
        assert_eq!(wrong(|s| s.chunk_blocks = 1), ShapeError::Chunk(1));
        let servers = ShapeError::Servers {
            servers: 2,
            copies: 3,
        };
        assert_eq!(wrong(|s| s.servers = 2), servers);
    }
}
