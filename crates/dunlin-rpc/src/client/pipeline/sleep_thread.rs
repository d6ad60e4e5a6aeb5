//! A thread that sleeps on a lane on behalf of a task, and wakes the task when something arrives.

use std::sync::{Arc, Mutex, OnceLock};
use std::task::Waker;
use std::time::{Duration, Instant};

use dunlin_verbs::thread;

use crate::call::lane::Sleeper;
use crate::client::driver::DEADLINE_STEP;
use crate::client::recipe::Recipe;
use crate::client::wait::end_of;
use crate::doze::LONGEST_SLEEP;
use crate::error::CallError;

/// The thread, which ends when this is dropped.
pub(super) struct SleepThread(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Ends the thread's rest between two sleeps, and sleeps without a lane.
    rest: OnceLock<Waker>,
}

#[derive(Default)]
struct State {
    /// What it is to do next.
    next: Option<Sleep>,
    /// What it does now; `None` also once that is to end early.
    current: Option<Sleep>,
    /// The task to wake afterwards.
    task: Option<Waker>,
    is_over: bool,
}

#[derive(Clone)]
struct Sleep {
    /// `None`: nothing can wake it early.
    on: Option<Arc<dyn Sleeper>>,
    until: Instant,
}

impl SleepThread {
    pub(super) fn start(recipe: &Recipe) -> Result<Self, CallError> {
        let shared = Arc::new(Shared::default());
        let run = Arc::clone(&shared);
        recipe
            .spawn("dunlin-sleep", move || run.run())
            .map_err(|error| CallError::NoThread {
                why: error.to_string(),
            })?;
        Ok(Self(shared))
    }

    /// Sleeps for at most `most` and then wakes `task`. A sleep in progress wakes this task, too, instead of the former
    /// one, whose waker is left in `task`: wakers are foreign code, to be dropped where that may run. A sleep that
    /// would last longer than this one ends now.
    pub(super) fn sleep(
        &self,
        on: Option<Box<dyn Sleeper>>,
        most: Duration,
        task: &mut Option<Waker>,
    ) {
        let until = end_of(thread::now(), most);
        let on = on.map(Arc::from);
        let mut state = thread::lock(&self.0.state);
        std::mem::swap(&mut state.task, task);
        state.next = Some(Sleep { on, until });
        let ended = state
            .current
            .take_if(|current| current.until.saturating_duration_since(until) > DEADLINE_STEP);
        drop(state);
        self.0.end(ended);
    }

    /// Ends a sleep on a lane that was replaced: its task then requests a new one.
    pub(super) fn leave_lane(&self) {
        let ended = thread::lock(&self.0.state).current.take();
        self.0.end(ended);
    }
}

impl Drop for SleepThread {
    fn drop(&mut self) {
        let mut state = thread::lock(&self.0.state);
        state.is_over = true;
        let (former, ended) = (state.task.take(), state.current.take());
        drop(state);
        drop(former);
        self.0.end(ended);
    }
}

impl Shared {
    /// Ends this sleep, the former current one, if there is one, and makes the thread check what to do next. Called
    /// without the lock: waking takes locks of the lane.
    fn end(&self, sleep: Option<Sleep>) {
        if let Some(on) = sleep.and_then(|sleep| sleep.on) {
            on.wake();
        }
        if let Some(rest) = self.rest.get() {
            rest.wake_by_ref();
        }
    }

    fn run(&self) {
        let _ = self.rest.set(thread::waker());
        loop {
            let mut state = thread::lock(&self.state);
            if state.is_over {
                return;
            }
            state.current = state.next.take();
            let current = state.current.clone();
            drop(state);
            let Some(current) = current else {
                thread::park(LONGEST_SLEEP);
                continue;
            };
            self.sleep(&current);
            let mut state = thread::lock(&self.state);
            state.current = None;
            // The task requests a new sleep: the event that woke the thread may have been for the lane of the next
            // sleep.
            state.next = None;
            let task = state.task.take();
            drop(state);
            task.into_iter().for_each(Waker::wake);
        }
    }

    fn sleep(&self, sleep: &Sleep) {
        let left = || sleep.until.saturating_duration_since(thread::now());
        let Some(on) = &sleep.on else {
            while !left().is_zero() && thread::lock(&self.state).current.is_some() {
                thread::park(left());
            }
            return;
        };
        if on.sleep(left()).is_err() {
            // The task finds the failure of the lane by itself, but should not be woken over and over.
            thread::sleep(left().min(DEADLINE_STEP));
        }
    }
}
