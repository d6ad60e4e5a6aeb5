//! The threads that open connections for clients that have proved themselves, so that the port is never kept waiting by
//! one.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Scope};
use std::time::Duration;

/// Threads at most: an opening can wait for its client's device.
const THREADS_MAX: usize = 16;
/// How long a thread without work stays.
const LINGER: Duration = Duration::from_secs(2);

/// Work for a few threads, which come with the work and go without it.
#[derive(Debug)]
pub(crate) struct Openers<J> {
    state: Mutex<State<J>>,
    news: Condvar,
}

#[derive(Debug)]
struct State<J> {
    jobs: VecDeque<J>,
    threads: usize,
    idle: usize,
    /// Jobs that are done at this moment.
    at_work: usize,
    closed: bool,
}

impl<J: Send> Openers<J> {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::new(State {
                jobs: VecDeque::new(),
                threads: 0,
                idle: 0,
                at_work: 0,
                closed: false,
            }),
            news: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<J>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Jobs that are not done.
    pub(crate) fn len(&self) -> usize {
        let state = self.lock();
        state.jobs.len() + state.at_work
    }

    /// Has `work` done with this job by one of the threads.
    ///
    /// # Errors
    /// Gives the job back when there is no thread and none can be started.
    pub(crate) fn submit<'scope, 'env>(
        &'env self,
        scope: &'scope Scope<'scope, 'env>,
        work: &'env (impl Fn(J) + Sync),
        job: J,
    ) -> Result<(), J>
    where
        J: 'scope,
    {
        let mut state = self.lock();
        state.jobs.push_back(job);
        if state.idle >= state.jobs.len() {
            drop(state);
            self.news.notify_one();
            return Ok(());
        }
        if state.threads >= THREADS_MAX {
            return Ok(());
        }
        let thread = thread::Builder::new().name("dunlin-bootstrap".to_owned());
        match thread.spawn_scoped(scope, move || self.work(work)) {
            Ok(_) => state.threads += 1,
            Err(error) if state.threads == 0 => {
                tracing::warn!(%error, "no thread to open a connection");
                return state.jobs.pop_back().map_or(Ok(()), Err);
            }
            Err(error) => tracing::debug!(%error, "no further thread to open connections"),
        }
        Ok(())
    }

    fn work(&self, work: &(impl Fn(J) + Sync)) {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                state.at_work += 1;
                drop(state);
                work(job);
                state = self.lock();
                state.at_work -= 1;
                continue;
            }
            if state.closed {
                break;
            }
            state.idle += 1;
            let waited = self.news.wait_timeout(state, LINGER);
            let (again, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state = again;
            state.idle -= 1;
            if timeout.timed_out() && state.jobs.is_empty() {
                break;
            }
        }
        state.threads -= 1;
    }

    /// Has the threads end when all jobs are done.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.news.notify_all();
    }
}
