//! The layout of a table's memory: what a client needs to READ and WRITE items by address.
//!
//! Main buckets come first, then overflow buckets, each one line of 64 bytes: seven keys and a control word (bits 0 to
//! 6 tell which keys are valid, the upper half is the number of the next overflow bucket plus one). Items follow, seven
//! for each bucket: header, key, value, padded to 8 bytes.

use crate::StoreError;

/// Number of keys in a bucket (FaSST's MICA table).
pub const KEYS_PER_BUCKET: usize = 7;
/// Maximum length of a value (FaSST: what a datagram of 4 KiB carries besides its headers).
pub const MAX_VALUE_BYTES: usize = 4060;
/// Maximum number of buckets of both kinds: their numbers and all offsets stay far below what the words can hold.
pub const MAX_BUCKETS: u64 = 1 << 31;
/// Length of a layout's description in bytes.
pub const DESCRIPTION_BYTES: usize = 32;

pub(crate) const BUCKET_BYTES: usize = 64;
pub(crate) const KEY_OFFSET: usize = 8;
pub(crate) const VALUE_OFFSET: usize = 16;
const MAGIC: u32 = 0x4d49_4341;
const VERSION: u32 = 1;

/// The shape of a table. Validated on creation: all offsets that it returns lie within [`Layout::bytes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    main: u32,
    overflow: u32,
    value_bytes: u32,
    seed: u64,
}

/// The location of an item, in bytes from the start of the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemAddress {
    /// The header of 8 bytes; the key's 8 bytes follow.
    pub header: usize,
    /// The value.
    pub value: usize,
}

impl Layout {
    /// Creates a layout with `main` buckets, a power of two, and a pool of `overflow` buckets, for values of
    /// `value_bytes`. The seed determines which keys share a bucket; use a random one where untrusted clients choose
    /// keys.
    pub fn new(
        main: u64,
        overflow: u64,
        value_bytes: usize,
        seed: u64,
    ) -> Result<Self, StoreError> {
        if value_bytes == 0 || value_bytes > MAX_VALUE_BYTES {
            return Err(StoreError::ValueBytes {
                bytes: value_bytes,
                limit: MAX_VALUE_BYTES,
            });
        }
        if !main.is_power_of_two()
            || main
                .checked_add(overflow)
                .is_none_or(|all| all > MAX_BUCKETS)
        {
            return Err(StoreError::Buckets {
                main,
                overflow,
                limit: MAX_BUCKETS,
            });
        }
        Ok(Self {
            main: main as u32,
            overflow: overflow as u32,
            value_bytes: value_bytes as u32,
            seed,
        })
    }

    /// Bytes of memory that the table needs.
    pub fn bytes(&self) -> usize {
        self.buckets() * (BUCKET_BYTES + KEYS_PER_BUCKET * self.item_bytes())
    }

    /// Length of a value in bytes.
    pub fn value_bytes(&self) -> usize {
        self.value_bytes as usize
    }

    /// Length of an item in bytes: header, key, value and padding to a whole word.
    #[inline]
    pub fn item_bytes(&self) -> usize {
        VALUE_OFFSET + (self.value_bytes as usize).next_multiple_of(8)
    }

    /// Number of overflow buckets.
    pub fn overflow_buckets(&self) -> u32 {
        self.overflow
    }

    /// The main bucket of a key.
    #[inline]
    pub fn main_bucket(&self, key: u64) -> u32 {
        // The finalizer of MurmurHash3: all bits of the key reach the low ones.
        let mut hash = key ^ self.seed;
        hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        (hash ^ (hash >> 33)) as u32 & (self.main - 1)
    }

    /// The next overflow bucket according to a control word: none, a bucket, or, as the error, a number outside the
    /// pool.
    #[inline]
    pub fn next_bucket(&self, control: u64) -> Result<Option<u32>, u32> {
        match (control >> 32) as u32 {
            0 => Ok(None),
            next if next <= self.overflow => Ok(Some(self.main + next - 1)),
            next => Err(next),
        }
    }

    /// The item of a slot in a bucket, if it exists.
    pub fn item(&self, bucket: u32, slot: usize) -> Option<ItemAddress> {
        let exists = (bucket as usize) < self.buckets() && slot < KEYS_PER_BUCKET;
        exists.then(|| {
            let header = self.item_offset(bucket, slot);
            ItemAddress {
                header,
                value: header + VALUE_OFFSET,
            }
        })
    }

    /// Offset of a bucket's line.
    #[inline]
    pub fn bucket_offset(&self, bucket: u32) -> usize {
        bucket as usize * BUCKET_BYTES
    }

    #[inline]
    pub(crate) fn item_offset(&self, bucket: u32, slot: usize) -> usize {
        self.buckets() * BUCKET_BYTES
            + (bucket as usize * KEYS_PER_BUCKET + slot) * self.item_bytes()
    }

    pub(crate) fn is_overflow(&self, bucket: u32) -> Option<u32> {
        bucket.checked_sub(self.main)
    }

    /// Number of main buckets, each the start of a chain.
    pub fn main_buckets(&self) -> u32 {
        self.main
    }

    #[inline]
    fn buckets(&self) -> usize {
        self.main as usize + self.overflow as usize
    }

    /// Encodes the layout for clients.
    pub fn describe(&self) -> [u8; DESCRIPTION_BYTES] {
        let mut bytes = [0; DESCRIPTION_BYTES];
        let words = [
            MAGIC,
            VERSION,
            self.main,
            self.overflow,
            self.value_bytes,
            0,
        ];
        for (target, word) in bytes.chunks_exact_mut(4).zip(words) {
            target.copy_from_slice(&word.to_le_bytes());
        }
        bytes[24..].copy_from_slice(&self.seed.to_le_bytes());
        bytes
    }

    /// Decodes a layout that a server has described, and validates it like one of our own.
    pub fn parse(bytes: &[u8; DESCRIPTION_BYTES]) -> Result<Self, StoreError> {
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        if (word(0), word(4), word(20)) != (MAGIC, VERSION, 0) {
            return Err(StoreError::Description(VERSION));
        }
        let seed = u64::from(word(24)) | u64::from(word(28)) << 32;
        Self::new(
            u64::from(word(8)),
            u64::from(word(12)),
            word(16) as usize,
            seed,
        )
    }
}
