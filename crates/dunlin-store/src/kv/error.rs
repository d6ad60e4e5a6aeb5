//! Why an operation on a key-value store was refused.

use super::layout::{MAX_BUCKETS, MAX_KEY_BYTES, MAX_VALUE_BYTES};

/// An operation on a key-value store that was not done. Nothing has changed where one is returned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KvError {
    /// A key that is longer than keys may be.
    #[error("a key of {0} bytes: at most {MAX_KEY_BYTES}")]
    KeyBytes(usize),
    /// A value that is longer than this store's may be.
    #[error("a value of {bytes} bytes: at most {limit}")]
    ValueBytes {
        /// What was given.
        bytes: usize,
        /// The longest.
        limit: usize,
    },
    /// There is no free memory for the item.
    #[error(
        "the store is full: an item of {needed} bytes finds no place among {free} free bytes of {total}; delete keys or \
         give it more memory"
    )]
    NoMemory {
        /// Bytes that the item takes.
        needed: usize,
        /// Bytes that are free, perhaps in pieces that are too small.
        free: usize,
        /// Bytes for items.
        total: usize,
    },
    /// The key's chain of buckets is full, and all overflow buckets are in use.
    #[error(
        "the store is full: all {0} overflow buckets are in use; delete keys or make it for more"
    )]
    NoBuckets(u32),
    /// A layout of no keys, or more than buckets can hold.
    #[error("a store for {0} keys: from 1 to {limit}", limit = MAX_BUCKETS * 4)]
    Keys(u64),
    /// A layout whose longest value is beyond what any may be.
    #[error("values of up to {0} bytes: at most {MAX_VALUE_BYTES}")]
    LongestValue(usize),
    /// The memory is too small for the layout.
    #[error("the store needs {needed} bytes, there are {length}: give it more memory or ask for fewer keys")]
    Memory {
        /// What the layout needs.
        needed: usize,
        /// What there is.
        length: usize,
    },
    /// A description of a layout that is not of this version, or is none.
    #[error("no description of a key-value store of version {0}: ask the server for it again")]
    Description(u32),
}
