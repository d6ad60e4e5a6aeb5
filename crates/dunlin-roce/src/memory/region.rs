//! A registration: its memory, the access granted, and its lifetime.

use std::ptr::NonNull;
use std::sync::{Arc, RwLock};

use dunlin_verbs::{copy_in_order, Access, AnyRegion, Memory, PageKind, Pages, PagesWanted};
use rustix::io::Errno;

use crate::sync::{read, write};

/// What a region grants, and to whom.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    pub(crate) domain: u64,
    pub(crate) access: Access,
    /// The key, both local and remote.
    pub(crate) key: u32,
}

/// The owner of the memory.
#[derive(Clone, Debug)]
enum Owner {
    /// The device's own pages.
    Device(Arc<Pages>),
    /// A region of another device.
    Adopted(Arc<dyn AnyRegion>),
    /// The caller, who keeps it valid for as long as the registration is in force.
    Caller,
}

/// The memory of a registration. Work requests hold it; the registration itself is ended by [`RegionCore::end`].
#[derive(Debug)]
pub(crate) struct RegionCore {
    pub(crate) grant: Grant,
    memory: Memory,
    /// Keeps the memory alive; shared by all registrations of it. `None`: the registration has ended. Every access
    /// holds the lock for reading, so that none continues after the end: the caller's memory may then be freed.
    owner: RwLock<Option<Owner>>,
    /// Number of bytes taken from the device's budget.
    pub(crate) reserved: usize,
}

impl RegionCore {
    /// Registers pages of the device's own.
    pub(crate) fn allocate(grant: Grant, length: usize, huge: bool) -> Result<Self, Errno> {
        let pinned = false;
        let pages = Pages::allocate(length, PagesWanted { huge, pinned })?;
        let start = pages.start();
        let owner = Owner::Device(Arc::new(pages));
        // SAFETY: the pages are aligned and have at least `length` bytes; `owner` keeps them alive.
        Ok(unsafe { Self::on(grant, start, length, owner, length) })
    }

    /// Registers the memory of a region of another device.
    pub(crate) fn adopt(grant: Grant, region: Arc<dyn AnyRegion>) -> Self {
        // Called once: a region is whatever its type makes of it, and one window is as long as it says.
        let memory = region.memory();
        let (start, length) = (memory.start(), memory.len());
        // SAFETY: the region's own window has this memory, to which nobody makes references; `owner` keeps it alive.
        unsafe { Self::on(grant, start, length, Owner::Adopted(region), 0) }
    }

    /// Registers the pages of another registration; `None` if those are the caller's, or if it has ended.
    pub(crate) fn again(&self, grant: Grant) -> Option<Self> {
        let owner = match &*read(&self.owner) {
            None | Some(Owner::Caller) => return None,
            Some(owner) => owner.clone(),
        };
        let (start, length) = (self.memory.start(), self.memory.len());
        // SAFETY: the window of `self`, and `owner` keeps the memory alive.
        Some(unsafe { Self::on(grant, start, length, owner, 0) })
    }

    /// # Safety
    /// `start` must be aligned to 8 bytes. The `length` bytes from there must live as long as `owner` or, if they are
    /// the caller's, until [`RegionCore::end`] has returned, and nobody may make references to them.
    unsafe fn on(
        grant: Grant,
        start: NonNull<u8>,
        length: usize,
        owner: Owner,
        reserved: usize,
    ) -> Self {
        // SAFETY: the caller's promise; `owner` is kept until the registration ends, and after that the memory is not
        // accessed any more.
        let memory = unsafe { Memory::new(start, length) };
        Self {
            grant,
            memory,
            owner: RwLock::new(Some(owner)),
            reserved,
        }
    }

    /// Registers the caller's memory.
    ///
    /// # Safety
    /// As for [`dunlin_verbs::Device::register_raw`], until [`RegionCore::end`] has returned; `start` must be aligned
    /// to 8 bytes.
    pub(crate) unsafe fn raw(grant: Grant, start: NonNull<u8>, length: usize) -> Self {
        // SAFETY: the caller makes the same promise.
        unsafe { Self::on(grant, start, length, Owner::Caller, length) }
    }

    /// The window for the region's owner.
    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    pub(crate) fn page_kind(&self) -> PageKind {
        match &*read(&self.owner) {
            Some(Owner::Device(pages)) => pages.kind(),
            Some(Owner::Adopted(region)) => region.page_kind(),
            Some(Owner::Caller) | None => PageKind::Base,
        }
    }

    /// The address of byte 0, as used by peers.
    pub(crate) fn base(&self) -> u64 {
        self.memory.start().as_ptr() as u64
    }

    /// Ends the registration: waits for accesses in progress, and allows no others. The memory is then released,
    /// whatever work requests still name it; this includes the hold on a region of another device.
    pub(crate) fn end(&self) {
        let owner = write(&self.owner).take();
        drop(owner);
    }

    /// Runs `action` on the memory while the registration is in force; `None` if it has ended, or the range is out of
    /// bounds.
    #[inline]
    pub(crate) fn access<T>(
        &self,
        offset: usize,
        length: usize,
        action: impl FnOnce(&Memory) -> T,
    ) -> Option<T> {
        let owner = read(&self.owner);
        (owner.is_some() && self.memory.contains(offset, length)).then(|| action(&self.memory))
    }

    /// The offset of a local address, if the range from there is in bounds.
    #[inline]
    pub(crate) fn offset_of(&self, address: u64, length: u32) -> Option<usize> {
        let offset = usize::try_from(address.checked_sub(self.base())?).ok()?;
        self.memory
            .contains(offset, length as usize)
            .then_some(offset)
    }

    /// Writes so that the bytes become visible in ascending order; `false` if the registration has ended.
    #[inline]
    pub(crate) fn write_in_order(&self, offset: usize, bytes: &[u8]) -> bool {
        let written = self.access(offset, bytes.len(), |memory| {
            // SAFETY: `access` has checked that the range is inside the window; `bytes` is private memory and cannot
            // overlap it.
            unsafe {
                let target = memory.start().as_ptr().add(offset);
                copy_in_order(bytes.as_ptr(), target, bytes.len());
            }
        });
        written.is_some()
    }
}
