//! The threads that open connections for authenticated clients, so that no client blocks the port, and the clients of
//! one origin do not block the others.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Scope};
use std::time::Duration;

/// Maximum number of threads: opening a connection may have to wait for the client's device.
const THREADS_MAX: usize = 16;
/// Maximum number of threads that work for one origin: the rest are for others.
const THREADS_OF_ONE: usize = 12;
/// Time that a thread without work stays.
const LINGER: Duration = Duration::from_secs(2);

/// Jobs for a few threads, which are started when there is work and end without it.
#[derive(Debug)]
pub(crate) struct Openers<J> {
    state: Mutex<State<J>>,
    news: Condvar,
}

#[derive(Debug)]
struct State<J> {
    /// Each with its origin.
    jobs: VecDeque<(IpAddr, J)>,
    threads: usize,
    idle: usize,
    /// Number of jobs in progress, for each origin.
    at_work: HashMap<IpAddr, usize>,
    closed: bool,
}

impl<J> State<J> {
    fn at_work_for(&self, origin: IpAddr) -> usize {
        self.at_work.get(&origin).copied().unwrap_or(0)
    }

    /// Takes the oldest job of the origin with the fewest jobs in progress.
    fn begin(&mut self) -> Option<(IpAddr, J)> {
        let jobs = self.jobs.iter().enumerate();
        let at_work = jobs.map(|(index, (origin, _))| (self.at_work_for(*origin), index));
        let (at_work, index) = at_work.min()?;
        if at_work >= THREADS_OF_ONE {
            return None;
        }
        let (origin, job) = self.jobs.remove(index)?;
        *self.at_work.entry(origin).or_default() += 1;
        Some((origin, job))
    }

    fn waiting_for(&self, origin: IpAddr) -> usize {
        self.jobs.iter().filter(|(of, _)| *of == origin).count()
    }

    /// The origin of more than half of the waiting jobs.
    fn majority(&self) -> Option<IpAddr> {
        // Pairs of different origins are removed, which preserves a majority (Boyer and Moore).
        let (mut candidate, mut lead) = (None, 0);
        for (origin, _) in &self.jobs {
            match (lead, candidate == Some(*origin)) {
                (0, _) => (candidate, lead) = (Some(*origin), 1),
                (_, true) => lead += 1,
                (_, false) => lead -= 1,
            }
        }
        candidate.filter(|&origin| 2 * self.waiting_for(origin) > self.jobs.len())
    }

    fn end(&mut self, origin: IpAddr) {
        if let Some(at_work) = self.at_work.get_mut(&origin) {
            *at_work -= 1;
            if *at_work == 0 {
                self.at_work.remove(&origin);
            }
        }
    }
}

impl<J: Send> Openers<J> {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::new(State {
                jobs: VecDeque::new(),
                threads: 0,
                idle: 0,
                at_work: HashMap::new(),
                closed: false,
            }),
            news: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<J>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of jobs that are not finished.
    pub(crate) fn len(&self) -> usize {
        let state = self.lock();
        state.jobs.len() + state.at_work.values().sum::<usize>()
    }

    /// Whether one origin has more than half of the waiting jobs.
    pub(crate) fn has_one_most(&self) -> bool {
        self.lock().majority().is_some()
    }

    /// Makes room for a job of `newcomer`: returns the newest waiting job of another origin, provided that this origin
    /// has more than half of all jobs and afterwards still has at least as many as the newcomer's; otherwise the two
    /// could displace each other in turn.
    pub(crate) fn evict_for(&self, newcomer: IpAddr) -> Option<J> {
        let mut state = self.lock();
        let most = state.majority()?;
        if state.waiting_for(most) < state.waiting_for(newcomer) + 2 {
            return None;
        }
        let newest = state.jobs.iter().rposition(|(of, _)| *of == most)?;
        state.jobs.remove(newest).map(|(_, job)| job)
    }

