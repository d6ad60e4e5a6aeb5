//! How long a call of a future may take, and who wants its answer.

use std::task::Waker;
use std::time::{Duration, Instant};

use dunlin_verbs::thread;

use crate::client::wait::end_of;

/// See the module.
#[derive(Default)]
pub(in crate::client) struct Terms {
    /// `None`: it counts from the next look at the clock on. A call that is sent at once does not look at it by itself.
    deadline: Option<Instant>,
    pub(in crate::client::driver) after: Duration,
    pub(in crate::client) waker: Option<Waker>,
    /// It is out on the lane before the present one.
    pub(in crate::client) on_former: bool,
}

impl Terms {
    /// A call takes the place of one that has ended, and whose waker was taken.
    #[inline]
    pub(super) fn renew(&mut self, after: Duration) {
        debug_assert!(self.waker.is_none(), "of a call that has ended");
        self.deadline = None;
        self.after = after;
        self.on_former = false;
    }

    /// Its time begins now, if it has not yet.
    pub(super) fn begin(&mut self) {
        self.until(thread::now());
    }

    /// When its time began, if it has.
    pub(super) fn began(&self) -> Option<Instant> {
        self.deadline?.checked_sub(self.after)
    }

    /// When it has to end, if that is known.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// When it has to end.
    pub(super) fn until(&mut self, now: Instant) -> Instant {
        *self.deadline.get_or_insert_with(|| end_of(now, self.after))
    }
}
