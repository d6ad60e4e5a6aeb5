//! Why an operation on a key-value store was refused.

use super::layout::{MAX_BUCKETS, MAX_KEY_BYTES, MAX_VALUE_BYTES};

/// The error of an operation on a key-value store. The operation has changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KvError {
    /// A key that is longer than the maximum.
    #[error("key too long: {0} bytes, the limit is {MAX_KEY_BYTES}")]
    KeyBytes(usize),
    /// A value that is longer than this store's maximum.
    #[error("value too long: {bytes} bytes, the limit is {limit}")]
    ValueBytes {
        /// The length of the value.
        bytes: usize,
        /// The maximum.
        limit: usize,
    },
    /// There is no free memory for the item.
    #[error(
        "the store is full: no place for an item of {needed} bytes among {free} free bytes of {total}; delete keys or \
         give the store more memory"
    )]
    NoMemory {
        /// Bytes that the item needs.
        needed: usize,
        /// Bytes that are free, perhaps in fragments that are too small.
        free: usize,
        /// Bytes for items in total.
        total: usize,
    },
    /// The key's chain of buckets is full, and all overflow buckets are in use.
    #[error(
        "the store is full: all {0} overflow buckets are in use; delete keys or create the store for more keys"
    )]
    NoBuckets(u32),
    /// A layout for no keys, or for more than the buckets can hold.
    #[error("invalid number of keys {0}: a store holds from 1 to {limit}", limit = MAX_BUCKETS * 4)]
    Keys(u64),
    /// A layout whose maximum value length is beyond the limit.
    #[error("values of up to {0} bytes are not supported: the limit is {MAX_VALUE_BYTES}")]
    LongestValue(usize),
    /// The memory is too small for the layout.
    #[error("the store needs {needed} bytes, but there are {length}: give it more memory or request fewer keys")]
    Memory {
        /// Bytes that the layout needs.
        needed: usize,
        /// Bytes available.
        length: usize,
    },
    /// The description of a layout is malformed or of another version.
    #[error(
        "unsupported version {0} of a key-value store's description: ask the server for it again"
    )]
    Description(u32),
}