    /// Has one of the threads execute `work` with this job, which belongs to `origin`.
    ///
    /// # Errors
    /// Returns the job if there is no thread and none can be started.
    pub(crate) fn submit<'scope, 'env>(
        &'env self,
        scope: &'scope Scope<'scope, 'env>,
        work: &'env (impl Fn(J) + Sync),
        (origin, job): (IpAddr, J),
    ) -> Result<(), J>
    where
        J: 'scope,
    {
        let mut state = self.lock();
        state.jobs.push_back((origin, job));
        if state.idle >= state.jobs.len() {
            drop(state);
            self.news.notify_one();
            return Ok(());
        }
        if state.threads >= THREADS_MAX {
            let is_idle = state.idle > 0;
            drop(state);
            if is_idle {
                // The other jobs wait for threads that work for their origin.
                self.news.notify_one();
            }
            return Ok(());
        }
        let thread = thread::Builder::new().name("dunlin-bootstrap".to_owned());
        match thread.spawn_scoped(scope, move || self.work(work)) {
            Ok(_) => state.threads += 1,
            Err(error) if state.threads == 0 => {
                tracing::warn!(%error, "cannot start a thread to open a connection");
                return state.jobs.pop_back().map_or(Ok(()), |(_, job)| Err(job));
            }
            Err(error) => {
                tracing::debug!(%error, "cannot start another thread to open connections")
            }
        }
        Ok(())
    }

    fn work(&self, work: &(impl Fn(J) + Sync)) {
        let mut state = self.lock();
        loop {
            if let Some((origin, job)) = state.begin() {
                drop(state);
                work(job);
                state = self.lock();
                state.end(origin);
                continue;
            }
            if state.closed {
                break;
            }
            // Jobs that are still waiting are left to the threads that work for their origin.
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

    /// Lets the threads end after their current jobs. Returns the jobs that have not been begun.
    pub(crate) fn close(&self) -> impl Iterator<Item = J> {
        let mut state = self.lock();
        state.closed = true;
        let jobs = std::mem::take(&mut state.jobs);
        drop(state);
        self.news.notify_all();
        jobs.into_iter().map(|(_, job)| job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use std::sync::mpsc;

    fn origin(last: u8) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, last).into()
    }

    #[test]
    fn who_keeps_its_threads_waiting_does_not_keep_others_waiting() {
        let openers = Openers::new();
        let (release, released) = mpsc::channel::<()>();
        let released = Mutex::new(released);
        let (done, is_done) = mpsc::channel();
        let work = |job: u8| match job {
            // All jobs of the first origin wait for the end of the test.
            1 => drop(released.lock().unwrap().recv()),
            other => done.send(other).unwrap(),
        };
        let (openers, work) = (&openers, &work);
        thread::scope(|scope| {
            for _ in 0..4 * THREADS_MAX {
                assert_eq!(openers.submit(scope, work, (origin(1), 1)), Ok(()));
            }
            assert_eq!(openers.submit(scope, work, (origin(2), 2)), Ok(()));
            let patience = Duration::from_secs(60);
            assert_eq!(is_done.recv_timeout(patience), Ok(2));
            // Nor does it keep all places.
            assert!(openers.has_one_most());
            assert_eq!(openers.evict_for(origin(1)), None);
            assert_eq!(openers.evict_for(origin(2)), Some(1));
            // The others have not been begun.
            assert!(openers.close().count() >= 2 * THREADS_MAX);
            drop(release);
        });
        assert_eq!(openers.len(), 0);
    }

    #[test]
    fn nobody_is_evicted_for_being_one_of_many() {
        let openers = Openers::new();
        openers.lock().jobs = (0..100).map(|job| (origin(job % 2), job)).collect();
        assert_eq!(openers.evict_for(origin(2)), None);
        assert!(!openers.has_one_most());
    }

    #[test]
    fn two_origins_do_not_displace_each_other_in_turn() {
        let openers = Openers::new();
        openers.lock().jobs = (0..101).map(|job| (origin(job % 2), job)).collect();
        // 51 and 50: another job of the second origin would only reverse this.
        assert!(openers.has_one_most());
        assert_eq!(openers.evict_for(origin(1)), None);
        assert_eq!(openers.evict_for(origin(0)), None);
        assert_eq!(openers.evict_for(origin(2)), Some(100));
        // 60 and 50.
        openers
            .lock()
            .jobs
            .extend((0..10).map(|job| (origin(0), job)));
        for _ in 0..5 {
            assert!(openers.evict_for(origin(1)).is_some());
            openers.lock().jobs.push_back((origin(1), 0));
        }
        assert_eq!(openers.evict_for(origin(1)), None);
        assert_eq!(openers.evict_for(origin(0)), None);
    }
}
