//! Calls of one client whose handlers run elsewhere than on the polling thread, and what becomes of those that nobody
//! waits for any more: the caller has given up, or its connection has ended.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

/// Whether somebody still waits for the answer to a call.
#[derive(Debug, Default)]
pub(super) struct Fate {
    cancelled: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Fate {
    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// Ready once nobody waits any more. One task at a time is woken: the one that asked last.
    pub(super) fn poll_cancelled(&self, context: &Context<'_>) -> Poll<()> {
        if self.is_cancelled() {
            return Poll::Ready(());
        }
        let mut place = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
        match &*place {
            Some(waker) if waker.will_wake(context.waker()) => {}
            _ => *place = Some(context.waker().clone()),
        }
        drop(place);
        // Who cancelled before the waker was there has not seen it.
        match self.is_cancelled() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }

    fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
        let waker = self.waker.lock();
        let waker = waker.unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Away(HashMap<u64, Arc<Fate>>);

impl Away {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A handler is given the call. `None`: one of this name is away already, which no honest client does.
    pub(super) fn begin(&mut self, call: u64) -> Option<Arc<Fate>> {
        let fate = Arc::<Fate>::default();
        match self.0.insert(call, Arc::clone(&fate)) {
            None => Some(fate),
            Some(before) => {
                self.0.insert(call, before);
                None
            }
        }
    }

    /// The caller has given up.
    pub(super) fn cancel(&mut self, call: u64) {
        if let Some(fate) = self.0.get(&call) {
            fate.cancel();
        }
    }

    /// The call is back: whether its caller has given it up meanwhile. `None`: it was not away.
    pub(super) fn end(&mut self, call: u64) -> Option<bool> {
        self.0.remove(&call).map(|fate| fate.is_cancelled())
    }
}

impl Drop for Away {
    fn drop(&mut self) {
        for fate in self.0.values() {
            fate.cancel();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn who_waits_for_the_end_of_a_call_is_woken_by_the_caller_and_by_the_connection() {
        let woken = Arc::<Woken>::default();
        let waker = Waker::from(Arc::clone(&woken));
        let context = Context::from_waker(&waker);
        let mut away = Away::default();
        let (first, second) = (away.begin(1).unwrap(), away.begin(2).unwrap());
        assert!(away.begin(2).is_none(), "its name is taken");
        assert_eq!(away.len(), 2);
        assert!(first.poll_cancelled(&context).is_pending());
        assert!(second.poll_cancelled(&context).is_pending());
        away.cancel(7);
        assert_eq!(woken.0.load(Ordering::Relaxed), 0);
        away.cancel(1);
        assert!(first.poll_cancelled(&context).is_ready());
        assert!(second.poll_cancelled(&context).is_pending());
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert_eq!((away.end(1), away.end(1)), (Some(true), None));
        drop(away);
        assert!(second.is_cancelled());
        assert_eq!(woken.0.load(Ordering::Relaxed), 2);
    }
}
