//! How long a call of a future may take, and who wants its answer.

use std::task::Waker;
use std::time::{Duration, Instant};

use dunlin_verbs::thread;

use crate::call::timeout::{Said, Told};
use crate::client::wait::end_of;

/// See the module.
pub(in crate::client) struct Terms {
    /// `None`: it counts from the next look at the clock on. A call that is sent at once does not look at it by itself.
    pub(super) deadline: Option<Instant>,
    pub(in crate::client::driver) after: Duration,
    pub(in crate::client::driver) told: Told,
    pub(in crate::client) waker: Option<Waker>,
    /// It is out on the lane before the present one.
    pub(in crate::client) on_former: bool,
}

impl Terms {
    /// Of a call that is made now.
    pub(super) fn new(after: Duration, told: Told) -> Self {
        Self {
            deadline: None,
            after,
            told,
            waker: None,
            on_former: false,
        }
    }

    /// Its time begins now, if it has not yet.
    pub(in crate::client) fn begin(&mut self) {
        self.until(thread::now());
    }

    /// What a call says of its time that is sent some time after it was made.
    pub(super) fn says_late(&self) -> Option<Said> {
        let deadline = self.deadline;
        let began = deadline.and_then(|deadline| deadline.checked_sub(self.after));
        self.told.says(self.after, began)
    }

    /// When it has to end.
    pub(super) fn until(&mut self, now: Instant) -> Instant {
        *self.deadline.get_or_insert_with(|| end_of(now, self.after))
    }
}
