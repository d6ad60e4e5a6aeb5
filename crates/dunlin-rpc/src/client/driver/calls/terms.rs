//! The deadline of a future's call, and the task that wants its response.

use std::task::Waker;
use std::time::{Duration, Instant};

use dunlin_verbs::thread;

use crate::client::wait::end_of;

/// The terms; see the module.
#[derive(Default)]
pub(in crate::client) struct Terms {
    /// `None`: the time counts from the next read of the clock on. Sending a call at once does not read it.
    deadline: Option<Instant>,
    pub(in crate::client::driver) after: Duration,
    pub(in crate::client) waker: Option<Waker>,
    /// The call is outstanding on the former lane.
    pub(in crate::client) on_former: bool,
}

impl Terms {
    /// Initialises it for a new call; the former call has ended and its waker was taken.
    #[inline]
    pub(super) fn renew(&mut self, after: Duration) {
        debug_assert!(self.waker.is_none(), "of a call that has ended");
        self.deadline = None;
        self.after = after;
        self.on_former = false;
    }

    /// Starts its time now, if it has not started yet.
    pub(super) fn begin(&mut self) {
        self.until(thread::now());
    }

    /// When its time began, if it has.
    pub(super) fn began(&self) -> Option<Instant> {
        self.deadline?.checked_sub(self.after)
    }

    /// The deadline, if known.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// The deadline.
    pub(super) fn until(&mut self, now: Instant) -> Instant {
        *self.deadline.get_or_insert_with(|| end_of(now, self.after))
    }
}
