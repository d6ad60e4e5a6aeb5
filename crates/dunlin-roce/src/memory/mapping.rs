//! Pages for regions.

use std::ptr::NonNull;

use dunlin_verbs::PageKind;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Regions of this size and more ask for huge pages.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Anonymous pages of this process; unmapped when dropped.
#[derive(Debug)]
pub(super) struct Mapping {
    start: NonNull<u8>,
    length: usize,
    pub(super) page_kind: PageKind,
}

// SAFETY: a mapping belongs to the process, not to a thread, and all access goes through raw copies and atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps zeroed pages for `length` bytes.
    pub(super) fn new(length: usize) -> Result<Self, Errno> {
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no memory of ours.
        let start = unsafe {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), length, protection, MapFlags::PRIVATE)
        }?;
        let start = NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
        let mut mapping = Self {
            start,
            length,
            page_kind: PageKind::Base,
        };
        if length >= HUGE_PAGE_BYTES && mapping.advise_huge() {
            mapping.page_kind = PageKind::Transparent;
        }
        Ok(mapping)
    }

    fn advise_huge(&self) -> bool {
        // SAFETY: the range is this mapping, and the advice keeps its contents.
        unsafe {
            rustix::mm::madvise(
                self.start.as_ptr().cast(),
                self.length,
                Advice::LinuxHugepage,
            )
            .is_ok()
        }
    }

    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `new` and nothing refers to it any more.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.length) };
    }
}
