//! Registered memory as accessed by the peers of logical queue pairs: by keys of this device, which it checks itself.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, RwLock};

use dunlin_verbs::{Access, LocalKey, Memory, PageKind, Region, RemoteAddress, RemoteKey};

use super::sync::{read, write};

/// What peers may do with a region.
#[derive(Clone, Debug)]
pub(crate) struct Grant<R> {
    pub(crate) region: R,
    pub(crate) access: Access,
    pub(crate) domain: u64,
    base: u64,
    adopted: bool,
}

/// The target of an access.
#[derive(Clone, Debug)]
pub(crate) struct Found<R> {
    pub(crate) region: R,
    pub(crate) offset: usize,
    /// Whether it belongs to another protection domain of the underlying device, so that the queue pairs here cannot
    /// send from it.
    pub(crate) adopted: bool,
}

/// Regions by their keys.
#[derive(Debug)]
pub(crate) struct RegionTable<R> {
    grants: RwLock<HashMap<u32, Grant<R>>>,
    next: AtomicU32,
}

impl<R: Region> RegionTable<R> {
    pub(crate) fn new() -> Self {
        Self {
            grants: RwLock::new(HashMap::new()),
            next: AtomicU32::new(1),
        }
    }

    fn insert(&self, grant: Grant<R>) -> u32 {
        let mut grants = write(&self.grants);
        loop {
            let key = spread(self.next.fetch_add(1, Ordering::Relaxed));
            if let std::collections::hash_map::Entry::Vacant(entry) = grants.entry(key) {
                entry.insert(grant);
                return key;
            }
        }
    }

    /// The region of a key and the offset at which an access of this length begins, if the key grants it to the domain.
    pub(crate) fn find(
        &self,
        remote: RemoteAddress,
        bytes: usize,
        access: Access,
        domain: u64,
    ) -> Option<Found<R>> {
        let grants = read(&self.grants);
        let grant = grants.get(&remote.key.0)?;
        let offset = usize::try_from(remote.address.wrapping_sub(grant.base)).ok()?;
        let granted = grant.domain == domain
            && grant.access.contains(access)
            && grant.region.memory().contains(offset, bytes);
        granted.then(|| Found {
            region: grant.region.clone(),
            offset,
            adopted: grant.adopted,
        })
    }
}

/// A bijection that gives neighbours keys which differ in many bits.
fn spread(number: u32) -> u32 {
    let mut key = number.wrapping_mul(0x9e37_79b1);
    key ^= key >> 15;
    key = key.wrapping_mul(0x85eb_ca6b);
    key ^ key >> 13
}

#[derive(Debug)]
struct Handle<R: Region> {
    region: R,
    access: Access,
    domain: u64,
    adopted: bool,
    key: u32,
    table: Arc<RegionTable<R>>,
}

impl<R: Region> Drop for Handle<R> {
    fn drop(&mut self) {
        let grant = write(&self.table.grants).remove(&self.key);
        // The underlying device is called when nothing is locked.
        drop(grant);
    }
}

/// A region of a [`FlorDevice`](super::FlorDevice); clones name the same registration.
#[derive(Clone, Debug)]
pub struct FlorRegion<R: Region> {
    handle: Arc<Handle<R>>,
}

impl<R: Region> FlorRegion<R> {
    pub(crate) fn new(table: &Arc<RegionTable<R>>, region: R, access: Access, domain: u64) -> Self {
        Self::of(table, region, (access, domain), false)
    }

    /// Makes a region whose memory belongs to another protection domain of the underlying device.
    pub(crate) fn adopt(
        table: &Arc<RegionTable<R>>,
        region: R,
        access: Access,
        domain: u64,
    ) -> Self {
        Self::of(table, region, (access, domain), true)
    }

    fn of(
        table: &Arc<RegionTable<R>>,
        region: R,
        (access, domain): (Access, u64),
        adopted: bool,
    ) -> Self {
        let base = region.remote().address;
        let key = table.insert(Grant {
            region: region.clone(),
            access,
            domain,
            base,
            adopted,
        });
        Self {
            handle: Arc::new(Handle {
                region,
                access,
                domain,
                adopted,
                key,
                table: Arc::clone(table),
            }),
        }
    }

    pub(crate) fn inner(&self) -> &R {
        &self.handle.region
    }

    pub(crate) fn domain(&self) -> u64 {
        self.handle.domain
    }

    /// Whether underlying queue pairs cannot send from it, so that data to be sent must be copied first.
    pub(crate) fn is_adopted(&self) -> bool {
        self.handle.adopted
    }
}

/// The access that the underlying device has to allow: accesses by peers are executed by this device.
pub(crate) fn inner_access(access: Access) -> Access {
    access & Access::LOCAL_WRITE
}

// SAFETY: the window is that of the underlying region, which the handle keeps alive.
#[allow(unsafe_code)]
unsafe impl<R: Region> Region for FlorRegion<R> {
    fn memory(&self) -> &Memory {
        self.handle.region.memory()
    }

    fn access(&self) -> Access {
        self.handle.access
    }

    fn local_key(&self) -> LocalKey {
        LocalKey(self.handle.key)
    }

    fn remote(&self) -> RemoteAddress {
        RemoteAddress {
            address: self.handle.region.remote().address,
            key: RemoteKey(self.handle.key),
        }
    }

    fn page_kind(&self) -> PageKind {
        self.handle.region.page_kind()
    }
}
