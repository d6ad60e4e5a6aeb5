//! The layout of a store's memory, and the bucket of a key.
//!
//! Main buckets come first, then overflow buckets, each one line of 64 bytes; then blocks of 64 KiB for items.

use rapidhash::v3::{rapidhash_v3_seeded, RapidSecrets};

use super::KvError;

/// Maximum length of a key.
pub const MAX_KEY_BYTES: usize = 1024;
/// Maximum length of a value in any store: the lengths of key and value must fit in one word.
pub const MAX_VALUE_BYTES: usize = 1 << 30;
/// Maximum number of buckets of both kinds: what a control word can address.
pub const MAX_BUCKETS: u64 = 1 << 28;
/// Length of a layout's description in bytes.
pub const KV_DESCRIPTION_BYTES: usize = 40;

pub(crate) const BUCKET_BYTES: usize = 64;
/// Memory is assigned to size classes in blocks of this many bytes, and to long items in runs of blocks.
pub(crate) const BLOCK_BYTES: usize = 1 << 16;
/// Keys per main bucket of seven places: an eighth of the buckets then overflow.
const KEYS_PER_MAIN_BUCKET: u64 = 5;
/// Main buckets per overflow bucket: twice as many overflow buckets as random keys need.
const MAIN_PER_OVERFLOW: u64 = 4;
/// Minimum number of overflow buckets.
const MIN_OVERFLOW: u64 = 8;
const MAGIC: u32 = 0x4456_4b44;
const VERSION: u32 = 1;

/// The shape of a store. Validated on creation: everything it refers to lies within [`KvLayout::bytes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvLayout {
    main: u32,
    overflow: u32,
    blocks: u32,
    longest_value: u32,
    seed: u64,
    /// Derived from the seed. The hash function's output is fixed: clients that look up keys themselves compute the
    /// same.
    secrets: RapidSecrets,
}

/// A key and its hash, for one store.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) hash: u64,
}

impl Key<'_> {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        self.bytes
    }

    /// The bits stored in the item's place in the bucket.
    #[inline]
    pub(super) fn tag(&self) -> u16 {
        (self.hash >> 48) as u16
    }
}

impl KvLayout {
    /// Creates a layout for about `keys` keys with `item_memory` bytes for their items, rounded up to blocks of 64 KiB,
    /// and values of up to `longest_value` bytes. The seed determines which keys share a bucket: use a random one where
    /// untrusted clients choose keys.
    ///
    /// # Errors
    /// When one of them is beyond its limit.
    pub fn new(
        keys: u64,
        item_memory: usize,
        longest_value: usize,
        seed: u64,
    ) -> Result<Self, KvError> {
        let main = keys.div_ceil(KEYS_PER_MAIN_BUCKET);
        let overflow = (main / MAIN_PER_OVERFLOW).max(MIN_OVERFLOW);
        let blocks = item_memory.div_ceil(BLOCK_BYTES).max(1);
        Self::of(main, overflow, blocks as u64, longest_value, seed).ok_or(
            if longest_value > MAX_VALUE_BYTES {
                KvError::LongestValue(longest_value)
            } else {
                KvError::Keys(keys)
            },
        )
    }

    /// Creates a layout that fits into `memory` bytes, with buckets for items of `item_bytes` on average.
    ///
    /// # Errors
    /// When the memory is too small for one block of items, or a limit is exceeded.
    pub fn in_memory(
        memory: usize,
        item_bytes: usize,
        longest_value: usize,
        seed: u64,
    ) -> Result<Self, KvError> {
        let keys = (memory / item_bytes.max(1)).max(1) as u64;
        let without_items = Self::new(keys, 1, longest_value, seed)?;
        let needed = without_items.bytes();
        let items = (memory + BLOCK_BYTES).checked_sub(needed);
        let items = items
            .map(|bytes| bytes / BLOCK_BYTES * BLOCK_BYTES)
            .filter(|bytes| *bytes > 0)
            .ok_or(KvError::Memory {
                needed,
                length: memory,
            })?;
        Self::new(keys, items, longest_value, seed)
    }

