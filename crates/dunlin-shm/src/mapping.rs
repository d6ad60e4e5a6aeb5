//! Memory files and their mappings: created and sealed here; those sent by a peer are checked before they are mapped.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use dunlin_verbs::process::Generation;
use dunlin_verbs::VerbsError;
use rustix::fs::{MemfdFlags, Mode, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// The smallest page size.
pub(crate) const PAGE_BYTES: usize = 4096;
/// Size of a huge page on x86-64.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Mappings of a peer's memory of these sizes are populated immediately. Smaller ones, the rings of connections, are
/// faulted in page by page, and a little used connection touches few of their pages.
const POPULATED: std::ops::RangeInclusive<usize> = 128 << 10..=64 << 20;

/// Converts an errno to an error of the verbs layer.
pub(crate) fn system(call: &'static str) -> impl Fn(Errno) -> VerbsError {
    move |errno| VerbsError::System {
        call,
        source: errno.into(),
    }
}

/// A mapped range; unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    length: usize,
    given_back: Option<GivenBack>,
}

/// Memory that is returned to the system with one of our mappings, whoever else still maps the file.
#[derive(Debug)]
struct GivenBack {
    /// Offset of the first byte.
    from: usize,
    /// The process that owns the memory: a child that inherited the mapping must not take it away from its parent.
    made_in: Generation,
}

