//! The thread that runs async transactions: one driver for those of all tasks, so that everything they request between
//! two polls is sent together, and no thread of an executor polls or blocks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};

use dunlin_verbs::process::Generation;
use dunlin_verbs::thread;
use slab::Slab;

use super::explain::explain;
use super::session::{Session, Steps};
use super::transaction::LINGER;
use super::{DatabaseError, Inner};
use crate::driver::{Driver, Report, TRANSACTIONS_MAX};
use crate::types::TransactionId;

/// Time without events for which it polls before it sleeps: longer than most answers take.
const SPIN: Duration = Duration::from_micros(50);
/// Sleep times while requests are outstanding: the first and the longest; each is twice the one before.
const NAPS: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(1));
/// Longest sleep while none are outstanding: new work wakes it, but it must check the membership by itself.
const IDLE: Duration = Duration::from_millis(20);
/// Longest sleep without any transaction.
const ALONE: Duration = Duration::from_secs(1);
/// Time that abandoned transactions may take to release their locks when the database is closed.
const CLOSING: Duration = Duration::from_secs(1);

/// The thread of a database, which starts with the first async transaction and ends with the database.
#[derive(Debug)]
pub(super) struct Progress {
    shared: Arc<Shared>,
    /// The process that started the thread.
    made: Generation,
}

impl Default for Progress {
    fn default() -> Self {
        Self {
            shared: Arc::default(),
            made: Generation::current(),
        }
    }
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    /// Sessions handed to the thread.
    told: Vec<Arc<Session>>,
    /// Wakes the thread if it sleeps.
    sleeper: Option<Waker>,
    runs: bool,
    /// The database is gone.
    is_over: bool,
}

impl Progress {
    /// Hands a session to the thread.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub(super) fn tell(
        &self,
        session: &Arc<Session>,
        inner: &Arc<Inner>,
    ) -> Result<(), DatabaseError> {
        if !self.made.is_current() {
            return Err(DatabaseError::NoThread {
                why: "this process was forked after the database was opened: open the database again in the child"
                    .to_owned(),
            });
        }
        let mut queue = thread::lock(&self.shared.queue);
        if !queue.runs {
            let (shared, weak) = (Arc::clone(&self.shared), Arc::downgrade(inner));
            // Created by the thread itself: dropping it locks the queue.
            let run = Box::new(move || Engine::new(shared, weak).run());
            let started = inner.host.start("dunlin-progress", run);
            started.map_err(|error| DatabaseError::NoThread {
                why: error.to_string(),
            })?;
            queue.runs = true;
        }
        queue.told.push(Arc::clone(session));
        let sleeper = queue.sleeper.take();
        drop(queue);
        sleeper.into_iter().for_each(Waker::wake);
        Ok(())
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        // In a forked child, which does not have the thread, the lock may be held for ever.
        if !self.made.is_current() {
            return;
        }
        let mut queue = thread::lock(&self.shared.queue);
        queue.is_over = true;
        let sleeper = queue.sleeper.take();
        drop(queue);
        sleeper.into_iter().for_each(Waker::wake);
    }
}

/// A transaction that is running.
struct Begun {
    session: Arc<Session>,
    id: TransactionId,
    at: Instant,
}

/// A transaction whose end has been reported by the driver.
struct Ending {
    of: Begun,
    result: Result<(), DatabaseError>,
    /// Its owner is notified by then at the latest.
    until: Instant,
}

/// The state of the thread.
struct Engine {
    shared: Arc<Shared>,
    inner: Weak<Inner>,
    /// `None` before the first transaction.
    driver: Option<Driver>,
    /// Keyed by the driver's names.
    begun: Slab<Begun>,
    /// Sessions that wait for a slot, in order of arrival.
    ready: BTreeMap<u64, Arc<Session>>,
    deadlines: BTreeSet<(Instant, u64)>,
    /// Sessions that begin later, by time and then by arrival.
    later: BTreeMap<(Instant, u64), Arc<Session>>,
    /// The arrival number of the latest one.
    order: u64,
    /// Transactions that have been reported and may still hold locks.
    ending: Vec<Ending>,
    /// Reports of the last poll.
    reports: Vec<(u64, TransactionId, Report)>,
}

impl Engine {
    fn new(shared: Arc<Shared>, inner: Weak<Inner>) -> Self {
        Self {
            shared,
            inner,
            driver: None,
            begun: Slab::new(),
            ready: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            later: BTreeMap::new(),
            order: 0,
            ending: Vec::new(),
            reports: Vec::new(),
        }
    }

    fn run(mut self) {
        let waker = thread::waker();
        let mut told = Vec::new();
        let mut in_vain: Option<Instant> = None;
        let mut nap = NAPS.0;
        let mut closed: Option<Instant> = None;
        loop {
            let now = thread::now();
            let mut queue = thread::lock(&self.shared.queue);
            std::mem::swap(&mut queue.told, &mut told);
            queue.sleeper = None;
            let is_over = queue.is_over;
            drop(queue);
            let mut busy = !told.is_empty();
            told.drain(..).for_each(|session| self.take(session));
            self.begin(now);
            busy |= self.poll(now);
            if is_over {
                let since = *closed.get_or_insert(now);
                if self.is_done() || now.duration_since(since) >= CLOSING {
                    return;
                }
            }
            if busy {
                (in_vain, nap) = (None, NAPS.0);
                continue;
            }
            if let Some(driver) = &mut self.driver {
                driver.rest();
            }
            if now.duration_since(*in_vain.get_or_insert(now)) < SPIN {
                continue;
            }
            let longest = match &self.driver {
                Some(driver) if !driver.all_wait() => {
                    let longer = (nap * 2).min(NAPS.1);
                    std::mem::replace(&mut nap, longer)
                }
                _ if self.is_done() => ALONE,
                _ => IDLE,
            };
            let next = self.later.keys().next();
            let next = next.map_or(longest, |(at, _)| at.saturating_duration_since(now));
            self.sleep(longest.min(next), &waker);
        }
    }

