//! The values that coordinators, participants and stores exchange.
use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;

use crate::short::ShortBytes;

/// The longest key: what the store below takes.
pub const MAX_KEY_BYTES: usize = 1024;

/// A key of one table. The table is a part of the key, so that one store may hold many.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    table: u16,
    bytes: ShortBytes,
}

/// A key has more than [`MAX_KEY_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a key of {bytes} bytes is longer than {MAX_KEY_BYTES}; store a digest of it, or a number")]
pub struct KeyTooLong {
    /// The length of the key.
    pub bytes: usize,
}

impl Key {
    /// A key of any bytes.
    pub fn new(table: u16, bytes: &[u8]) -> Result<Key, KeyTooLong> {
        if bytes.len() > MAX_KEY_BYTES {
            return Err(KeyTooLong { bytes: bytes.len() });
        }
        Ok(Key {
            table,
            bytes: bytes.into(),
        })
    }

    /// A key that is a number, as all keys of the papers' workloads are.
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

    /// The number that it is, as tables of servers know it; `None`: it is none.
    pub(crate) fn as_number(&self) -> Option<u64> {
        self.bytes().try_into().ok().map(u64::from_be_bytes)
    }

    /// A number spread over 64 bits, the same on every machine: FNV-1a, and the finalizer of SplitMix64, without which
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

/// The value of a key. Copies share the bytes, where they are more than a few.
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

/// How often what a header stands for was changed. It never goes back, also when a key is deleted and inserted again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u64);

impl Version {
    /// The highest version that a [`dunlin_store::Header`] has room for.
    pub const MAX: Version = Version(dunlin_store::MAX_VERSION);

    /// The version that a change makes, or nothing after [`Version::MAX`].
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

/// The name of a transaction. A coordinator that starts anew takes a new number; in one of its slots transactions
/// follow each other with rising sequence numbers, the next only when all that the last one left has been answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransactionId {
    /// The coordinator, in this life of its process.
    pub coordinator: u64,
    /// Which of its transactions under way.
    pub slot: u16,
    /// The how-manieth of that slot, from 1.
    pub sequence: u64,
}

impl fmt::Display for TransactionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.coordinator, self.slot, self.sequence)
    }
}

/// Something for each slot of each coordinator. Its hash is a quick one with a seed of the process's own: coordinators
/// choose their numbers.
pub(crate) type SlotMap<V> = HashMap<(u64, u16), V, foldhash::fast::RandomState>;

/// An address in the memory that a participant lets coordinators read and write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(pub u64);

/// Where an item lies, for one-sided operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Its header, a [`dunlin_store::Header`].
    pub header: Address,
    /// The item itself.
    pub item: Address,
    /// The longest value that there is room for. Without a number none may be written there one-sided.
    pub capacity: Option<u32>,
}

impl Place {
    /// Whether it is an item's, which is one key's, and not that of absent keys.
    pub(crate) fn is_item(&self) -> bool {
        self.capacity.is_some()
    }
}

/// What a lock of a key that was absent has done to the header that absent keys share: all others who saw one of them
/// absent find it changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Raised {
    /// The header.
    pub header: Address,
    /// Its version before.
    pub from: Version,
    /// Its version since.
    pub to: Version,
}

/// A change of one key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Update {
    /// The key.
    pub key: Key,
    /// The new value, or nothing where the key is deleted.
    pub value: Option<Value>,
    /// The version that its header has afterwards.
    pub version: Version,
}
