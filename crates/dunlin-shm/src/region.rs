//! Registered memory.

use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;

use dunlin_verbs::{
    Access, LocalKey, Memory, PageKind, Region, RemoteAddress, RemoteKey, VerbsError,
};
use rustix::mm::Advice;

use crate::core::{random_u64, Core};
use crate::device::Handle;
use crate::mapping::{create_file, seal, system, Mapping, HUGE_PAGE_BYTES, PAGE_BYTES};

/// A registered region; clones name the same registration.
#[derive(Clone, Debug)]
pub struct ShmRegion {
    handle: Arc<RegionHandle>,
}

/// Ends the registration when the last user handle is dropped; work requests hold only the [`RegionCore`].
#[derive(Debug)]
struct RegionHandle {
    region: Arc<RegionCore>,
    device: Arc<Handle>,
}

/// The memory and the access granted to it.
#[derive(Debug)]
pub(crate) struct RegionCore {
    core: Arc<Core>,
    pub(crate) domain: u64,
    pub(crate) memory: Memory,
    pub(crate) file: Option<Arc<OwnedFd>>,
    /// Shared by all registrations of the memory; the last one to end releases it.
    mapping: Option<Arc<Mapping>>,
    pub(crate) access: Access,
    pub(crate) key: u32,
    pub(crate) base: u64,
    page_kind: PageKind,
    /// Shared like the mapping: memory that is registered several times counts once.
    reserved: Arc<Reserved>,
    ended: AtomicBool,
    /// Number of copies in progress in memory that the caller owns and may free when the registration has ended.
    in_use: AtomicUsize,
}

impl RegionCore {
    /// Whether the registration has ended.
    #[inline(always)]
    pub(crate) fn ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Begins a copy in a region that a posted request names; `false` if the registration has ended. The device's own
    /// memory lives as long as this value, so only copies in the caller's memory are counted.
    #[inline(always)]
    pub(crate) fn begin_use(&self) -> bool {
        if self.file.is_some() {
            return !self.ended();
        }
        self.in_use.fetch_add(1, Ordering::SeqCst);
        if self.ended.load(Ordering::SeqCst) {
            self.end_use();
            return false;
        }
        true
    }