    /// Sleeps, unless something has been handed over meanwhile.
    fn sleep(&self, longest: Duration, waker: &Waker) {
        let mut queue = thread::lock(&self.shared.queue);
        if !queue.told.is_empty() {
            return;
        }
        queue.sleeper = Some(waker.clone());
        drop(queue);
        thread::park(longest);
    }

    /// Whether there are no transactions left, including those that only have to release locks.
    fn is_done(&self) -> bool {
        let running = self.driver.as_ref().map_or(0, Driver::running);
        running == 0 && self.ready.is_empty() && self.later.is_empty() && self.ending.is_empty()
    }

    /// Takes a step of a session, or queues it if it has not begun.
    fn take(&mut self, session: Arc<Session>) {
        let mut state = session.state();
        if !state.is_told() {
            return;
        }
        if let (Some(slot), Some(driver)) = (state.slot, &mut self.driver) {
            let step = state.next();
            drop(state);
            return step.into_iter().for_each(|step| driver.proceed(slot, step));
        }
        drop(state);
        self.order += 1;
        let place = (session.not_before, self.order);
        self.later.insert(place, session);
    }

    /// Begins as many transactions as possible, in order; reports an error to those that have waited too long.
    fn begin(&mut self, now: Instant) {
        while let Some(first) = self
            .later
            .first_entry()
            .filter(|entry| entry.key().0 <= now)
        {
            let ((_, order), session) = first.remove_entry();
            self.deadlines.insert((session.deadline, order));
            self.ready.insert(order, session);
        }
        if self.ready.is_empty() {
            return;
        }
        if self.driver.is_none() {
            let inner = self.inner.upgrade();
            match inner.map(|inner| inner.driver(TRANSACTIONS_MAX)) {
                Some(Ok(driver)) => self.driver = Some(driver),
                Some(Err(error)) => {
                    if let Some(first) = self.next_ready() {
                        first.end(Err(error));
                    }
                    return;
                }
                None => return,
            }
        }
        while self.driver.as_ref().is_some_and(|driver| driver.free() > 0) {
            let (Some(session), Some(driver)) = (self.next_ready(), &mut self.driver) else {
                return;
            };
            let entry = self.begun.vacant_entry();
            let steps = Box::new(Steps(Arc::clone(&session)));
            // Its end is reported by a poll.
            if let Some(id) = driver.begin(entry.key() as u64, steps) {
                session.state().slot = Some(id.slot);
                let at = now;
                entry.insert(Begun { session, id, at });
            }
        }
        let open = self.driver.as_ref().map_or(0, Driver::running);
        while let Some((_, order)) = self.deadlines.first().filter(|(at, _)| *at <= now).copied() {
            self.deadlines.pop_first();
            if let Some(session) = self.ready.remove(&order) {
                session.end(Err(DatabaseError::Busy { open }));
            }
        }
    }

    fn next_ready(&mut self) -> Option<Arc<Session>> {
        let (order, session) = self.ready.pop_first()?;
        self.deadlines.remove(&(session.deadline, order));
        Some(session)
    }

    /// Polls the driver and reports how transactions have ended. Returns whether anything has arrived.
    fn poll(&mut self, now: Instant) -> bool {
        let Some(driver) = &mut self.driver else {
            return false;
        };
        let reports = &mut self.reports;
        let busy = driver.poll(|name, id, report| reports.push((name, id, report)));
        let mut settled = Vec::new();
        for (name, id, report) in self.reports.drain(..) {
            let begun = match report {
                Report::Settled(_) => {
                    settled.push(id);
                    continue;
                }
                Report::Undone => continue,
                Report::Ended(result) => {
                    let known = self.begun.get(name as usize).is_some_and(|b| b.id == id);
                    known.then(|| (self.begun.remove(name as usize), result))
                }
            };
            let Some((begun, result)) = begun else {
                continue;
            };
            let result = result.map(drop).map_err(|error| {
                let inner = self.inner.upgrade();
                explain(error, (id, begun.at), inner.as_deref(), Some(&*driver))
            });
            self.ending.push(Ending {
                of: begun,
                result,
                until: now + LINGER,
            });
        }
        for at in (0..self.ending.len()).rev() {
            let Ending { of, until, .. } = &self.ending[at];
            let locks = driver
                .coordinator(of.id.slot)
                .is_some_and(|c| c.id() == of.id);
            if !locks || *until <= now {
                let Ending { of, result, .. } = self.ending.swap_remove(at);
                of.session.end(result);
            }
        }
        if let Some(inner) = self.inner.upgrade().filter(|_| !settled.is_empty()) {
            inner.finisher.settled(settled);
        }
        busy
    }
}

impl Drop for Engine {
    /// Nobody may wait for a thread that has ended, even if it panicked.
    fn drop(&mut self) {
        let mut queue = thread::lock(&self.shared.queue);
        queue.runs = false;
        let told = std::mem::take(&mut queue.told);
        drop(queue);
        for Ending { of, result, .. } in self.ending.drain(..) {
            of.session.end(result);
        }
        let begun = self.begun.drain().map(|begun| begun.session);
        let ready = std::mem::take(&mut self.ready).into_values();
        let later = std::mem::take(&mut self.later).into_values();
        let left = begun.chain(ready).chain(later).chain(told);
        for session in left {
            session.end(Err(DatabaseError::NoThread {
                why: "it ended before the transaction did".to_owned(),
            }));
        }
    }
}
