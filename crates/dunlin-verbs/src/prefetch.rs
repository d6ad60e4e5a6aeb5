//! Prefetch hints to the processor, so that the wait for another core's cache line overlaps with other work.
//!
//! A prefetch changes nothing and never faults, so any address is allowed. On processors other than x86-64 these
//! functions do nothing.

/// Prefetches the line at `place`, which will be read soon.
#[inline(always)]
#[allow(unsafe_code)]
pub fn prefetch_to_read<T>(place: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch changes nothing, whatever the address; SSE is part of every x86-64.
    unsafe {
        use std::arch::x86_64::{_mm_prefetch, _MM_HINT_T0};
        _mm_prefetch::<_MM_HINT_T0>(place.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

/// Prefetches the line at `place` in exclusive state, because it will be written soon.
///
/// The instruction is written out: in a program compiled for generic x86-64, `_mm_prefetch` with the hint to write
/// becomes a prefetch to read, which does nothing for a line that is already here and shared with the core that read
/// it.
#[inline(always)]
#[allow(unsafe_code)]
pub fn prefetch_to_write<T>(place: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as above; x86-64 processors without PREFETCHW execute it as a NOP.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) place, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}
