//! The table of a device's regions by key.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, RwLock};

use dunlin_verbs::{Access, VerbsError};

use super::region::RegionCore;
use crate::sync::{lock, random_u32, read, write};

/// Number of bits of a key that are its index; the rest are random.
const INDEX_BITS: u32 = 16;
/// Maximum number of regions.
pub(crate) const MAX_REGIONS: usize = 1 << INDEX_BITS;

/// See the module.
#[derive(Debug)]
pub(crate) struct RegionTable {
    slots: RwLock<Vec<Option<Arc<RegionCore>>>>,
    free: Mutex<Free>,
    max_regions: usize,
    max_bytes: usize,
}

#[derive(Debug)]
struct Free {
    /// Indices that were freed, oldest first.
    indices: VecDeque<u32>,
    bytes: usize,
}

fn limit(resource: &'static str, asked: usize, available: usize, limit: usize) -> VerbsError {
    VerbsError::Limit {
        resource,
        asked,
        available,
        limit,
    }
}

impl RegionTable {
    pub(crate) fn new(max_regions: usize, max_bytes: usize) -> Self {
        Self {
            slots: RwLock::new(Vec::new()),
            free: Mutex::new(Free {
                indices: VecDeque::new(),
                bytes: 0,
            }),
            max_regions,
            max_bytes,
        }
    }

    /// Takes `bytes` from the budget, and creates a region under a new key.
    pub(crate) fn insert(
        &self,
        bytes: usize,
        make: impl FnOnce(u32) -> Result<RegionCore, VerbsError>,
    ) -> Result<Arc<RegionCore>, VerbsError> {
        let secret = random_u32()?;
        let mut free = lock(&self.free);
        let left = self.max_bytes - free.bytes;
        if bytes > left {
            return Err(limit("max_registered_bytes", bytes, left, self.max_bytes));
        }
        let mut slots = write(&self.slots);
        let index = match free.indices.pop_front() {
            Some(index) => index,
            None if slots.len() < self.max_regions => {
                slots.push(None);
                slots.len() as u32 - 1
            }
            None => return Err(limit("max_regions", 1, 0, self.max_regions)),
        };
        match make(secret << INDEX_BITS | index) {
            Ok(region) => {
                let region = Arc::new(region);
                slots[index as usize] = Some(Arc::clone(&region));
                free.bytes += bytes;
                Ok(region)
            }
            Err(error) => {
                free.indices.push_front(index);
                Err(error)
            }
        }
    }

    /// Ends a registration: when this returns, no peer's access is in progress, and none will begin.
    pub(crate) fn remove(&self, region: &RegionCore) {
        let index = region.grant.key % MAX_REGIONS as u32;
        region.end();
        let gone = write(&self.slots)[index as usize].take();
        let mut free = lock(&self.free);
        free.indices.push_back(index);
        free.bytes -= region.reserved;
        drop(free);
        drop(gone);
    }

    /// The region whose key grants `access` to `length` bytes from `address` within a protection domain, and the offset
    /// in it.
    #[inline]
    pub(crate) fn find(
        &self,
        domain: u64,
        key: u32,
        access: Access,
        address: u64,
        length: u32,
    ) -> Option<(Arc<RegionCore>, usize)> {
        let slots = read(&self.slots);
        let region = slots.get(key as usize % MAX_REGIONS)?.as_ref()?;
        let grant = region.grant;
        if grant.key != key || grant.domain != domain || !grant.access.contains(access) {
            return None;
        }
        let offset = region.offset_of(address, length)?;
        Some((Arc::clone(region), offset))
    }
}
