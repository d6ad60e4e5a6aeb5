//! The peer's regions that are mapped here.

use std::ptr::NonNull;
use std::sync::Arc;

use dunlin_verbs::{Access, RemoteAddress};

use crate::mapping::Mapping;
use crate::region_table::key_index;

/// A region of the peer, mapped here.
#[derive(Debug)]
pub(crate) struct PeerRegion {
    pub(super) key: u32,
    access: Access,
    base: u64,
    length: u64,
    start: NonNull<u8>,
    mapping: Arc<Mapping>,
}

// SAFETY: `start` is the start of the mapping, which may move between threads and which the value keeps alive.
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
            mapping,
        }
    }

    /// The mapping that keeps it alive.
    pub(super) fn mapping(&self) -> Arc<Mapping> {
        Arc::clone(&self.mapping)
    }

    /// The location of `length` bytes, if they are within the region and `access` was granted.
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

/// The regions of one peer that are mapped here, by key. The table is the smallest that has a separate place for each:
/// a connection has two or three regions, and its peer thousands.
#[derive(Debug, Default)]
pub(super) struct PeerRegions {
    /// The number of places is zero or a power of two; a region's place is given by the lowest bits of its key, which
    /// are unique among the regions of a device.
    places: Vec<Option<PeerRegion>>,
}

impl PeerRegions {
    /// The region with this key.
    #[inline(always)]
    pub(super) fn get(&self, key: u32) -> Option<&PeerRegion> {
        // Without places the mask is all ones.
        let place = key as usize & self.places.len().wrapping_sub(1);
        match self.places.get(place) {
            Some(Some(region)) if region.key == key => Some(region),
            _ => None,
        }
    }

    /// Adds a region, replacing one that had its index before.
    pub(super) fn insert(&mut self, region: PeerRegion) {
        let index = key_index(region.key);
        self.retain(|other| key_index(other.key) != index);
        let all: Vec<PeerRegion> = self.places.drain(..).flatten().chain([region]).collect();
        let mut count = all.len().next_power_of_two();
        // All keys differ in their index, so this ends at the latest with as many places as there are indices.
        while !are_apart(&all, count) {
            count *= 2;
        }
        self.places.resize_with(count, || None);
        for region in all {
            let place = region.key as usize & (count - 1);
            self.places[place] = Some(region);
        }
    }

    pub(super) fn retain(&mut self, keep: impl Fn(&PeerRegion) -> bool) {
        for place in &mut self.places {
            if place.as_ref().is_some_and(|region| !keep(region)) {
                *place = None;
            }
        }
    }

    pub(super) fn clear(&mut self) {
        self.places.clear();
    }
}

/// Whether each region has a separate place among `count`.
fn are_apart(regions: &[PeerRegion], count: usize) -> bool {
    let mut taken = vec![false; count];
    regions.iter().all(|region| {
        let place = &mut taken[region.key as usize & (count - 1)];
        !std::mem::replace(place, true)
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::mapping::create_sealed;
    use crate::region_table::KEY_INDEX_BITS;

    #[test]
    fn regions_are_found_by_their_keys_alone() {
        let (_, mapping) = create_sealed("dunlin-shm-test", 4096, false).unwrap();
        let mapping = Arc::new(mapping);
        let region = |key| PeerRegion::new(key, Access::all(), 0, 4096, Arc::clone(&mapping));
        let mut regions = PeerRegions::default();
        assert!(regions.get(0).is_none() && regions.get(u32::MAX).is_none());
        let of = |index: u32, users: u32| users << KEY_INDEX_BITS | index;
        // The last two differ in their highest bit only.
        let keys = [
            of(5, 1),
            of(6, 1),
            of(4100, 1),
            of(5 + 8192, 2),
            of(6 + 8192, 9),
        ];
        for key in keys {
            regions.insert(region(key));
        }
        for key in keys {
            assert_eq!(regions.get(key).map(|region| region.key), Some(key));
        }
        assert!(regions.get(of(5, 3)).is_none() && regions.get(of(7, 1)).is_none());
        // An index has one region.
        regions.insert(region(of(5, 3)));
        assert!(regions.get(of(5, 1)).is_none() && regions.get(of(5, 3)).is_some());
        regions.retain(|region| region.key != keys[1]);
        assert!(regions.get(keys[1]).is_none() && regions.get(keys[4]).is_some());
        // A connection that maps few has a small table, whatever the numbers are.
        let mut few = PeerRegions::default();
        few.insert(region(of(4001, 1)));
        few.insert(region(of(4002, 1)));
        assert_eq!(few.places.len(), 2);
    }
}
