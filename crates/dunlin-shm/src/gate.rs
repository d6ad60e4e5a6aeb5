//! A value protected by a try-lock: the polling thread enters if it can, the control path waits for it to leave, which
//! does not take long.

use crate::sync::{yield_now, AtomicBool, Ordering, UnsafeCell};

/// The value and its lock.
#[derive(Debug)]
pub(crate) struct Gate<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is used only between a successful exchange of the flag (acquire) and its release store.
unsafe impl<T: Send> Sync for Gate<T> {}

/// Releases the lock, even when the closure panics.
struct Leave<'a>(&'a AtomicBool);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl<T> Gate<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            taken: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// Uses the value unless another thread is using it.
    #[inline]
    pub(crate) fn try_enter<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        if self
            .taken
            .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            return None;
        }
        let _leave = Leave(&self.taken);
        // SAFETY: the exchange gave us exclusive access until `_leave` is dropped.
        Some(self.value.with_mut(|value| f(unsafe { &mut *value })))
    }

    /// Uses the value; waits for its turn.
    pub(crate) fn enter<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        let mut f = Some(f);
        loop {
            let result = self.try_enter(|value| f.take().map(|f| f(value)));
            if let Some(result) = result.flatten() {
                return result;
            }
            yield_now();
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::Gate;
    use loom::sync::Arc;

    #[test]
    fn loom_gate() {
        loom::model(|| {
            let gate = Arc::new(Gate::new(0u32));
            let other = Arc::clone(&gate);
            let visitor = loom::thread::spawn(move || other.try_enter(|value| *value += 1));
            let here = gate.try_enter(|value| *value += 1);
            let there = visitor.join().unwrap();
            let total = u32::from(here.is_some()) + u32::from(there.is_some());
            assert_eq!(gate.try_enter(|value| *value), Some(total));
            assert!(total >= 1);
        });
    }
}
