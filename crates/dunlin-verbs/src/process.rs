//! Detects whether an object is used in the process that created it, or in a child made by `fork()`.
//!
//! A child inherits everything that its parent has: mappings of shared memory, descriptors, locks held by threads that
//! do not exist in the child. Using any of these would take the parent's messages or hang. So objects built on a device
//! remember the [`Generation`] that created them; in a later one they refuse to work, or are leaked ([`Owned`]).

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// Size of the pages reserved for the mark: the kernel wipes memory of a child by whole pages.
#[cfg(target_arch = "x86_64")]
const PAGE_BYTES: usize = 4096;
/// The largest page size of other architectures.
#[cfg(not(target_arch = "x86_64"))]
const PAGE_BYTES: usize = 64 << 10;

#[cfg_attr(target_arch = "x86_64", repr(C, align(4096)))]
#[cfg_attr(not(target_arch = "x86_64"), repr(C, align(65536)))]
struct Mark {
    /// The generation of this process; zero before the first use, and again in a child, where the kernel has wiped it.
    generation: AtomicU64,
    _rest: [u8; PAGE_BYTES - 8],
}

static MARK: Mark = Mark {
    generation: AtomicU64::new(0),
    _rest: [0; PAGE_BYTES - 8],
};

/// Number of generations of this process and its ancestors so far. A child inherits it, so its own generation differs
/// from all those of its ancestors.
static GENERATIONS: AtomicU64 = AtomicU64::new(0);

/// The number of forks between a process and the first of its ancestors that used a device. A child's number differs
/// from that of every process from which it has inherited something.
///
/// Needs Linux 4.14 (MADV_WIPEONFORK); on older kernels a fork goes unnoticed. A child made by `vfork` or by `clone`
/// with shared memory has its parent's generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Generation(u64);

impl Generation {
    /// Returns the generation of the running process.
    #[inline]
    pub fn current() -> Self {
        match MARK.generation.load(Ordering::Relaxed) {
            0 => begin(),
            generation => Self(generation),
        }
    }

    /// Whether the running process has this generation; costs one load.
    #[inline(always)]
    pub fn is_current(self) -> bool {
        MARK.generation.load(Ordering::Relaxed) == self.0
    }

    /// As [`Generation::is_current`], as a result.
    ///
    /// # Errors
    /// When the running process is a child made by fork.
    #[inline(always)]
    pub fn check(self) -> Result<(), Forked> {
        match self.is_current() {
            true => Ok(()),
            false => Err(Forked),
        }
    }
}

/// An object was used in a child of the process that created it, and belongs to the parent. The child must open the
/// device itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this process was forked after this was created, and it belongs to the parent: open the device again in the child"
)]
pub struct Forked;

/// Determines the generation of a process at its first use.
#[cold]
#[inline(never)]
fn begin() -> Generation {
    raw::wipe_on_fork();
    let own = GENERATIONS.fetch_add(1, Ordering::Relaxed) + 1;
    // Another thread may have been first.
    let mark = &MARK.generation;
    match mark.compare_exchange(0, own, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => Generation(own),
        Err(generation) => Generation(generation),
    }
}

/// A value that is dropped only by the process that created it. In a child it is leaked: its destructor would notify
/// peers in the parent's name, or wait for threads that do not exist or locks that are never released.
#[derive(Debug)]
pub struct Owned<T> {
    value: std::mem::ManuallyDrop<T>,
    made_in: Generation,
}

impl<T> Owned<T> {
    /// Wraps a value that belongs to the running process.
    pub fn new(value: T) -> Self {
        Self {
            value: std::mem::ManuallyDrop::new(value),
            made_in: Generation::current(),
        }
    }

    /// Checks that the running process created the value.
    ///
    /// # Errors
    /// When the running process was forked from the one that did.
    #[inline(always)]
    pub fn check(&self) -> Result<(), Forked> {
        self.made_in.check()
    }

    /// Whether the running process created the value.
    #[inline(always)]
    pub fn is_here(&self) -> bool {
        self.made_in.is_current()
    }
}

impl<T> Deref for Owned<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Owned<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if self.is_here() {
            raw::drop(&mut self.value);
        }
    }
}

/// A static value of which each process has its own: a child starts with a new one, whatever the state of the parent's.
#[derive(Debug)]
pub struct PerProcess<T: 'static> {
    now: AtomicPtr<Owned<T>>,
}

impl<T: Default + Send + Sync + 'static> PerProcess<T> {
    /// Creates the static; its value is created on first use.
    pub const fn new() -> Self {
        Self {
            now: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// Returns the value of the running process. It lives forever, and so does that of its parent.
    pub fn get(&'static self) -> &'static T {
        let known = self.now.load(Ordering::Acquire);
        if let Some(value) = raw::leaked(known) {
            if value.is_here() {
                return value;
            }
        }
        let new = Box::into_raw(Box::new(Owned::new(T::default())));
        let placed = self
            .now
            .compare_exchange(known, new, Ordering::AcqRel, Ordering::Acquire);
        // Another thread may have been first; then our value is leaked, which happens once or twice in the life of a
        // process.
        let now = placed.map_or_else(|theirs| theirs, |_| new);
        match raw::leaked(now) {
            Some(value) => value,
            None => unreachable!("the place is never emptied"),
        }
    }
}

impl<T: Default + Send + Sync + 'static> Default for PerProcess<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[allow(unsafe_code)]
mod raw {
    use std::mem::ManuallyDrop;

    use super::{Owned, MARK, PAGE_BYTES};

    /// Asks the kernel to clear the mark in children.
    pub(super) fn wipe_on_fork() {
        #[cfg(not(miri))]
        {
            let start = std::ptr::from_ref(&MARK).cast_mut().cast();
            let advice = rustix::mm::Advice::LinuxWipeOnFork;
            // SAFETY: the mark has these pages to itself, and the advice changes only what a child finds there: zeros,
            // which are valid for its atomic and its bytes.
            let _ = unsafe { rustix::mm::madvise(start, PAGE_BYTES, advice) };
        }
    }

    pub(super) fn drop<T>(value: &mut ManuallyDrop<T>) {
        // SAFETY: called once, by the destructor of the value's only owner, which does not touch it afterwards.
        unsafe { ManuallyDrop::drop(value) }
    }

    /// The value that [`super::PerProcess`] holds.
    pub(super) fn leaked<T>(value: *mut Owned<T>) -> Option<&'static Owned<T>> {
        // SAFETY: null, or from a box that was leaked and is never freed or mutably borrowed.
        unsafe { value.as_ref() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_is_that_of_its_process() {
        let here = Generation::current();
        assert_eq!(here, Generation::current());
        assert!(here.is_current());
        assert!(Generation(0).check().is_err());
        assert_eq!(Generation(here.0 + 1).check(), Err(Forked));
    }

    #[test]
    fn what_is_inherited_is_leaked_and_what_is_owned_is_dropped() {
        let counted = std::sync::Arc::new(());
        let mut inherited = Owned::new(std::sync::Arc::clone(&counted));
        inherited.made_in = Generation(0);
        drop(inherited);
        assert_eq!(std::sync::Arc::strong_count(&counted), 2);
        drop(Owned::new(std::sync::Arc::clone(&counted)));
        assert_eq!(std::sync::Arc::strong_count(&counted), 2);
    }

    #[test]
    fn a_process_has_one_value() {
        static VALUE: PerProcess<AtomicU64> = PerProcess::new();
        VALUE.get().store(7, Ordering::Relaxed);
        assert_eq!(VALUE.get().load(Ordering::Relaxed), 7);
    }
}
