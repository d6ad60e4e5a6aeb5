//! Why an operation on a table was refused.

/// The error of an operation on a table. The operation has changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// A layout whose values are empty or longer than [`crate::MAX_VALUE_BYTES`].
    #[error("invalid value length of {bytes} bytes: a table holds values of 1 to {limit} bytes")]
    ValueBytes {
        /// The requested length.
        bytes: usize,
        /// The maximum.
        limit: usize,
    },
    /// A number of main buckets that is not a power of two, or more than [`crate::MAX_BUCKETS`] buckets.
    #[error(
        "invalid number of buckets: {main} main and {overflow} overflow buckets; main buckets must be a power of two, \
         both together at most {limit}"
    )]
    Buckets {
        /// Number of main buckets.
        main: u64,
        /// Number of overflow buckets.
        overflow: u64,
        /// The maximum of their sum.
        limit: u64,
    },
    /// The description of a layout is malformed or of another version.
    #[error("unsupported version {0} of a table's description: ask the server for it again")]
    Description(u32),
    /// The memory is too small for the layout.
    #[error(
        "the table needs {needed} bytes, but the region has {length}: register a longer region or request fewer \
         buckets"
    )]
    Memory {
        /// Bytes that the layout needs.
        needed: usize,
        /// Bytes available.
        length: usize,
    },
    /// A value, or a buffer for one, does not have the length of the table's values.
    #[error("wrong value length of {bytes} bytes: this table's values have {expected}")]
    ValueLength {
        /// The length that was passed.
        bytes: usize,
        /// The length of the table's values.
        expected: usize,
    },
    /// The key's chain is full, and no overflow bucket is free.
    #[error(
        "the table is full: all {overflow_buckets} overflow buckets are in use; delete keys, or create a larger table"
    )]
    Full {
        /// Size of the pool of overflow buckets.
        overflow_buckets: u32,
    },
    /// The key already exists.
    #[error("the key {0} already exists in the table: update it instead")]
    Exists(u64),
    /// The key does not exist.
    #[error("the key {0} does not exist in the table")]
    Absent(u64),
    /// Another owner holds the item's lock, or a writer has held it for longer than a reader retries.
    #[error("the item of key {key} is locked by owner {owner}: try again later")]
    Locked {
        /// The key.
        key: u64,
        /// The owner of the lock according to the header; [`crate::WRITER`] for a writer of this process.
        owner: u16,
    },
    /// The caller does not hold the item's lock.
    #[error("the item of key {key} is not locked by owner {owner}")]
    NotLocked {
        /// The key.
        key: u64,
        /// The owner that was to be unlocked.
        owner: u16,
    },
    /// An owner above [`crate::MAX_OWNER`] requested a lock.
    #[error("the owner {owner} exceeds the limit of {limit}")]
    Owner {
        /// The owner.
        owner: u16,
        /// The maximum.
        limit: u16,
    },
    /// The item changed during every attempt to read it.
    #[error("the item of key {0} changed during every attempt to read it: try again")]
    Contended(u64),
    /// A chain of buckets is invalid: a peer with write access to the region has damaged it.
    #[error(
        "the chain of main bucket {bucket} is damaged because a writer of the region corrupted the layout; restore the \
         table"
    )]
    Damaged {
        /// The main bucket.
        bucket: u32,
    },
}