    /// Ends a copy.
    #[inline(always)]
    pub(crate) fn end_use(&self) {
        if self.file.is_none() {
            self.in_use.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Bytes taken from the device's budget of registered memory, until this is dropped.
#[derive(Debug)]
struct Reserved {
    core: Arc<Core>,
    bytes: usize,
}

impl Reserved {
    fn take(core: &Arc<Core>, bytes: usize) -> Result<Arc<Self>, VerbsError> {
        core.reserve_bytes(bytes)?;
        Ok(Arc::new(Self {
            core: Arc::clone(core),
            bytes,
        }))
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if self.core.made_in.is_current() {
            self.core.release_bytes(self.bytes);
        }
    }
}

impl Drop for RegionHandle {
    fn drop(&mut self) {
        let region = &self.region;
        if !region.core.made_in.is_current() {
            return;
        }
        region.ended.store(true, Ordering::SeqCst);
        region.core.table.revoke(region.key);
        region.core.remove_region(region.key);
        while region.in_use.load(Ordering::SeqCst) > 0 {
            std::thread::yield_now();
        }
    }
}

/// Whether the kernel merges pages of shared memory into huge ones on request.
pub(crate) fn transparent_pages() -> bool {
    std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
        .is_ok_and(|text| !text.contains("[never]") && !text.contains("[deny]"))
}

/// Whether reserved huge pages are free.
pub(crate) fn huge_pages() -> bool {
    std::fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")
        .is_ok_and(|text| text.trim().parse::<u64>().is_ok_and(|count| count > 0))
}

fn map_pages(length: usize, huge: bool) -> Result<(OwnedFd, Mapping, PageKind), VerbsError> {
    if huge && length >= HUGE_PAGE_BYTES && huge_pages() {
        let bytes = length.next_multiple_of(HUGE_PAGE_BYTES);
        let huge = create_file("dunlin-shm-region", bytes, true).and_then(|file| {
            let mapping = Mapping::shared(file.as_fd(), bytes, true)?;
            Ok((file, mapping))
        });
        if let Ok((file, mapping)) = huge {
            return Ok((file, mapping, PageKind::Huge));
        }
    }
    let bytes = length.next_multiple_of(PAGE_BYTES);
    let file = create_file("dunlin-shm-region", bytes, false)
        .map_err(system("memfd_create for a region"))?;
    let mapping = Mapping::shared(file.as_fd(), bytes, true).map_err(system("mmap of a region"))?;
    let mut kind = PageKind::Base;
    if huge
        && bytes >= HUGE_PAGE_BYTES
        && transparent_pages()
        && mapping.advise(Advice::LinuxHugepage).is_ok()
    {
        kind = PageKind::Transparent;
    }
    // Registered memory must be present: a page that could not be allocated later would raise SIGBUS.
    mapping
        .advise(Advice::LinuxPopulateWrite)
        .map_err(system("allocation of a region's pages"))?;
    Ok((file, mapping, kind))
}

impl ShmRegion {
    pub(crate) fn allocate(
        device: &Arc<Handle>,
        domain: u64,
        length: usize,
        access: Access,
    ) -> Result<Self, VerbsError> {
        check_length(length)?;
        let core = device.core();
        let reserved = Reserved::take(core, length)?;
        let (file, mapping, page_kind) = map_pages(length, core.config.huge_pages)?;
        // A region that no peer may write is sealed: our own mapping is the last writable one.
        let writable = access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
        seal(file.as_fd(), !writable).map_err(system("sealing a region"))?;
        let mapping = match writable && page_kind != PageKind::Huge {
            true => mapping.give_back_from(0),
            false => mapping,
        };
        // SAFETY: the mapping is page-aligned, at least `length` bytes, and lives in the same struct as the window.
        let memory = unsafe { Memory::new(mapping.start(), length) };
        Self::register(
            device,
            (domain, access, page_kind),
            (memory, reserved),
            Some((Arc::new(file), Arc::new(mapping))),
        )
    }

    /// Registers memory that the device allocated for `region` a second time, with this access, which must be part of
    /// the region's: its file is sealed accordingly.
    pub(crate) fn again(
        device: &Arc<Handle>,
        domain: u64,
        region: &Self,
        access: Access,
    ) -> Result<Self, VerbsError> {
        let of = &region.handle.region;
        let (Some(file), Some(mapping)) = (&of.file, &of.mapping) else {
            return Err(VerbsError::Unsupported {
                device: device.core().attributes.name.clone(),
                what: "registering memory again that it did not allocate".to_owned(),
            });
        };
        // SAFETY: the same window; the mapping lives in the same struct as it.
        let memory = unsafe { Memory::new(mapping.start(), of.memory.len()) };
        let shared = (Arc::clone(file), Arc::clone(mapping));
        Self::register(
            device,
            (domain, of.access & access, of.page_kind),
            (memory, Arc::clone(&of.reserved)),
            Some(shared),
        )
    }

    /// Registers the caller's memory, for local use.
    ///
    /// # Safety
    /// As for [`dunlin_verbs::Device::register_raw`].
    pub(crate) unsafe fn raw(
        device: &Arc<Handle>,
        domain: u64,
        start: NonNull<u8>,
        length: usize,
        access: Access,
    ) -> Result<Self, VerbsError> {
        check_length(length)?;
        if access.is_remote() {
            return Err(VerbsError::Unsupported {
                device: device.core().attributes.name.clone(),
                what: "remote access to memory that it did not allocate".to_owned(),
            });
        }
        if start.as_ptr() as usize % 8 != 0 {
            return Err(VerbsError::Invalid {
                argument: "start",
                why: "must be aligned to 8 bytes".to_owned(),
            });
        }
        let reserved = Reserved::take(device.core(), length)?;
        // SAFETY: aligned as checked; valid for as long as the region lives by the caller's promise.
        let memory = unsafe { Memory::new(start, length) };
        let granted = (domain, access, PageKind::Base);
        Self::register(device, granted, (memory, reserved), None)
    }

    fn register(
        device: &Arc<Handle>,
        (domain, access, page_kind): (u64, Access, PageKind),
        (memory, reserved): (Memory, Arc<Reserved>),
        shared: Option<(Arc<OwnedFd>, Arc<Mapping>)>,
    ) -> Result<Self, VerbsError> {
        let core = device.core();
        let (file, mapping) = match shared {
            Some((file, mapping)) => (Some(file), Some(mapping)),
            None => (None, None),
        };
        // Not the address in this process, which a peer need not learn.
        let base = random_u64() & 0x3fff_ffff_f000;
        let region = core.insert_region(|key| {
            Arc::new(RegionCore {
                core: Arc::clone(core),
                domain,
                memory,
                file,
                mapping,
                access,
                key,
                base,
                page_kind,
                reserved,
                ended: AtomicBool::new(false),
                in_use: AtomicUsize::new(0),
            })
        })?;
        if access.is_remote() {
            core.table.publish(region.key);
        }
        Ok(Self {
            handle: Arc::new(RegionHandle {
                region,
                device: Arc::clone(device),
            }),
        })
    }

    pub(crate) fn device(&self) -> &Arc<Handle> {
        &self.handle.device
    }

    #[inline(always)]
    pub(crate) fn region(&self) -> &Arc<RegionCore> {
        &self.handle.region
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

// SAFETY: the window belongs to a mapping that the handle keeps alive, and is created once.
#[allow(unsafe_code)]
unsafe impl Region for ShmRegion {
    #[inline(always)]
    fn memory(&self) -> &Memory {
        &self.handle.region.memory
    }

    fn access(&self) -> Access {
        self.handle.region.access
    }

    fn local_key(&self) -> LocalKey {
        LocalKey(self.handle.region.key)
    }

    fn remote(&self) -> RemoteAddress {
        RemoteAddress {
            address: self.handle.region.base,
            key: RemoteKey(self.handle.region.key),
        }
    }

    fn page_kind(&self) -> PageKind {
        self.handle.region.page_kind
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::mapping::map_foreign;
    use crate::{ShmConfig, ShmDevice};
    use dunlin_verbs::Device;

    const BYTES: usize = 1 << 20;

    fn pages_of(file: &OwnedFd) -> u64 {
        rustix::fs::fstat(file).unwrap().st_blocks as u64 * 512 / PAGE_BYTES as u64
    }

    /// A peer that keeps its mapping: a grant lasts as long as the mapping, and the memory of all registrations as long
    /// as one of them.
    #[test]
    fn a_gone_peer_keeps_its_mapping_and_no_memory_of_ours() {
        let device = ShmDevice::open(ShmConfig::default()).unwrap();
        assert!(device.attributes().grants_are_mappings);
        let [domain, other] = [(); 2].map(|()| device.create_protection_domain().unwrap());
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let served = device.allocate_region(&domain, BYTES, access).unwrap();
        let granted = device.register_again(&other, &served, access).unwrap();
        let file = Arc::clone(granted.region().file.as_ref().unwrap());
        let peer = map_foreign(file.as_fd(), BYTES, true).unwrap();
        peer.u64(0).store(1, Ordering::SeqCst);
        drop(granted);
        // It can also read, although it was granted only write access, and nothing takes that away.
        served.memory().atomic_u64(8).store(2, Ordering::SeqCst);
        assert_eq!(peer.u64(8).load(Ordering::SeqCst), 2);
        peer.u64(0).store(3, Ordering::SeqCst);
        assert_eq!(served.memory().atomic_u64(0).load(Ordering::SeqCst), 3);
        assert_eq!(pages_of(&file), (BYTES / PAGE_BYTES) as u64);
        drop(served);
        assert_eq!(pages_of(&file), 0, "the peer pins our memory");
        assert_eq!(peer.u64(0).load(Ordering::SeqCst), 0);
        peer.u64(0).store(4, Ordering::SeqCst);
        assert_eq!(pages_of(&file), 1, "its own");
    }

    /// Memory that no peer may write is sealed, and stays with those who read it.
    #[test]
    fn what_is_sealed_against_writing_is_not_given_back() {
        let device = ShmDevice::open(ShmConfig::default()).unwrap();
        let domain = device.create_protection_domain().unwrap();
        let region = device
            .allocate_region(&domain, BYTES, Access::REMOTE_READ)
            .unwrap();
        region.memory().write(0, b"what was to be read");
        let file = Arc::clone(region.region().file.as_ref().unwrap());
        let peer = map_foreign(file.as_fd(), BYTES, false).unwrap();
        drop(region);
        assert_eq!(pages_of(&file), (BYTES / PAGE_BYTES) as u64);
        assert_ne!(peer.u64(0).load(Ordering::SeqCst), 0);
    }
}
