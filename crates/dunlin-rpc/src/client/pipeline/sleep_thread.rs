//! A thread that sleeps on a lane in a task's place, and wakes the task when something comes.

use std::sync::{Arc, Mutex, OnceLock};
use std::task::Waker;
use std::time::Duration;

use dunlin_verbs::thread;

use crate::call::lane::Sleeper;
use crate::client::recipe::Recipe;
use crate::doze::LONGEST_SLEEP;
use crate::error::CallError;

/// The thread, which ends with this.
pub(super) struct SleepThread(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Ends the thread's rest between two sleeps.
    rest: OnceLock<Waker>,
}

#[derive(Default)]
struct State {
    /// What it is to do next.
    next: Option<Sleep>,
    /// What it sleeps on now.
    on: Option<Arc<dyn Sleeper>>,
    /// Who is woken after it.
    task: Option<Waker>,
    is_over: bool,
}

struct Sleep {
    /// `None`: nothing can wake it.
    on: Option<Arc<dyn Sleeper>>,
    most: Duration,
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

    /// Sleeps for `most` at most and then wakes `task`. A sleep that goes on wakes this task, too, instead of the one
    /// before, whose waker stands in its place then: they are somebody else's code, to be dropped where that may run.
    pub(super) fn sleep(
        &self,
        on: Option<Box<dyn Sleeper>>,
        most: Duration,
        task: &mut Option<Waker>,
    ) {
        let on = on.map(Arc::from);
        let mut state = thread::lock(&self.0.state);
        std::mem::swap(&mut state.task, task);
        state.next = Some(Sleep { on, most });
        drop(state);
        if let Some(rest) = self.0.rest.get() {
            rest.wake_by_ref();
        }
    }
}

impl Drop for SleepThread {
    fn drop(&mut self) {
        let mut state = thread::lock(&self.0.state);
        state.is_over = true;
        let (former, on) = (state.task.take(), state.on.clone());
        drop(state);
        drop(former);
        if let Some(on) = on {
            on.wake();
        }
        if let Some(rest) = self.0.rest.get() {
            rest.wake_by_ref();
        }
    }
}

impl Shared {
    fn run(&self) {
        let _ = self.rest.set(thread::waker());
        loop {
            let mut state = thread::lock(&self.state);
            if state.is_over {
                return;
            }
            let next = state.next.take();
            state.on = next.as_ref().and_then(|next| next.on.clone());
            drop(state);
            let Some(next) = next else {
                thread::park(LONGEST_SLEEP);
                continue;
            };
            let slept = match &next.on {
                Some(on) => on.sleep(next.most),
                None => {
                    thread::sleep(next.most);
                    Ok(())
                }
            };
            if slept.is_err() {
                // The task sees what has become of the lane by itself, but not at once again and again.
                thread::sleep(next.most.min(Duration::from_millis(1)));
            }
            let mut state = thread::lock(&self.state);
            state.on = None;
            // The task says anew what it wants.
            state.next = None;
            let task = state.task.take();
            drop(state);
            task.into_iter().for_each(Waker::wake);
        }
    }
}
