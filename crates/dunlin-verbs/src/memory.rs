//! Registered memory: safe access to bytes that other machines may write at any moment.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::attributes::PageKind;

bitflags::bitflags! {
    /// What may be done with a region.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Access: u32 {
        /// The device may write it: receive buffers and the local side of READs and atomics.
        const LOCAL_WRITE = 1;
        /// Peers may WRITE it. Where grants are mappings they can also read it
        /// ([`crate::DeviceAttributes::grants_are_mappings`]).
        const REMOTE_WRITE = 1 << 1;
        /// Peers may READ it.
        const REMOTE_READ = 1 << 2;
        /// Peers may perform atomics on it.
        const REMOTE_ATOMIC = 1 << 3;
    }
}

impl Access {
    /// Whether peers have any access to the region.
    pub fn is_remote(self) -> bool {
        self.intersects(Self::REMOTE_WRITE | Self::REMOTE_READ | Self::REMOTE_ATOMIC)
    }
}

/// The key by which this process names a region to its own device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LocalKey(pub u32);

/// The key by which a peer names a region of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RemoteKey(pub u32);

/// A location in a peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RemoteAddress {
    /// The address in the terms of the peer's device: the region's own base plus an offset in bytes.
    pub address: u64,
    /// The key that the peer issued.
    pub key: RemoteKey,
}

impl RemoteAddress {
    /// Returns the location `bytes` further on. Wraps around at the end of the address space; the device refuses what
    /// is out of bounds.
    #[must_use]
    pub fn plus(self, bytes: u64) -> Self {
        Self {
            address: self.address.wrapping_add(bytes),
            key: self.key,
        }
    }
}

/// A memory region: bytes that a device may read and write on behalf of work requests.
///
/// Clones name the same registration, which ends when the last one is dropped. A work request that names a region which
/// has ended completes with an error.
///
/// # Safety
/// Unsafe code reads and writes the window that [`Region::memory`] returns. It must be the same window each time, for a
/// region and its clones, and its bytes must be valid until the last of them is dropped. Safe code of the
/// implementation accesses them only through windows, and once the region has been returned to the caller, changes them
/// only as the contract of [`crate::Device`] allows.
#[allow(unsafe_code)]
pub unsafe trait Region: Clone + Send + Sync + std::fmt::Debug + 'static {
    /// The region's bytes.
    fn memory(&self) -> &Memory;
    /// The access granted at registration.
    fn access(&self) -> Access;
    /// The key for this process's own work requests.
    fn local_key(&self) -> LocalKey;
    /// The address of byte 0 and the key that a peer needs; of no use to a peer unless the access is remote.
    fn remote(&self) -> RemoteAddress;
    /// The kind of pages that back the region.
    fn page_kind(&self) -> PageKind;
}

/// A region of any device. Every [`Region`] implements it.
///
/// # Safety
/// As for [`Region`], and until the value is dropped.
#[allow(unsafe_code)]
pub unsafe trait AnyRegion: Send + Sync + std::fmt::Debug {
    /// The device's region itself.
    fn region(&self) -> &dyn std::any::Any;
    /// As [`Region::memory`].
    fn memory(&self) -> &Memory;
    /// As [`Region::access`].
    fn access(&self) -> Access;
    /// As [`Region::local_key`].
    fn local_key(&self) -> LocalKey;
    /// As [`Region::remote`].
    fn remote(&self) -> RemoteAddress;
    /// As [`Region::page_kind`].
    fn page_kind(&self) -> PageKind;
}

// SAFETY: each method forwards to the region's own, whose contract is the same.
#[allow(unsafe_code)]
unsafe impl<R: Region> AnyRegion for R {
    fn region(&self) -> &dyn std::any::Any {
        self
    }

    fn memory(&self) -> &Memory {
        Region::memory(self)
    }

    fn access(&self) -> Access {
        Region::access(self)
    }

    fn local_key(&self) -> LocalKey {
        Region::local_key(self)
    }

    fn remote(&self) -> RemoteAddress {
        Region::remote(self)
    }

    fn page_kind(&self) -> PageKind {
        Region::page_kind(self)
    }
}

/// A window on registered memory for safe code: it offers copies and atomics, never references to bytes.
///
/// Bytes may change between any two calls, so a value that decides something must be read only once. Offsets are the
/// caller's own; ranges outside the window panic, as with slices. An offset that came from a peer must be checked with
/// [`Memory::contains`] first.
#[derive(Debug)]
pub struct Memory {
    start: NonNull<u8>,
    length: usize,
}

