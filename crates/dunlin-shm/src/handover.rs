//! Ownership by flag: state that one thread uses without a lock until it shares it.
//!
//! While the flag is down the *owner* (the thread with the queue pair in its hands) uses the value directly. When work
//! is left over it *shares* the value; from then on whoever holds the lock uses it, the owner too, until one of them
//! takes it back by finishing the work. The flag goes down only under the lock, and only the owner raises it.

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

/// The value, in the hands of whoever holds the lock.
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

    /// Uses the value directly; `None` when it is shared.
    ///
    /// # Safety
    /// Only the owner calls this, and not while it holds the value in another way.
    #[inline(always)]
    pub(crate) unsafe fn owned<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        if self.is_shared() {
            return None;
        }
        // SAFETY: the flag is down, only the owner can raise it, and the owner is here: nobody else touches the value.
        // The acquire load ordered what the last holder did before us.
        Some(self.value.with_mut(|value| f(unsafe { &mut *value })))
    }

    /// Raises the flag: from here on the lock decides.
    ///
    /// # Safety
    /// Only the owner calls this, outside of [`Handover::owned`].
    pub(crate) unsafe fn share(&self) {
        self.shared.store(true, Ordering::SeqCst);
    }

    /// The value, when it is shared.
    pub(crate) fn lock(&self) -> Option<Held<'_, T>> {
        let lock = lock(&self.lock);
        self.is_shared().then_some(Held {
            handover: self,
            _lock: lock,
        })
    }

    /// The value, when it is shared and nobody else is at it.
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

    /// The value, shared or not, for the owner.
    ///
    /// # Safety
    /// Only the owner calls this, outside of [`Handover::owned`].
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

    /// Gives the value back to the owner.
    pub(crate) fn give_back(self) {
        self.handover.shared.store(false, Ordering::Release);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::Handover;
    use loom::sync::Arc;

    /// The owner leaves work over, another thread finishes it, the owner goes on directly: no access races.
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
