//! How the driver of futures falls asleep.

use std::sync::atomic::Ordering;
use std::sync::MutexGuard;
use std::time::Duration;

use dunlin_verbs::thread;

use super::calls::Calls;
use super::{give_back, AsyncLane, Inner, DEADLINE_STEP, LONGEST_SLEEP};
use crate::call::lane::Lane;
use crate::config::UNHEARD_PAUSE;
use crate::doze::{doze, Doze, Dozed};
use crate::error::CallError;

impl AsyncLane {
    pub(super) fn sleep(&self) {
        let mut inner = self.lock();
        let Some(lane) = &inner.lane else {
            return;
        };
        let before = lane.outstanding();
        let longest = match before > 0 || !inner.calls.waiting.is_empty() {
            true => LONGEST_SLEEP,
            false => 5 * LONGEST_SLEEP,
        };
        // At most until the next deadline of a call.
        let most = longest.min(inner.calls.until_deadline(thread::now()));
        let mut driver = Driver {
            lane: self,
            inner: Some(inner),
            before,
        };
        // A failure is found by the next poll.
        let dozed = doze(&mut driver, most);
        driver.give_back();
        if matches!(dozed, Ok(Dozed::Unheard)) {
            thread::sleep(UNHEARD_PAUSE);
        }
        self.sleeping.store(false, Ordering::SeqCst);
    }
}

/// The driver thread, which holds the lock until it sleeps.
struct Driver<'a> {
    lane: &'a AsyncLane,
    inner: Option<MutexGuard<'a, Inner>>,
    /// Number of outstanding calls when it began to fall asleep.
    before: usize,
}

impl Driver<'_> {
    fn give_back(&mut self) {
        if let Some(inner) = self.inner.take() {
            give_back(inner);
        }
    }

    /// Does something with the lane, if the lock is held and there is one.
    fn with<T>(
        &mut self,
        action: impl FnOnce(&mut dyn Lane, &mut Calls) -> Result<T, CallError>,
    ) -> Result<Option<T>, CallError> {
        let Some(inner) = self.inner.as_deref_mut() else {
            return Ok(None);
        };
        let Inner { lane, calls, .. } = inner;
        lane.as_mut()
            .map(|lane| action(lane.as_mut(), calls))
            .transpose()
    }
}

impl Doze for Driver<'_> {
    type Error = CallError;

    fn announce(&mut self) -> Result<bool, CallError> {
        // What was submitted since the last poll is sent here.
        let announced = self.with(|lane, calls| {
            lane.turn(calls, true)?;
            lane.prepare_sleep(calls)
        })?;
        Ok(announced.unwrap_or(true))
    }

    fn look(&mut self) -> Result<bool, CallError> {
        let before = self.before;
        let found = self.with(|lane, calls| {
            let taken = lane.poll(calls)?;
            Ok(taken > 0 || lane.outstanding() != before)
        })?;
        Ok(found.unwrap_or(false) || self.lane.ending.load(Ordering::Acquire))
    }

    fn check(&mut self) -> Result<(), CallError> {
        self.with(|lane, calls| lane.check(calls)).map(drop)
    }

    fn sleep(&mut self, most: Duration) -> Result<(), CallError> {
        self.give_back();
        if let Some(sleeper) = self.lane.sleeper.get() {
            if sleeper.sleep(most).is_err() {
                thread::sleep(DEADLINE_STEP);
            }
        }
        Ok(())
    }
}
