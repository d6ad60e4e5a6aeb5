//! A registration: memory, what was granted on it, and until when.

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
    /// Local and remote key alike.
    pub(crate) key: u32,
}

/// Whose the memory is.
#[derive(Clone, Debug)]
enum Owner {
    /// The device's own pages.
    Device(Arc<Pages>),
    /// Of a region of another device.
    Adopted(Arc<dyn AnyRegion>),
    /// The caller's, who keeps it for as long as the registration is in force.
    Caller,
}

/// The memory of a registration. Work requests hold it; the registration itself ends with [`RegionCore::end`].
#[derive(Debug)]
pub(crate) struct RegionCore {
    pub(crate) grant: Grant,
    memory: Memory,
    /// What the memory lives as long as; shared by all registrations of it. `None`: the registration is not in force
    /// any more. Held for reading by every access, so that none goes on after the end: memory of the caller may be
    /// freed then.
    owner: RwLock<Option<Owner>>,
    /// Bytes taken out of the device's budget.
    pub(crate) reserved: usize,
}

impl RegionCore {
    /// On pages of the device's own.
    pub(crate) fn allocate(grant: Grant, length: usize, huge: bool) -> Result<Self, Errno> {
        let pinned = false;
        let pages = Pages::allocate(length, PagesWanted { huge, pinned })?;
        let start = pages.start();
        let owner = Owner::Device(Arc::new(pages));
        // SAFETY: the pages are aligned and have at least `length` bytes; `owner` keeps them.
        Ok(unsafe { Self::on(grant, start, length, owner, length) })
    }

    /// On the memory of a region of another device.
    pub(crate) fn adopt(grant: Grant, region: Arc<dyn AnyRegion>) -> Self {
        // Asked once: a region is whatever its type makes of it, and one window is as long as it says.
        let memory = region.memory();
        let (start, length) = (memory.start(), memory.len());
        // SAFETY: the region's own window has this memory, to which nobody makes references; `owner` keeps it.
        unsafe { Self::on(grant, start, length, Owner::Adopted(region), 0) }
    }

    /// On the pages of another registration; `None` when those are the caller's, or it has ended.
    pub(crate) fn again(&self, grant: Grant) -> Option<Self> {
        let owner = match &*read(&self.owner) {
            None | Some(Owner::Caller) => return None,
            Some(owner) => owner.clone(),
        };
        let (start, length) = (self.memory.start(), self.memory.len());
        // SAFETY: the window of `self`, and `owner` keeps the memory.
        Some(unsafe { Self::on(grant, start, length, owner, 0) })
    }

    /// # Safety
    /// `start` is on 8 bytes, with `length` bytes behind it which live as long as `owner`, or until
    /// [`RegionCore::end`] has returned where those are the caller's, and to which nobody makes references.
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

    /// On memory of the caller.
    ///
    /// # Safety
    /// As for [`dunlin_verbs::Device::register_raw`], until [`RegionCore::end`] has returned; `start` on 8 bytes.
    pub(crate) unsafe fn raw(grant: Grant, start: NonNull<u8>, length: usize) -> Self {
        // SAFETY: the caller's promise is the same.
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

    /// The address of byte 0, as peers count it.
    pub(crate) fn base(&self) -> u64 {
        self.memory.start().as_ptr() as u64
    }

    /// Ends the registration: waits for accesses under way, and lets no other begin. Then the memory is given back,
    /// whatever work requests still name it: with a region of another device the rights of that end as well.
    pub(crate) fn end(&self) {
        let owner = write(&self.owner).take();
        drop(owner);
    }

    /// Does something with the memory while the registration is in force; `None` when it is not, or the range is not
    /// inside.
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

    /// The offset of an address of ours, when the range from there is inside.
    #[inline]
    pub(crate) fn offset_of(&self, address: u64, length: u32) -> Option<usize> {
        let offset = usize::try_from(address.checked_sub(self.base())?).ok()?;
        self.memory
            .contains(offset, length as usize)
            .then_some(offset)
    }

    /// Writes so that the bytes become visible in ascending order; `false` when the registration has ended.
    #[inline]
    pub(crate) fn write_in_order(&self, offset: usize, bytes: &[u8]) -> bool {
        let written = self.access(offset, bytes.len(), |memory| {
            // SAFETY: `access` has checked that the range is inside the window; `bytes` is memory of ours and cannot
            // overlap it.
            unsafe {
                let target = memory.start().as_ptr().add(offset);
                copy_in_order(bytes.as_ptr(), target, bytes.len());
            }
        });
        written.is_some()
    }
}
