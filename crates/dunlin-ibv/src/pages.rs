//! Memory for regions: reserved huge pages, else 4 KiB pages that the kernel may merge, else those alone.

use std::ptr::NonNull;

use dunlin_verbs::process::Generation;
use dunlin_verbs::{PageKind, VerbsError};
use rustix::io::Errno;
use rustix::mm::{madvise, mmap_anonymous, munmap, Advice, MapFlags, ProtFlags};

use crate::error::explain;

const PAGE_BYTES: usize = 4096;
/// A huge page of x86-64 and of AArch64 with 4 KiB pages.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Private zeroed memory; unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Pages {
    made_in: Generation,
    mapping: NonNull<u8>,
    mapped: usize,
    start: NonNull<u8>,
    pub(crate) kind: PageKind,
}

// SAFETY: a mapping belongs to the process, not to a thread; access goes through raw copies and atomics.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

/// Whether the kernel merges private pages when it is asked to.
fn transparent() -> bool {
    std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled")
        .is_ok_and(|text| !text.contains("[never]"))
}

/// Whether reserved huge pages are free.
fn huge() -> bool {
    std::fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")
        .is_ok_and(|text| text.trim().parse::<u64>().is_ok_and(|count| count > 0))
}

/// The best pages there are now.
pub(crate) fn best(huge_allowed: bool) -> PageKind {
    if huge_allowed && huge() {
        PageKind::Huge
    } else if transparent() {
        PageKind::Transparent
    } else {
        PageKind::Base
    }
}

fn map(bytes: usize, flags: MapFlags) -> Result<NonNull<u8>, Errno> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh mapping at an address of the kernel's choice touches no memory of ours.
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
    /// At least `length` zeroed bytes.
    pub(crate) fn allocate(length: usize, huge_allowed: bool) -> Result<Self, VerbsError> {
        if huge_allowed && length >= HUGE_PAGE_BYTES && huge() {
            let mapped = length.next_multiple_of(HUGE_PAGE_BYTES);
            let flags = MapFlags::HUGETLB | MapFlags::HUGE_2MB | MapFlags::POPULATE;
            if let Ok(mapping) = map(mapped, flags) {
                let pages = Self {
                    made_in: Generation::current(),
                    mapping,
                    mapped,
                    start: mapping,
                    kind: PageKind::Huge,
                };
                pages.advise(Advice::LinuxDontFork);
                return Ok(pages);
            }
        }
        let bytes = length.next_multiple_of(PAGE_BYTES);
        let merge = bytes >= HUGE_PAGE_BYTES && transparent();
        // Merged pages need their own alignment: a little address space more than is used.
        let mapped = if merge {
            bytes + HUGE_PAGE_BYTES
        } else {
            bytes
        };
        let failed = |errno: Errno| {
            explain(
                "mmap of a region",
                errno.into(),
                format!("{bytes} bytes: not enough memory?"),
            )
        };
        let mapping = map(mapped, MapFlags::empty()).map_err(failed)?;
        let skip = if merge {
            mapping.as_ptr().align_offset(HUGE_PAGE_BYTES)
        } else {
            0
        };
        // SAFETY: `skip` is less than a huge page, by which the mapping is longer than what is used.
        let start = unsafe { mapping.add(skip) };
        let mut pages = Self {
            made_in: Generation::current(),
            mapping,
            mapped,
            start,
            kind: PageKind::Base,
        };
        if merge && pages.advise(Advice::LinuxHugepage) {
            pages.kind = PageKind::Transparent;
        }
        // A child of fork() that wrote here would take the pages away from the device.
        pages.advise(Advice::LinuxDontFork);
        // SAFETY: the range is inside the mapping; the advice only brings the pages in.
        let populated = unsafe {
            madvise(
                pages.start.as_ptr().cast(),
                bytes,
                Advice::LinuxPopulateWrite,
            )
        };
        match populated {
            Ok(()) | Err(Errno::INVAL) => Ok(pages), // Before Linux 5.14 registration brings them in.
            Err(errno) => Err(failed(errno)),
        }
    }

    fn advise(&self, advice: Advice) -> bool {
        // SAFETY: the range is this mapping, and the advices used here keep its contents.
        unsafe { madvise(self.mapping.as_ptr().cast(), self.mapped, advice) }.is_ok()
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if !self.made_in.is_current() {
            // A child has not inherited the mapping: something else may be there.
            return;
        }
        // SAFETY: mapped by `allocate`; the region that used it was deregistered before.
        let _ = unsafe { munmap(self.mapping.as_ptr().cast(), self.mapped) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_zeroed_and_aligned() {
        for length in [1, 4096, 5000, (2 << 20) + 1] {
            let pages = Pages::allocate(length, true).expect("memory");
            assert_eq!(pages.start().as_ptr() as usize % PAGE_BYTES, 0);
            // SAFETY: `length` bytes are mapped and nobody writes them.
            let bytes = unsafe { std::slice::from_raw_parts(pages.start().as_ptr(), length) };
            assert!(bytes.iter().all(|&byte| byte == 0));
        }
    }
}
