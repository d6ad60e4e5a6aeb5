//! Why an operation on a table was refused.

/// An operation on a table that was not done. Nothing has changed where one is returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// A layout whose values are longer than [`crate::MAX_VALUE_BYTES`], or empty.
    #[error("values of {bytes} bytes: a table holds values of 1 to {limit} bytes")]
    ValueBytes {
        /// What was asked for.
        bytes: usize,
        /// The longest.
        limit: usize,
    },
    /// A number of main buckets that is no power of two, or buckets beyond [`crate::MAX_BUCKETS`].
    #[error("{main} main and {overflow} overflow buckets: main buckets are a power of two, both together at most {limit}")]
    Buckets {
        /// Main buckets.
        main: u64,
        /// Overflow buckets.
        overflow: u64,
        /// The most of both together.
        limit: u64,
    },
    /// A description of a layout that is not of this version, or is none.
    #[error("no description of a table's layout of version {0}: ask the server for it again")]
    Description(u32),
    /// The memory is too small for the layout.
    #[error("the table needs {needed} bytes, the region has {length}: register a longer one or ask for fewer buckets")]
    Memory {
        /// What the layout needs.
        needed: usize,
        /// What there is.
        length: usize,
    },
    /// A value, or a buffer for one, is not as long as the table's values are.
    #[error("{bytes} bytes for a value: this table's values have {expected}")]
    ValueLength {
        /// What was given.
        bytes: usize,
        /// The table's length of a value.
        expected: usize,
    },
    /// The key's chain is full, and no overflow bucket is left.
    #[error("the table is full: all {overflow_buckets} overflow buckets are in use; delete, or make it larger")]
    Full {
        /// The pool's size.
        overflow_buckets: u32,
    },
    /// The key is there already.
    #[error("the key {0} is in the table already: update it")]
    Exists(u64),
    /// The key is not there.
    #[error("the key {0} is not in the table")]
    Absent(u64),
    /// Another owner has the item's lock, or a writer had it for longer than a reader tries.
    #[error("the item of key {key} is locked by owner {owner}: try again later")]
    Locked {
        /// The key.
        key: u64,
        /// Who has the lock, as the header says; [`crate::WRITER`] for a writer of this process.
        owner: u16,
    },
    /// The item's lock is not the caller's.
    #[error("the item of key {key} is not locked by owner {owner}")]
    NotLocked {
        /// The key.
        key: u64,
        /// Who wanted to unlock it.
        owner: u16,
    },
    /// A lock was asked for with an owner beyond [`crate::MAX_OWNER`].
    #[error("the owner {owner} is beyond {limit}")]
    Owner {
        /// Who asked.
        owner: u16,
        /// The largest.
        limit: u16,
    },
    /// The item changed each time that it was looked at.
    #[error("the item of key {0} changed during every attempt: try again")]
    Contended(u64),
    /// A chain of buckets leads where none can: who may write the region has damaged it.
    #[error("the chain of main bucket {bucket} is damaged: a writer of the region broke the layout; restore the table")]
    Damaged {
        /// The main bucket.
        bucket: u32,
    },
}
