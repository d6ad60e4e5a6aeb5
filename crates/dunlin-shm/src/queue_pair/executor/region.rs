//! The peer's regions that are mapped here.

use std::ptr::NonNull;
use std::sync::Arc;

use dunlin_verbs::{Access, RemoteAddress};

use crate::mapping::Mapping;

/// A region of the peer, mapped here.
#[derive(Debug)]
pub(crate) struct PeerRegion {
    pub(super) key: u32,
    access: Access,
    base: u64,
    length: u64,
    start: NonNull<u8>,
    _mapping: Arc<Mapping>,
}

// SAFETY: `start` is the start of the mapping, which may move between threads and which the value keeps.
unsafe impl Send for PeerRegion {}

impl PeerRegion {
    pub(crate) fn new(
        key: u32,
        access: Access,
        base: u64,
        length: u64,
        mapping: Arc<Mapping>,
    ) -> Self {
        Self {
            key,
            access,
            base,
            length,
            start: mapping.start(),
            _mapping: mapping,
        }
    }

    /// The place of `length` bytes, when they are within the region and `access` was granted.
    #[inline(always)]
    pub(super) fn place(
        &self,
        remote: &RemoteAddress,
        length: u64,
        access: Access,
    ) -> Option<*mut u8> {
        let offset = remote.address.wrapping_sub(self.base);
        if !self.access.contains(access) || offset > self.length || length > self.length - offset {
            return None;
        }
        // SAFETY: the offset is within the mapping.
        Some(unsafe { self.start.as_ptr().add(offset as usize) })
    }
}
