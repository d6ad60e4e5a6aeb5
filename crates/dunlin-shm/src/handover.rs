//! Ownership by flag: state that one thread uses without a lock until it shares the state.
//!
//! While the flag is clear, the *owner* (the thread that holds the queue pair) uses the value directly. When work is
//! left over, it *shares* the value by setting the flag; from then on every thread, including the owner, uses it only
//! while holding the lock, until one of them finishes the work and returns the value to the owner. The flag is cleared
//! only under the lock, and set only by the owner.

use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering, UnsafeCell};

/// The value, its flag and its lock.
#[derive(Debug)]
pub(crate) struct Handover<T> {
    shared: AtomicBool,
    lock: Mutex<()>,
    value: UnsafeCell<T>,
}

// SAFETY: the protocol above gives the value to one thread at a time; the flag's release store and acquire load, or the
// lock, order the two threads' accesses.
unsafe impl<T: Send> Sync for Handover<T> {}

/// The value, accessible to the holder of the lock.
pub(crate) struct Held<'a, T> {
    handover: &'a Handover<T>,
    _lock: MutexGuard<'a, ()>,
}

impl<T> Handover<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            shared: AtomicBool::new(false),
            lock: Mutex::new(()),
            value: UnsafeCell::new(value),
        }
    }

    /// Whether work is left over.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        self.shared.load(Ordering::Acquire)
    }

    /// Uses the value directly; `None` if it is shared.
    ///
    /// # Safety
    /// Must be called only by the owner, and not while it holds the value in another way.
    #[inline(always)]
    pub(crate) unsafe fn owned<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        if self.is_shared() {
            return None;
        }
        // SAFETY: the flag is clear, only the owner can set it, and the owner is here: nobody else accesses the value.
        // The acquire load orders what the last holder did before us.
        Some(self.value.with_mut(|value| f(unsafe { &mut *value })))
    }

    /// Sets the flag: from here on access requires the lock.
    ///
    /// # Safety
    /// Must be called only by the owner, outside of [`Handover::owned`].
    pub(crate) unsafe fn share(&self) {
        self.shared.store(true, Ordering::SeqCst);
    }

    /// The value, if it is shared.
    pub(crate) fn lock(&self) -> Option<Held<'_, T>> {
        let lock = lock(&self.lock);
        self.is_shared().then_some(Held {
            handover: self,
            _lock: lock,
        })
    }

    /// The value, if it is shared and no other thread is using it.
    pub(crate) fn try_lock(&self) -> Option<Held<'_, T>> {
        if !self.is_shared() {
            return None;
        }
        let lock = self.lock.try_lock().ok()?;
        self.is_shared().then_some(Held {
            handover: self,
            _lock: lock,
        })
    }

    /// The value, whether shared or not, for the owner.
    ///
    /// # Safety
    /// Must be called only by the owner, outside of [`Handover::owned`].
    pub(crate) unsafe fn owner_lock(&self) -> Held<'_, T> {
        Held {
            handover: self,
            _lock: lock(&self.lock),
        }
    }
}

fn lock(mutex: &Mutex<()>) -> MutexGuard<'_, ()> {
    match mutex.lock() {
        Ok(guard) => guard,
        Err(poisoned) => poisoned.into_inner(),
    }
}

impl<T> Held<'_, T> {
    /// Uses the value.
    pub(crate) fn with<R>(&mut self, f: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: we hold the lock and the value is shared, or we are its owner and hold the lock.
        self.handover
            .value
            .with_mut(|value| f(unsafe { &mut *value }))
    }

    /// Returns the value to the owner.
    pub(crate) fn give_back(self) {
        self.handover.shared.store(false, Ordering::Release);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::Handover;
    use loom::sync::Arc;

    /// The owner leaves work over, another thread finishes it, and the owner continues directly: no access races.
    #[test]
    fn loom_handover() {
        loom::model(|| {
            let handover = Arc::new(Handover::new(0u32));
            let other = Arc::clone(&handover);
            let helper = loom::thread::spawn(move || {
                if let Some(mut held) = other.try_lock() {
                    held.with(|value| *value += 10);
                    held.give_back();
                    return true;
                }
                false
            });
            // SAFETY: this thread is the owner.
            unsafe { handover.owned(|value| *value += 1) }.unwrap();
            // SAFETY: as above.
            unsafe { handover.share() };
            // SAFETY: as above.
            let direct = unsafe { handover.owned(|value| *value += 1) }.is_some();
            if !direct {
                if let Some(mut held) = handover.lock() {
                    held.with(|value| *value += 1);
                    held.give_back();
                } else {
                    // SAFETY: as above.
                    unsafe { handover.owned(|value| *value += 1) }.unwrap();
                }
            }
            let helped = helper.join().unwrap();
            // SAFETY: as above.
            let mut held = unsafe { handover.owner_lock() };
            assert_eq!(held.with(|value| *value), if helped { 12 } else { 2 });
        });
    }
}
