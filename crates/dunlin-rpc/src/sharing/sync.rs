//! The atomics of the combining queue: those of the standard library, or loom's under the model checker.

#[cfg(not(loom))]
use dunlin_verbs::thread;
#[cfg(loom)]
pub(super) use loom::{
    cell::UnsafeCell,
    sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering},
};
#[cfg(not(loom))]
pub(super) use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

/// The standard cell with loom's interface.
#[cfg(not(loom))]
#[derive(Debug)]
pub(super) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub(super) fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    #[inline(always)]
    pub(super) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    #[inline(always)]
    pub(super) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

/// Number of checks before a thread that waits for another yields: about a few times what the transfer of a cache line
/// takes. The other thread may not be running at all.
const SPINS: u32 = 32;
/// Number of yields before it sleeps: the other thread is then not merely waiting for a core.
const YIELDS: u32 = 4096;

/// Backoff of a thread that waits for a step of another.
#[derive(Debug, Default)]
pub(super) struct Patience(u32);

impl Patience {
    /// Called after a check in vain.
    #[cfg(not(loom))]
    #[inline]
    pub(super) fn pause(&mut self) {
        self.0 += 1;
        if self.0 < SPINS {
            thread::relax();
        } else if self.0 < SPINS + YIELDS {
            thread::yield_now();
        } else {
            thread::sleep(std::time::Duration::from_micros(50));
        }
    }

    #[cfg(loom)]
    pub(super) fn pause(&mut self) {
        self.0 += 1;
        let _ = (SPINS, YIELDS);
        loom::thread::yield_now();
    }
}
