//! Calls of one client whose handlers do not run on the polling thread, and their cancellation when the caller gives up
//! or its connection ends.

use std::collections::HashMap;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use dunlin_verbs::thread;

/// Whether the answer to a call is still wanted.
#[derive(Debug, Default)]
pub(super) struct Fate {
    /// The caller has given up, or its connection has ended.
    cancelled: AtomicBool,
    /// The deadline has passed, and the task that waits for the call's end was woken.
    expired: AtomicBool,
    /// When the caller gives up, if known.
    deadline: Option<Instant>,
    waker: Mutex<Option<Waker>>,
}

impl Fate {
    fn until(deadline: Option<Instant>) -> Self {
        Self {
            deadline,
            ..Self::default()
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Whether the caller has cancelled the call, or its connection has ended.
    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// Whether the answer is no longer wanted.
    pub(super) fn is_over(&self) -> bool {
        self.is_cancelled()
            || self.expired.load(Ordering::Acquire)
            || self
                .deadline
                .is_some_and(|deadline| deadline <= thread::now())
    }

    /// Ready once the answer is no longer wanted. Only the task that asked last is woken.
    pub(super) fn poll_cancelled(&self, context: &Context<'_>) -> Poll<()> {
        self.poll(context, Self::is_over)
    }

    /// Ready once the caller has cancelled the call or its connection has ended. The passing of the deadline does not
    /// make it ready, but also wakes the task.
    pub(super) fn poll_ended(&self, context: &Context<'_>) -> Poll<()> {
        self.poll(context, Self::is_cancelled)
    }

    fn poll(&self, context: &Context<'_>, is_ready: impl Fn(&Self) -> bool) -> Poll<()> {
        if is_ready(self) {
            return Poll::Ready(());
        }
        let mut place = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
        match &*place {
            Some(waker) if waker.will_wake(context.waker()) => {}
            _ => *place = Some(context.waker().clone()),
        }
        drop(place);
        // A cancellation before the waker was registered has not woken it.
        match is_ready(self) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }

    fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
        self.wake();
    }

    /// Wakes the task that waits for the end of the call, once, when the deadline has passed.
    fn expire(&self, now: Instant) {
        let is_due = self.deadline.is_some_and(|deadline| deadline <= now);
        if is_due && !self.expired.swap(true, Ordering::AcqRel) {
            self.wake();
        }
    }

    fn wake(&self) {
        let waker = self.waker.lock();
        let waker = waker.unwrap_or_else(PoisonError::into_inner).take();
        let Some(waker) = waker else { return };
        // The waker belongs to the user's executor or to what was made for this call. The thread that ends a connection
        // also serves others, most of which would be dropped by a panic.
        if catch_unwind(AssertUnwindSafe(|| waker.wake())).is_err() {
            tracing::error!(
                "the waker of a handler that waits for its caller to disconnect panicked"
            );
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

    /// Registers a call that is given to a handler. `None` if a call with this number is already registered, which only
    /// a malicious client causes.
    pub(super) fn begin(&mut self, call: u64, deadline: Option<Instant>) -> Option<Arc<Fate>> {
        let fate = Arc::new(Fate::until(deadline));
        match self.0.insert(call, Arc::clone(&fate)) {
            None => Some(fate),
            Some(before) => {
                self.0.insert(call, before);
                None
            }
        }
    }

    /// Cancels a call: its caller has given up.
    pub(super) fn cancel(&mut self, call: u64) {
        if let Some(fate) = self.0.get(&call) {
            fate.cancel();
        }
    }

    /// Wakes the tasks of calls whose deadlines have passed by `now`, whether or not their callers could cancel them.
    pub(super) fn expire(&self, now: Instant) {
        for fate in self.0.values() {
            fate.expire(now);
        }
    }

    /// Removes a call that has been answered, and returns whether its caller has given up meanwhile. `None` if it was
    /// not registered.
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
        let (first, second) = (away.begin(1, None).unwrap(), away.begin(2, None).unwrap());
        assert!(away.begin(2, None).is_none(), "its name is taken");
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
        assert!(second.is_over());
        assert_eq!(woken.0.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn who_waits_for_the_end_of_a_call_hears_that_its_deadline_has_passed_and_its_answer_still_counts(
    ) {
        let woken = Arc::<Woken>::default();
        let waker = Waker::from(Arc::clone(&woken));
        let context = Context::from_waker(&waker);
        let mut away = Away::default();
        let now = thread::now();
        let hour = std::time::Duration::from_secs(3600);
        let soon = now + std::time::Duration::from_millis(50);
        let short = away.begin(1, Some(soon)).unwrap();
        let long = away.begin(2, Some(now + hour)).unwrap();
        assert!(
            short.poll_cancelled(&context).is_pending()
                && long.poll_cancelled(&context).is_pending()
        );
        away.expire(thread::now());
        while thread::now() < soon {
            std::thread::sleep(soon.saturating_duration_since(thread::now()));
        }
        assert!(short.is_over() && !long.is_over());
        assert_eq!(woken.0.load(Ordering::Relaxed), 0);
        away.expire(thread::now());
        away.expire(thread::now());
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert!(
            short.poll_cancelled(&context).is_ready() && long.poll_cancelled(&context).is_pending()
        );
        assert_eq!(
            away.end(1),
            Some(false),
            "the caller did not say that it has given up"
        );
    }
}
