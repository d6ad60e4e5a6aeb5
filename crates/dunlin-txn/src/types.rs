//! The values that coordinators, participants and stores exchange.
use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;

use crate::short::ShortBytes;

/// Maximum length of a key: what the store below accepts.
pub const MAX_KEY_BYTES: usize = 1024;

/// A key of a table. The table is part of the key, so that one store can hold several tables.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    table: u16,
    bytes: ShortBytes,
}

/// The error of a key that is longer than [`MAX_KEY_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("key too long: {bytes} bytes, the limit is {MAX_KEY_BYTES}; use a digest of it or a number instead")]
pub struct KeyTooLong {
    /// The length of the key.
    pub bytes: usize,
}

impl Key {
    /// Makes a key of any bytes.
    pub fn new(table: u16, bytes: &[u8]) -> Result<Key, KeyTooLong> {
        if bytes.len() > MAX_KEY_BYTES {
            return Err(KeyTooLong { bytes: bytes.len() });
        }
        Ok(Key {
            table,
            bytes: bytes.into(),
        })
    }

    /// Makes a key from a number, like all keys of the papers' workloads.
    pub fn number(table: u16, number: u64) -> Key {
        Key {
            table,
            bytes: ShortBytes::from(&number.to_be_bytes()[..]),
        }
    }

    /// The table.
    pub fn table(&self) -> u16 {
        self.table
    }

    /// The key without its table.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The number that the key represents in servers' tables; `None` if it is not a number.
    pub(crate) fn as_number(&self) -> Option<u64> {
        self.bytes().try_into().ok().map(u64::from_be_bytes)
    }

    /// A hash spread over 64 bits, the same on every machine: FNV-1a, and the finalizer of SplitMix64, without which
    /// its low bits follow those of the last byte.
    pub fn spread(&self) -> u64 {
        let table = self.table.to_le_bytes();
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for byte in table.iter().chain(self.bytes.iter()) {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        hash ^ (hash >> 31)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match <[u8; 8]>::try_from(&*self.bytes) {
            Ok(number) => write!(f, "{}:{}", self.table, u64::from_be_bytes(number)),
            Err(_) => write!(f, "{}:{}", self.table, self.bytes.escape_ascii()),
        }
    }
}

/// The value of a key. Copies share the bytes, unless they are short.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Value(ShortBytes);

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Value {
        Value(bytes.into())
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Value {
        Value(bytes.into())
    }
}

impl Deref for Value {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

/// Number of changes to what a header stands for. It never decreases, even when a key is deleted and inserted again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u64);

impl Version {
    /// The maximum version that a [`dunlin_store::Header`] can hold.
    pub const MAX: Version = Version(dunlin_store::MAX_VERSION);

    /// The version after a change, or `None` after [`Version::MAX`].
    pub fn next(self) -> Option<Version> {
        (self < Version::MAX).then(|| Version(self.0 + 1))
    }
}

/// A machine that stores shards or logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MachineId(pub u16);

impl fmt::Display for MachineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "machine {}", self.0)
    }
}

/// The number of a transaction. A coordinator that restarts takes a new number; within one of its slots transactions
/// have increasing sequence numbers, and each begins only when everything that the previous one sent has been answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransactionId {
    /// The coordinator, in this life of its process.
    pub coordinator: u64,
    /// The slot among its concurrent transactions.
    pub slot: u16,
    /// The sequence number, from 1, increasing within a slot.
    pub sequence: u64,
}

impl fmt::Display for TransactionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.coordinator, self.slot, self.sequence)
    }
}

/// A map with an entry for each slot of each coordinator. Its hash is a fast one with a seed of this process:
/// coordinators choose their own numbers.
pub(crate) type SlotMap<V> = HashMap<(u64, u16), V, foldhash::fast::RandomState>;

/// An address in the memory that a participant lets coordinators read and write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(pub u64);

/// The location of an item, for one-sided operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Its header, a [`dunlin_store::Header`].
    pub header: Address,
    /// The item itself.
    pub item: Address,
    /// The maximum length of a value in this place. `None`: no value may be written there one-sided.
    pub capacity: Option<u32>,
}

impl Place {
    /// Whether it belongs to an item, and so to one key, rather than to absent keys.
    pub(crate) fn is_item(&self) -> bool {
        self.capacity.is_some()
    }
}

/// What locking an absent key has done to the header that absent keys share: all others that have seen one of them
/// absent find it changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Raised {
    /// The header.
    pub header: Address,
    /// The version before.
    pub from: Version,
    /// The version after.
    pub to: Version,
}

/// A change of one key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Update {
    /// The key.
    pub key: Key,
    /// The new value; `None` if the key is deleted.
    pub value: Option<Value>,
    /// The version of its header after the change.
    pub version: Version,
}