    fn of(main: u64, overflow: u64, blocks: u64, longest_value: usize, seed: u64) -> Option<Self> {
        let buckets = main.checked_add(overflow)?;
        let fits = main > 0
            && buckets <= MAX_BUCKETS
            && (1..=u64::from(u32::MAX)).contains(&blocks)
            && longest_value <= MAX_VALUE_BYTES;
        fits.then_some(Self {
            main: main as u32,
            overflow: overflow as u32,
            blocks: blocks as u32,
            longest_value: longest_value as u32,
            seed,
            secrets: RapidSecrets::seed(seed),
        })
    }

    /// Bytes of memory that the store needs.
    pub fn bytes(&self) -> usize {
        self.heap_offset() + self.item_memory()
    }

    /// Bytes for items.
    pub fn item_memory(&self) -> usize {
        self.blocks as usize * BLOCK_BYTES
    }

    /// Maximum length of a value.
    pub fn longest_value(&self) -> usize {
        self.longest_value as usize
    }

    /// Makes a key of this store.
    ///
    /// # Errors
    /// When it is longer than [`MAX_KEY_BYTES`].
    #[inline]
    pub fn key<'a>(&self, bytes: &'a [u8]) -> Result<Key<'a>, KvError> {
        if bytes.len() > MAX_KEY_BYTES {
            return Err(KvError::KeyBytes(bytes.len()));
        }
        let hash = rapidhash_v3_seeded(bytes, &self.secrets);
        Ok(Key { bytes, hash })
    }

    #[inline]
    pub(super) fn main_bucket(&self, key: &Key<'_>) -> u32 {
        // The low half scaled to the number of buckets, which need not be a power of two.
        (((key.hash & 0xffff_ffff) * u64::from(self.main)) >> 32) as u32
    }

    #[inline]
    pub(super) fn bucket_offset(&self, bucket: u32) -> usize {
        bucket as usize * BUCKET_BYTES
    }

    /// Offset of the first block: a multiple of the block size, so that items never share a page with buckets.
    #[inline]
    pub(super) fn heap_offset(&self) -> usize {
        ((self.main as usize + self.overflow as usize) * BUCKET_BYTES).next_multiple_of(BLOCK_BYTES)
    }

    pub(super) fn main_buckets(&self) -> u32 {
        self.main
    }

    pub(super) fn overflow_buckets(&self) -> u32 {
        self.overflow
    }

    pub(super) fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Encodes the layout for a client that looks up keys itself ([`crate::kv::Lookup`]).
    pub fn describe(&self) -> [u8; KV_DESCRIPTION_BYTES] {
        let mut bytes = [0; KV_DESCRIPTION_BYTES];
        let words = [
            MAGIC,
            VERSION,
            self.main,
            self.overflow,
            self.blocks,
            self.longest_value,
        ];
        for (target, word) in bytes.chunks_exact_mut(4).zip(words) {
            target.copy_from_slice(&word.to_le_bytes());
        }
        bytes[24..32].copy_from_slice(&self.seed.to_le_bytes());
        bytes
    }

    /// Decodes a layout that a server has described, and validates it like one of our own.
    ///
    /// # Errors
    /// When it is malformed or of another version.
    pub fn parse(bytes: &[u8; KV_DESCRIPTION_BYTES]) -> Result<Self, KvError> {
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        if (word(0), word(4), word(32), word(36)) != (MAGIC, VERSION, 0, 0) {
            return Err(KvError::Description(VERSION));
        }
        Self::of(
            u64::from(word(8)),
            u64::from(word(12)),
            u64::from(word(16)),
            word(20) as usize,
            u64::from(word(24)) | u64::from(word(28)) << 32,
        )
        .ok_or(KvError::Description(VERSION))
    }
}