// SAFETY: a mapping belongs to the process, not to a thread, and all access is by raw copies and atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `length` bytes of `file`, shared.
    pub(crate) fn shared(
        file: BorrowedFd<'_>,
        length: usize,
        writable: bool,
    ) -> Result<Self, Errno> {
        let protection = if writable {
            ProtFlags::READ | ProtFlags::WRITE
        } else {
            ProtFlags::READ
        };
        // SAFETY: a fresh mapping at an address that the kernel chooses does not touch existing memory.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                length,
                protection,
                MapFlags::SHARED,
                file,
                0,
            )
        }?;
        let start = NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
        Ok(Self {
            start,
            length,
            given_back: None,
        })
    }

    /// Returns the pages from `from` on to the system when this mapping ends: a peer that keeps its own mapping finds
    /// zeros there, and what it writes afterwards is memory that it has requested itself. `from` is a multiple of the
    /// page size.
    ///
    /// Not for files that are sealed against writing, from which the system reclaims nothing, and not for huge pages: a
    /// peer that accesses one later is killed if none is free.
    pub(crate) fn give_back_from(mut self, from: usize) -> Self {
        let made_in = Generation::current();
        self.given_back = Some(GivenBack { from, made_in });
        self
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn length(&self) -> usize {
        self.length
    }

    pub(crate) fn advise(&self, advice: Advice) -> Result<(), Errno> {
        // SAFETY: the range is this mapping, and the kinds of advice used here (huge pages, populate) keep its
        // contents.
        unsafe { rustix::mm::madvise(self.start.as_ptr().cast(), self.length, advice) }
    }

    /// Populates the pages to avoid faults at the first accesses; a failure has no other effect.
    pub(crate) fn populate(&self, writable: bool) {
        let _ = self.advise(if writable {
            Advice::LinuxPopulateWrite
        } else {
            Advice::LinuxPopulateRead
        });
    }

    /// The 8 bytes at `offset` as an atomic. (Under the model checker, ports have memory of their own.)
    #[cfg_attr(loom, allow(dead_code))]
    #[inline(always)]
    pub(crate) fn u64(&self, offset: usize) -> &AtomicU64 {
        debug_assert!(offset % 8 == 0 && offset + 8 <= self.length);
        // SAFETY: callers pass aligned offsets inside the mapping (fixed layout, or masked by a power of two).
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(offset).cast()) }
    }

    /// The 4 bytes at `offset` as an atomic.
    #[inline(always)]
    pub(crate) fn u32(&self, offset: usize) -> &AtomicU32 {
        debug_assert!(offset % 4 == 0 && offset + 4 <= self.length);
        // SAFETY: as in `u64`.
        unsafe { AtomicU32::from_ptr(self.start.as_ptr().add(offset).cast()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if let Some(GivenBack { from, made_in }) = &self.given_back {
            if *from < self.length && made_in.is_current() {
                // SAFETY: the range is within the mapping, and nothing of ours refers to it any more; peers read and
                // write by copies.
                let given_back = unsafe {
                    let start = self.start.as_ptr().add(*from).cast();
                    rustix::mm::madvise(start, self.length - from, Advice::LinuxRemove)
                };
                if let Err(errno) = given_back {
                    tracing::debug!(%errno, "cannot free the memory: it stays with the processes that have it mapped");
                }
            }
        }
        // SAFETY: the range was mapped by `shared` and nothing refers to it any more.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// Creates a memory file of `length` zeroed bytes, not sealed yet.
pub(crate) fn create_file(name: &str, length: usize, huge: bool) -> Result<OwnedFd, Errno> {
    let mut flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    if huge {
        flags |= MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
    }
    let file = rustix::fs::memfd_create(name, flags)?;
    // Memory files are created accessible to everyone. Nobody else can get hold of this one's descriptors, but the mode
    // is restricted in case somebody does.
    rustix::fs::fchmod(&file, Mode::RUSR | Mode::WUSR)?;
    rustix::fs::ftruncate(&file, length as u64)?;
    Ok(file)
}

/// Seals the size permanently, and with `read_only` also prevents further writable mappings.
pub(crate) fn seal(file: BorrowedFd<'_>, read_only: bool) -> Result<(), Errno> {
    let mut seals = SealFlags::SHRINK | SealFlags::GROW;
    if read_only {
        seals |= SealFlags::FUTURE_WRITE;
    }
    rustix::fs::fcntl_add_seals(file, seals | SealFlags::SEAL)
}

/// Creates a sealed file and its mapping.
pub(crate) fn create_sealed(
    name: &str,
    length: usize,
    read_only_for_peers: bool,
) -> Result<(OwnedFd, Mapping), Errno> {
    let file = create_file(name, length, false)?;
    let mapping = Mapping::shared(file.as_fd(), length, true)?;
    seal(file.as_fd(), read_only_for_peers)?;
    Ok((file, mapping))
}

/// Maps a file that a peer sent, after checking that it can never become shorter than `length`: accessing a truncated
/// file would kill us with SIGBUS.
pub(crate) fn map_foreign(
    file: BorrowedFd<'_>,
    length: usize,
    writable: bool,
) -> Result<Mapping, Errno> {
    let seals = rustix::fs::fcntl_get_seals(file)?;
    let status = rustix::fs::fstat(file)?;
    let size = usize::try_from(status.st_size).unwrap_or(0);
    let is_whole = usize::try_from(status.st_blocks).is_ok_and(|blocks| blocks >= size / 512);
    if length == 0 || !seals.contains(SealFlags::SHRINK) || size < length {
        return Err(Errno::INVAL);
    }
    // Whole pages, including huge ones, so that unmapping takes the same length; not more, whatever the file's size.
    let size = size.min(length.next_multiple_of(HUGE_PAGE_BYTES));
    let mapping = Mapping::shared(file, size, writable)?;
    // Pages that the peer has not allocated itself would be charged to us.
    if is_whole && POPULATED.contains(&size) {
        mapping.populate(writable);
    }
    Ok(mapping)
}

/// Identifies a file among all open files.
pub(crate) type FileId = (u64, u64);

/// Whether a file that a peer sent is a memory file. This is all that is asked of a file before it is known to be one,
/// because calls on other files, and closing them, can block for as long as their creator likes.
pub(crate) fn is_memory_file(file: BorrowedFd<'_>) -> bool {
    rustix::fs::fcntl_get_seals(file).is_ok()
}

/// The identifier of a memory file. As long as it is mapped, no other file has it.
pub(crate) fn file_id(file: BorrowedFd<'_>) -> Result<FileId, Errno> {
    rustix::fs::fcntl_get_seals(file)?;
    let status = rustix::fs::fstat(file)?;
    Ok((status.st_dev, status.st_ino))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_a_peer_has_not_filled_is_not_filled_for_it() {
        let length = *POPULATED.start();
        let pages = |file: &OwnedFd| rustix::fs::fstat(file).unwrap().st_blocks;
        let (sparse, _mapping) = create_sealed("dunlin-shm-test", length, false).unwrap();
        let _foreign = map_foreign(sparse.as_fd(), length, true).unwrap();
        assert_eq!(pages(&sparse), 0);
    }

    #[test]
    fn memory_files_are_for_their_owner_alone() {
        let (port, _mapping) = create_sealed("dunlin-shm-test", PAGE_BYTES, true).unwrap();
        let region = create_file("dunlin-shm-test", PAGE_BYTES, false).unwrap();
        for file in [port, region] {
            let mode = rustix::fs::fstat(&file).unwrap().st_mode;
            assert_eq!(mode & 0o7777, 0o600, "{mode:o}");
        }
    }
}