#[allow(unsafe_code)]
mod raw {
    use super::{AtomicU32, AtomicU64, Memory, NonNull};

    // SAFETY: a Memory has no thread-bound state, and all its operations are copies and atomics on shared memory.
    unsafe impl Send for Memory {}
    // SAFETY: as above; concurrent use is its purpose.
    unsafe impl Sync for Memory {}

    impl Memory {
        /// Creates a window; for devices only.
        ///
        /// # Safety
        /// `start` must be 8-byte aligned and valid for reads and writes of `length` bytes for as long as the value
        /// lives, and no Rust reference to those bytes may exist that assumes they do not change. Where the pages are
        /// read-only, the owner must keep the value from code that would write.
        pub unsafe fn new(start: NonNull<u8>, length: usize) -> Self {
            assert!(
                start.as_ptr() as usize % 8 == 0,
                "registered memory must be aligned to 8 bytes"
            );
            Self { start, length }
        }

        /// Copies `target.len()` bytes from `offset` out of the region.
        ///
        /// # Panics
        /// When the range is out of bounds.
        #[inline]
        pub fn read(&self, offset: usize, target: &mut [u8]) {
            self.check(offset, target.len());
            // SAFETY: the range was checked against a window valid by the contract of `new`; `target` is private memory
            // and cannot overlap it. Concurrent writers may tear the copy; bytes have no invalid values.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    self.start.as_ptr().add(offset),
                    target.as_mut_ptr(),
                    target.len(),
                );
            }
        }

        /// Copies `source` into the region at `offset`, in no particular order of bytes.
        ///
        /// # Panics
        /// When the range is out of bounds.
        #[inline]
        pub fn write(&self, offset: usize, source: &[u8]) {
            self.check(offset, source.len());
            // SAFETY: as in `read`, in the other direction.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    source.as_ptr(),
                    self.start.as_ptr().add(offset),
                    source.len(),
                );
            }
        }

        /// Copies `source` into the region at `offset` so that the bytes become visible in ascending order, as
        /// [`copy_in_order`]: for devices that place by CPU.
        ///
        /// # Panics
        /// When the range is out of bounds.
        #[inline]
        pub fn write_in_order(&self, offset: usize, source: &[u8]) {
            self.check(offset, source.len());
            // SAFETY: as in `write`.
            unsafe {
                let target = self.start.as_ptr().add(offset);
                copy_in_order(source.as_ptr(), target, source.len());
            }
        }

        /// Copies `length` bytes from `source_offset` in another region to `offset` in this one, so that they become
        /// visible in ascending order.
        ///
        /// # Panics
        /// When a range is out of bounds, or the two overlap.
        pub fn copy_from(
            &self,
            offset: usize,
            source: &Memory,
            source_offset: usize,
            length: usize,
        ) {
            self.check(offset, length);
            source.check(source_offset, length);
            // SAFETY: both ranges were checked against windows valid by the contract of `new`, and do not overlap.
            // Concurrent writers may tear the copy; bytes have no invalid values.
            unsafe {
                let from = source.start.as_ptr().add(source_offset);
                let to = self.start.as_ptr().add(offset);
                assert!(
                    (from as usize).abs_diff(to as usize) >= length,
                    "source and destination of a copy of {length} bytes overlap"
                );
                copy_in_order(from, to, length);
            }
        }

        /// Sets `length` bytes from `offset` to `byte`.
        ///
        /// # Panics
        /// When the range is out of bounds.
        pub fn fill(&self, offset: usize, length: usize, byte: u8) {
            self.check(offset, length);
            // SAFETY: as in `write`.
            unsafe { std::ptr::write_bytes(self.start.as_ptr().add(offset), byte, length) }
        }

        /// The 8 bytes at `offset` as an atomic.
        ///
        /// # Panics
        /// When they are out of bounds or `offset` is not a multiple of 8.
        #[inline]
        pub fn atomic_u64(&self, offset: usize) -> &AtomicU64 {
            self.check(offset, 8);
            assert!(offset % 8 == 0, "an atomic must be aligned to its size");
            // SAFETY: in bounds and aligned (the window starts on 8 bytes); atomics may be changed by anyone.
            unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(offset).cast()) }
        }

        /// The 4 bytes at `offset` as an atomic.
        ///
        /// # Panics
        /// When they are out of bounds or `offset` is not a multiple of 4.
        #[inline]
        pub fn atomic_u32(&self, offset: usize) -> &AtomicU32 {
            self.check(offset, 4);
            assert!(offset % 4 == 0, "an atomic must be aligned to its size");
            // SAFETY: as in `atomic_u64`.
            unsafe { AtomicU32::from_ptr(self.start.as_ptr().add(offset).cast()) }
        }

        /// The bytes as a plain slice, without a copy.
        ///
        /// # Safety
        /// As long as the slice lives, nothing may write the range: no peer has been granted access to the region, and
        /// no work request that writes it is outstanding.
        ///
        /// # Panics
        /// When the range is out of bounds.
        pub unsafe fn slice(&self, offset: usize, length: usize) -> &[u8] {
            self.check(offset, length);
            // SAFETY: in bounds; the caller promises that nothing writes.
            unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(offset), length) }
        }

        /// The bytes as a plain mutable slice.
        ///
        /// # Safety
        /// As for [`Memory::slice`]; in addition, nothing else may read the range or hold a slice of it.
        ///
        /// # Panics
        /// When the range is out of bounds.
        #[allow(clippy::mut_from_ref)]
        pub unsafe fn slice_mut(&self, offset: usize, length: usize) -> &mut [u8] {
            self.check(offset, length);
            // SAFETY: in bounds; the caller promises exclusive access to the range.
            unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().add(offset), length) }
        }
    }

    /// How far ahead [`copy_in_order`] prefetches: as many lines as a core fetches at a time.
    const PREFETCHED_BYTES: usize = 32 * 64;

    /// Copies so that the bytes become visible in ascending order: [`crate::Placement::InOrder`] for devices that place
    /// by CPU. On x86-64, eight bytes at an offset that is a multiple of eight become visible together if source and
    /// target are aligned to eight, as on hardware.
    ///
    /// # Safety
    /// `source` valid for reads and `target` for writes of `length` bytes, not overlapping.
    #[inline]
    pub unsafe fn copy_in_order(source: *const u8, target: *mut u8, length: usize) {
        let mut at = 0;
        // SAFETY (whole body): every access is within `at .. at + step <= length` of both ranges. The assembly keeps
        // the compiler from reordering or merging the stores, and x86-64 makes stores visible in program order.
        #[cfg(target_arch = "x86_64")]
        // SAFETY: see above; SSE2 is part of every x86-64.
        unsafe {
            use std::arch::x86_64::{__m128i, _mm_loadu_si128};
            // Prefetches all lines at once: the stores would fetch them one after the other, and each belongs to
            // another core.
            if length > 64 {
                let mut line = 0;
                while line < length.min(PREFETCHED_BYTES) {
                    crate::prefetch_to_write(target.add(line));
                    line += 64;
                }
            }
            while at + 64 <= length {
                let from = source.add(at).cast::<__m128i>();
                std::arch::asm!(
                    "movups [{to}], {a}",
                    "movups [{to} + 16], {b}",
                    "movups [{to} + 32], {c}",
                    "movups [{to} + 48], {d}",
                    to = in(reg) target.add(at),
                    a = in(xmm_reg) _mm_loadu_si128(from),
                    b = in(xmm_reg) _mm_loadu_si128(from.add(1)),
                    c = in(xmm_reg) _mm_loadu_si128(from.add(2)),
                    d = in(xmm_reg) _mm_loadu_si128(from.add(3)),
                    options(nostack, preserves_flags),
                );
                at += 64;
            }
            while at + 16 <= length {
                std::arch::asm!(
                    "movups [{to}], {a}",
                    to = in(reg) target.add(at),
                    a = in(xmm_reg) _mm_loadu_si128(source.add(at).cast()),
                    options(nostack, preserves_flags),
                );
                at += 16;
            }
            // Each word in one piece: pointers and counters are read while they are written.
            while at + 8 <= length {
                std::arch::asm!(
                    "mov [{to}], {a}",
                    to = in(reg) target.add(at),
                    a = in(reg) source.add(at).cast::<u64>().read_unaligned(),
                    options(nostack, preserves_flags),
                );
                at += 8;
            }
        }
        // SAFETY: see above; one byte at a time, with a release store where the architecture needs one.
        unsafe {
            while at < length {
                let byte = std::sync::atomic::AtomicU8::from_ptr(target.add(at));
                byte.store(source.add(at).read(), std::sync::atomic::Ordering::Release);
                at += 1;
            }
        }
    }

    /// Copies whole lines of 64 bytes, in any order. For a few lines, where a call of `memcpy` costs more than the
    /// copy.
    ///
    /// # Safety
    /// `source` valid for reads and `target` for writes of `lines` lines, not overlapping.
    #[inline(always)]
    pub unsafe fn copy_lines(source: *const u8, target: *mut u8, lines: usize) {
        for line in 0..lines {
            // SAFETY: the caller promises that this many lines are valid; SSE2 is part of every x86-64.
            unsafe {
                let (source, target) = (source.add(line * 64), target.add(line * 64));
                #[cfg(target_arch = "x86_64")]
                {
                    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_storeu_si128};
                    let from = source.cast::<__m128i>();
                    let to = target.cast::<__m128i>();
                    let (a, b) = (_mm_loadu_si128(from), _mm_loadu_si128(from.add(1)));
                    let (c, d) = (_mm_loadu_si128(from.add(2)), _mm_loadu_si128(from.add(3)));
                    _mm_storeu_si128(to, a);
                    _mm_storeu_si128(to.add(1), b);
                    _mm_storeu_si128(to.add(2), c);
                    _mm_storeu_si128(to.add(3), d);
                }
                #[cfg(not(target_arch = "x86_64"))]
                std::ptr::copy_nonoverlapping(source, target, 64);
            }
        }
    }

    /// Copies whole lines of 64 bytes so that the first eight bytes become visible together and after all others, for a
    /// reader that polls them.
    ///
    /// # Safety
    /// `source` valid for reads and `target` for writes of `lines` lines, at least one, not overlapping, `target`
    /// aligned to a line. Nothing else writes the target through references.
    #[inline(always)]
    pub unsafe fn copy_lines_first_word_last(source: *const u8, target: *mut u8, lines: usize) {
        // Prefetches all lines at once: the stores would fetch them one after the other, and each belongs to another
        // core. The first line is polled, so if it were fetched too early, the peer's poll would take it away again
        // before it is written.
        if lines > 1 {
            for line in usize::from(lines > 4)..lines.min(PREFETCHED_BYTES / 64) {
                crate::prefetch_to_write(target.wrapping_add(line * 64));
            }
        }
        // SAFETY: every access is within `lines` lines of both; the first word of the target is aligned to eight bytes
        // because lines are. Any concurrent reader of the target checks the first word before and copies the bytes.
        unsafe {
            copy_lines(source.add(64), target.add(64), lines - 1);
            std::ptr::copy_nonoverlapping(source.add(8), target.add(8), 56);
            let first = source.cast::<u64>().read_unaligned();
            let word = std::sync::atomic::AtomicU64::from_ptr(target.cast());
            word.store(first, std::sync::atomic::Ordering::Release);
        }
    }
}
pub use raw::{copy_in_order, copy_lines, copy_lines_first_word_last};

