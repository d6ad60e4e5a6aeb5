//! Registered memory, as seen by its owner.

use std::ptr::NonNull;
use std::sync::Arc;

use dunlin_verbs::{
    Access, AnyRegion, LocalKey, Memory, PageKind, Region, RemoteAddress, RemoteKey, VerbsError,
};
use rustix::io::Errno;

use crate::core::Core;
use crate::memory::{Grant, RegionCore};
use crate::sync::system;

/// A registered region; clones name the same registration.
#[derive(Clone, Debug)]
pub struct RoceRegion {
    handle: Arc<Handle>,
}

/// Ends the registration when the owner's last handle is dropped; work requests hold only the [`RegionCore`].
#[derive(Debug)]
struct Handle {
    region: Arc<RegionCore>,
    core: Arc<Core>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.core.made_in.is_current() {
            self.core.regions.remove(&self.region);
        }
    }
}

fn check_length(length: usize) -> Result<(), VerbsError> {
    if length == 0 || length > isize::MAX as usize / 2 {
        return Err(VerbsError::Invalid {
            argument: "length",
            why: format!("cannot register {length} bytes"),
        });
    }
    Ok(())
}

impl RoceRegion {
    fn insert(
        core: &Arc<Core>,
        bytes: usize,
        grant: Grant,
        make: impl FnOnce(Grant) -> Result<RegionCore, VerbsError>,
    ) -> Result<Self, VerbsError> {
        let insert = |key| make(Grant { key, ..grant });
        let region = core.regions.insert(bytes, insert)?;
        Ok(Self {
            handle: Arc::new(Handle {
                region,
                core: Arc::clone(core),
            }),
        })
    }

    pub(crate) fn allocate(
        core: &Arc<Core>,
        domain: u64,
        length: usize,
        access: Access,
    ) -> Result<Self, VerbsError> {
        check_length(length)?;
        let grant = Grant {
            domain,
            access,
            key: 0,
        };
        Self::insert(core, length, grant, |grant| {
            let huge = core.config.huge_pages;
            RegionCore::allocate(grant, length, huge).map_err(system::<Errno>("mmap of a region"))
        })
    }

    /// # Safety
    /// As for [`dunlin_verbs::Device::register_raw`].
    #[allow(unsafe_code)]
    pub(crate) unsafe fn raw(
        core: &Arc<Core>,
        domain: u64,
        start: NonNull<u8>,
        length: usize,
        access: Access,
    ) -> Result<Self, VerbsError> {
        check_length(length)?;
        if start.as_ptr() as usize % 8 != 0 {
            return Err(VerbsError::Invalid {
                argument: "start",
                why: "registered memory must be aligned to 8 bytes".to_owned(),
            });
        }
        let grant = Grant {
            domain,
            access,
            key: 0,
        };
        Self::insert(core, length, grant, |grant| {
            // SAFETY: the caller's promise; the registration ends when the last handle does, before the memory.
            Ok(unsafe { RegionCore::raw(grant, start, length) })
        })
    }

    /// Registers the memory of a region of another device.
    pub(crate) fn adopt(
        core: &Arc<Core>,
        domain: u64,
        region: &Arc<dyn AnyRegion>,
        access: Access,
    ) -> Result<Self, VerbsError> {
        let grant = Grant {
            domain,
            access: region.access() & access,
            key: 0,
        };
        Self::insert(core, 0, grant, |grant| {
            Ok(RegionCore::adopt(grant, Arc::clone(region)))
        })
    }

    /// Registers the memory of `self` a second time, in `domain`, with this access, which is part of its own.
    pub(crate) fn again(
        &self,
        core: &Arc<Core>,
        domain: u64,
        access: Access,
    ) -> Result<Self, VerbsError> {
        if !Arc::ptr_eq(core, &self.handle.core) {
            return Err(VerbsError::Invalid {
                argument: "region",
                why: "belongs to another device".to_owned(),
            });
        }
        let grant = Grant {
            domain,
            access: Region::access(self) & access,
            key: 0,
        };
        Self::insert(core, 0, grant, |grant| {
            self.handle
                .region
                .again(grant)
                .ok_or_else(|| VerbsError::Invalid {
                    argument: "region",
                    why: "its memory belongs to the caller: register that memory again instead"
                        .to_owned(),
                })
        })
    }

    #[inline]
    pub(crate) fn region(&self) -> &Arc<RegionCore> {
        &self.handle.region
    }
}

// SAFETY: the window belongs to an allocation or to another region, which the handle keeps alive, and is created once.
#[allow(unsafe_code)]
unsafe impl Region for RoceRegion {
    fn memory(&self) -> &Memory {
        self.region().memory()
    }

    fn access(&self) -> Access {
        self.region().grant.access
    }

    fn local_key(&self) -> LocalKey {
        LocalKey(self.region().grant.key)
    }

    fn remote(&self) -> RemoteAddress {
        RemoteAddress {
            address: self.region().base(),
            key: RemoteKey(self.region().grant.key),
        }
    }

    fn page_kind(&self) -> PageKind {
        self.region().page_kind()
    }
}
