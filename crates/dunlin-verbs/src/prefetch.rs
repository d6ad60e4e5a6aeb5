//! Asking the processor for a cache line before it is needed, so that the wait for another core's line overlaps with
//! other work.
//!
//! A prefetch changes nothing and faults nowhere, so any address may be named. On other processors than x86-64 it does
//! nothing.

/// Asks for the line at `place`, which will be read soon.
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

/// Asks for the line at `place` as its only owner, because it will be written soon.
///
/// The instruction is named: `_mm_prefetch` with the hint to write becomes a prefetch to read in a program compiled for
/// any x86-64, and that asks in vain for a line that is here already and shared with the core that read it.
#[inline(always)]
#[allow(unsafe_code)]
pub fn prefetch_to_write<T>(place: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as above; x86-64 processors without PREFETCHW take it for a NOP.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) place, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}
