//! The keys of a device's regions: one word per index in memory that peers map read-only.
//!
//! A word holds the remote key of the region that currently has the index, or zero. The initiator of a one-sided verb
//! compares it with the key of the request, so that a revoked key is detected without asking the owner.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::Arc;

use rustix::io::Errno;

use crate::mapping::{create_sealed, map_foreign, Mapping, PAGE_BYTES};

/// Number of bits of a key that are its index.
pub(crate) const KEY_INDEX_BITS: u32 = 14;
/// Maximum number of indices.
pub(crate) const KEY_INDICES: usize = 1 << KEY_INDEX_BITS;
const TABLE_BYTES: usize = KEY_INDICES * 4;
const _: () = assert!(TABLE_BYTES % PAGE_BYTES == 0);

/// The index part of a key.
#[inline(always)]
pub(crate) fn key_index(key: u32) -> usize {
    key as usize & (KEY_INDICES - 1)
}

/// Our own table.
#[derive(Debug)]
pub(crate) struct RegionTable {
    file: OwnedFd,
    mapping: Arc<Mapping>,
}

impl RegionTable {
    pub(crate) fn new() -> Result<Self, Errno> {
        let (file, mapping) = create_sealed("dunlin-shm-regions", TABLE_BYTES, true)?;
        Ok(Self {
            file,
            mapping: Arc::new(mapping),
        })
    }

    /// Publishes `key` at its index.
    pub(crate) fn publish(&self, key: u32) {
        self.mapping
            .u32(key_index(key) * 4)
            .store(key, Ordering::SeqCst);
    }

    /// Revokes `key`.
    pub(crate) fn revoke(&self, key: u32) {
        self.mapping
            .u32(key_index(key) * 4)
            .store(0, Ordering::SeqCst);
    }

    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// A peer's table, read-only.
#[derive(Clone, Debug)]
pub(crate) struct PeerTable(Arc<Mapping>);

impl PeerTable {
    pub(crate) fn map(file: BorrowedFd<'_>) -> Result<Self, Errno> {
        Ok(Self(Arc::new(map_foreign(file, TABLE_BYTES, false)?)))
    }

    /// Whether `key` is in force.
    #[inline(always)]
    pub(crate) fn holds(&self, key: u32) -> bool {
        self.0.u32(key_index(key) * 4).load(Ordering::Acquire) == key
    }
}
