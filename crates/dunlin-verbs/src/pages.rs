//! Memory for the regions of a device: reserved huge pages if possible, else 4 KiB pages that the kernel may merge,
//! else plain 4 KiB pages.

use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::mm::{madvise, mmap_anonymous, munmap, Advice, MapFlags, ProtFlags};

use crate::attributes::PageKind;
use crate::process::Generation;

const PAGE_BYTES: usize = 4096;
/// Size of a huge page on x86-64 and on AArch64 with 4 KiB pages.
const HUGE_PAGE_BYTES: usize = 2 << 20;
/// Longer requests are refused without asking the system.
const LONGEST: usize = isize::MAX as usize / 2;

/// The kind of pages to allocate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagesWanted {
    /// Use reserved huge pages where they fit and some are free.
    pub huge: bool,
    /// Populate all pages now, and do not share them with a child of fork(), which would take them away from a NIC by
    /// writing to them.
    pub pinned: bool,
}

/// Private zeroed memory; unmapped when dropped.
#[derive(Debug)]
pub struct Pages {
    made_in: Generation,
    mapping: NonNull<u8>,
    mapped: usize,
    start: NonNull<u8>,
    inherited: bool,
    kind: PageKind,
}

// SAFETY: a mapping belongs to the process, not to a thread; access goes through raw copies and atomics.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

/// Whether the kernel merges private pages on request.
fn transparent() -> bool {
    std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled")
        .is_ok_and(|text| !text.contains("[never]"))
}

/// Whether reserved huge pages are free.
fn huge() -> bool {
    std::fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")
        .is_ok_and(|text| text.trim().parse::<u64>().is_ok_and(|count| count > 0))
}

/// Returns the best kind of pages available now.
pub fn best_pages(huge_wanted: bool) -> PageKind {
    if huge_wanted && huge() {
        PageKind::Huge
    } else if transparent() {
        PageKind::Transparent
    } else {
        PageKind::Base
    }
}

fn map(bytes: usize, flags: MapFlags) -> Result<NonNull<u8>, Errno> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh mapping at an address that the kernel chooses does not touch existing memory.
    let start = unsafe {
        mmap_anonymous(
            std::ptr::null_mut(),
            bytes,
            protection,
            MapFlags::PRIVATE | flags,
        )
    }?;
    NonNull::new(start.cast()).ok_or(Errno::NOMEM)
}

impl Pages {
    /// Allocates at least `length` zeroed bytes, aligned to a page.
    ///
    /// # Errors
    /// The system's error, such as `ENOMEM`.
    pub fn allocate(length: usize, wanted: PagesWanted) -> Result<Self, Errno> {
        // No address space is this large, and below this limit no sum overflows.
        if length > LONGEST {
            return Err(Errno::NOMEM);
        }
        if wanted.huge && length >= HUGE_PAGE_BYTES && huge() {
            let mut flags = MapFlags::HUGETLB | MapFlags::HUGE_2MB;
            flags.set(MapFlags::POPULATE, wanted.pinned);
            let mapped = length.next_multiple_of(HUGE_PAGE_BYTES);
            if let Ok(mapping) = map(mapped, flags) {
                let mut pages = Self::of(mapping, mapped, mapping);
                pages.kind = PageKind::Huge;
                pages.inherited = !(wanted.pinned && pages.advise(Advice::LinuxDontFork));
                return Ok(pages);
            }
        }
        let bytes = length.max(1).next_multiple_of(PAGE_BYTES);
        let merge = bytes >= HUGE_PAGE_BYTES && transparent();
        // Merged pages need their own alignment, so slightly more address space is mapped than used.
        let mapped = if merge {
            bytes + HUGE_PAGE_BYTES
        } else {
            bytes
        };
        let mapping = map(mapped, MapFlags::empty())?;
        let skip = if merge {
            mapping.as_ptr().align_offset(HUGE_PAGE_BYTES)
        } else {
            0
        };
        // SAFETY: `skip` is less than a huge page, which is how much longer the mapping is than the part used.
        let start = unsafe { mapping.add(skip) };
        let mut pages = Self::of(mapping, mapped, start);
        if merge && pages.advise(Advice::LinuxHugepage) {
            pages.kind = PageKind::Transparent;
        }
        if !wanted.pinned {
            return Ok(pages);
        }
        pages.inherited = !pages.advise(Advice::LinuxDontFork);
        // SAFETY: the range is inside the mapping; the advice only populates the pages.
        let populated = unsafe {
            madvise(
                pages.start.as_ptr().cast(),
                bytes,
                Advice::LinuxPopulateWrite,
            )
        };
        match populated {
            Ok(()) | Err(Errno::INVAL) => Ok(pages), // Before Linux 5.14 registration brings them in.
            Err(errno) => Err(errno),
        }
    }

    fn of(mapping: NonNull<u8>, mapped: usize, start: NonNull<u8>) -> Self {
        Self {
            made_in: Generation::current(),
            mapping,
            mapped,
            start,
            inherited: true,
            kind: PageKind::Base,
        }
    }

    fn advise(&self, advice: Advice) -> bool {
        // SAFETY: the range is this mapping, and the kinds of advice used here keep its contents.
        unsafe { madvise(self.mapping.as_ptr().cast(), self.mapped, advice) }.is_ok()
    }

    /// The first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// The kind of pages.
    pub fn kind(&self) -> PageKind {
        self.kind
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if !self.inherited && !self.made_in.is_current() {
            // A child has not inherited the mapping: another one may be at the same address.
            return;
        }
        // SAFETY: mapped by `allocate`, and nothing refers to it any more.
        let _ = unsafe { munmap(self.mapping.as_ptr().cast(), self.mapped) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_an_address_space_has_is_refused() {
        let wanted = PagesWanted {
            huge: false,
            pinned: false,
        };
        for length in [usize::MAX, usize::MAX - (1 << 20), LONGEST + 1] {
            let pages = Pages::allocate(length, wanted);
            assert!(matches!(pages, Err(Errno::NOMEM)), "{pages:?}");
        }
    }

    #[test]
    fn memory_is_zeroed_and_aligned() {
        for pinned in [false, true] {
            for length in [1, 4096, 5000, (2 << 20) + 1] {
                let wanted = PagesWanted { huge: true, pinned };
                let pages = Pages::allocate(length, wanted).expect("memory");
                assert_eq!(pages.start().as_ptr() as usize % PAGE_BYTES, 0);
                // SAFETY: `length` bytes are mapped and nobody writes them.
                let bytes = unsafe { std::slice::from_raw_parts(pages.start().as_ptr(), length) };
                assert!(bytes.iter().all(|&byte| byte == 0));
            }
        }
    }
}
