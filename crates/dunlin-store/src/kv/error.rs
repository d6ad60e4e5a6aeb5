//! Why an operation on a key-value store was refused.

use super::layout::{MAX_BUCKETS, MAX_KEY_BYTES, MAX_VALUE_BYTES};

/// The error of an operation on a key-value store. The operation has changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KvError {
    /// A key that is longer than the maximum.
    #[error("a key of {0} bytes: at most {MAX_KEY_BYTES}")]
    KeyBytes(usize),
    /// A value that is longer than this store's maximum.
    #[error("a value of {bytes} bytes: at most {limit}")]
    ValueBytes {
        /// The length of the value.
        bytes: usize,
        /// The maximum.
        limit: usize,
    },
    /// There is no free memory for the item.
    #[error(
        "the store is full: an item of {needed} bytes finds no place among {free} free bytes of {total}; delete keys or \
         give it more memory"
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
        "the store is full: all {0} overflow buckets are in use; delete keys or make it for more"
    )]
    NoBuckets(u32),
    /// A layout for no keys, or for more than the buckets can hold.
    #[error("a store for {0} keys: from 1 to {limit}", limit = MAX_BUCKETS * 4)]
    Keys(u64),
    /// A layout whose maximum value length is beyond the limit.
    #[error("values of up to {0} bytes: at most {MAX_VALUE_BYTES}")]
    LongestValue(usize),
    /// The memory is too small for the layout.
    #[error("the store needs {needed} bytes, there are {length}: give it more memory or ask for fewer keys")]
    Memory {
        /// Bytes that the layout needs.
        needed: usize,
        /// Bytes available.
        length: usize,
    },
    /// The description of a layout is malformed or of another version.
    #[error("no description of a key-value store of version {0}: ask the server for it again")]
    Description(u32),
}