impl Memory {
    /// Length of the window in bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether the window has no bytes.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Whether `offset .. offset + length` is in bounds.
    #[inline]
    pub fn contains(&self, offset: usize, length: usize) -> bool {
        offset
            .checked_add(length)
            .is_some_and(|end| end <= self.length)
    }

    /// The address of byte 0, for devices.
    #[inline]
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    #[inline]
    fn check(&self, offset: usize, length: usize) {
        if !self.contains(offset, length) {
            out_of_bounds(offset, length, self.length);
        }
    }
}

#[cold]
#[inline(never)]
fn out_of_bounds(offset: usize, length: usize, window: usize) -> ! {
    panic!("range of {length} bytes at offset {offset} exceeds the window of {window} bytes");
}

#[cfg(test)]
#[allow(unsafe_code)]
mod tests {
    use super::*;

    #[test]
    fn ordered_copy_is_a_copy() {
        let source: Vec<u8> = (0..300u32).map(|i| (i * 7) as u8).collect();
        for start in 0..9 {
            for length in 0..=(source.len() - start) {
                let mut target = vec![0u8; source.len() + 1];
                // SAFETY: both vectors hold `start + length` bytes and are distinct.
                unsafe { copy_in_order(source.as_ptr().add(start), target.as_mut_ptr(), length) };
                assert_eq!(&target[..length], &source[start..start + length]);
                assert!(target[length..].iter().all(|&b| b == 0));
            }
        }
    }
}
