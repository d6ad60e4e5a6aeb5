//! How the driver makes its lane. A server may be silent for longer than the deadlines of calls submitted meanwhile, so
//! a separate thread makes the connection, and the driver ends calls whose deadlines have passed.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use dunlin_verbs::thread;

use super::{give_back, AsyncLane, LONGEST_SLEEP};
use crate::call::lane::Lane;
use crate::client::recipe::{Opened, Recipe};
use crate::client::spares::usable;
use crate::error::CallError;

/// Duration of the first attempt, or until the first deadline of a waiting call if that is later; at most until the
/// last one. Doubled by each attempt that was too short.
const PATIENCE: Duration = Duration::from_secs(1);

impl AsyncLane {
    /// Makes the lane for the queued calls, each for as long as its deadline allows: an attempt continues while one of
    /// them has time left, and those that have less end meanwhile. `false`: it could not be made, and no call is queued
    /// any more.
    pub(super) fn connect(&self, recipe: &Arc<Recipe>, mut spare: Option<Box<dyn Lane>>) -> bool {
        // Calls submitted meanwhile wake the driver.
        self.sleeping.store(true, Ordering::SeqCst);
        let is_made = self.connect_for_calls(recipe, &mut spare);
        self.sleeping.store(false, Ordering::SeqCst);
        is_made
    }

    fn connect_for_calls(&self, recipe: &Arc<Recipe>, spare: &mut Option<Box<dyn Lane>>) -> bool {
        let mut patience = PATIENCE;
        // The calls of all threads use the lane.
        let window = recipe.channel.max_outstanding;
        while let Some((deadlines, looks_at)) = self.attend_to_waiting() {
            let Some((first, last)) = deadlines else {
                thread::park(looks_at.saturating_duration_since(thread::now()));
                continue;
            };
            // If the connection is opened on this thread, no call can be ended meanwhile. Otherwise an attempt that
            // hangs is eventually replaced by another, which may reach another server.
            let until = match recipe.is_local() {
                true => first,
                false => last.min(first.max(thread::now() + patience)),
            };
            let opened = match usable(spare.take()) {
                Some(lane) => Ok(lane),
                // Nothing else is waited for.
                None if recipe.is_local() => recipe.open_for_any(window, until),
                None => match self.open_beside(recipe, window, until) {
                    Some(opened) => opened,
                    None => return false,
                },
            };
            let mut inner = self.lock();
            match opened {
                // It was closed meanwhile; the lane is dropped when the lock is released.
                Ok(_) if inner.over => return false,
                Ok(lane) => {
                    let _ = self.sleeper.set(lane.sleeper());
                    inner.lane = Some(lane);
                    return true;
                }
                Err(_) if thread::now() >= until => patience *= 2,
                Err(error) => {
                    inner.over = true;
                    inner.calls.end(&CallError::Connect(Arc::new(error)));
                }
            }
            give_back(inner);
        }
        false
    }

    /// Ends the calls whose deadlines have passed; returns the first and the last deadline of the others, if there are
    /// any, and when to check again. `None`: no call waits for the lane any more, or holds a place on it.
    fn attend_to_waiting(&self) -> Option<(Option<(Instant, Instant)>, Instant)> {
        let now = thread::now();
        let mut inner = self.lock();
        inner.calls.expire(now, |_, _| {});
        let deadlines = inner.calls.deadlines_of_waiting();
        // There is no call to make it for; the next one starts anew.
        inner.over |= inner.calls.live == 0 || self.ending.load(Ordering::Acquire);
        let is_over = inner.over;
        let most = LONGEST_SLEEP.min(inner.calls.until_deadline(now));
        give_back(inner);
        (!is_over).then_some((deadlines, now + most))
    }

    /// Opens a lane on a separate thread. `None`: no call waits for it any more.
    fn open_beside(&self, recipe: &Arc<Recipe>, window: usize, until: Instant) -> Option<Opened> {
        let mut opening = recipe.open_apart(window, until);
        let driver = thread::waker();
        loop {
            let polled = Pin::new(&mut opening).poll(&mut Context::from_waker(&driver));
            if let Poll::Ready(opened) = polled {
                break Some(opened);
            }
            let (_, looks_at) = self.attend_to_waiting()?;
            thread::park(looks_at.saturating_duration_since(thread::now()));
        }
    }
}
