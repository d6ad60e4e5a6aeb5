//! Finishes transactions that no caller waits for any more: those whose outcome is unknown, or whose locks are still to
//! be released. One thread keeps asking the machines for a limited time.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use dunlin_verbs::thread;

use super::Inner;
use crate::driver::{Driver, Report};
use crate::types::TransactionId;

/// How long it keeps asking. A machine that has not answered by then will not: it no longer has a record of the
/// transaction.
const PATIENCE: Duration = Duration::from_secs(30);
/// Pause after a poll that brought nothing.
const PAUSE: Duration = Duration::from_millis(1);
/// Number of outcomes kept for later queries.
const KEPT: usize = 10_000;

/// The outcome of a transaction that was reported as unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// It has committed.
    Committed,
    /// Its machines have not confirmed it yet.
    Unknown,
}

#[derive(Debug, Default)]
struct State {
    drivers: Vec<(Driver, Instant)>,
    committed: HashSet<TransactionId>,
    runs: bool,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(super) struct Finisher(Arc<Shared>);

impl Finisher {
    /// Takes over a driver with unfinished transactions.
    pub(super) fn take(&self, driver: Driver, inner: &Arc<Inner>) {
        let mut state = self.0.state();
        state.drivers.push((driver, thread::now() + PATIENCE));
        if !state.runs {
            let (shared, weak) = (Arc::clone(&self.0), Arc::downgrade(inner));
            let run = Box::new(move || finish(&shared, &weak));
            // If no thread can be started, the next driver that is handed over tries again.
            state.runs = inner.host.start("dunlin-finish", run).is_ok();
        }
    }

    /// Records transactions of unknown outcome that turned out to have committed.
    pub(super) fn settled(&self, transactions: Vec<TransactionId>) {
        self.0.settled(transactions);
    }

    pub(super) fn outcome(&self, transaction: TransactionId, wait: Duration) -> Outcome {
        let until = thread::now() + wait;
        loop {
            if self.0.state().committed.contains(&transaction) {
                return Outcome::Committed;
            }
            let left = until.saturating_duration_since(thread::now());
            if left.is_zero() {
                return Outcome::Unknown;
            }
            thread::sleep(left.min(PAUSE));
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        thread::lock(&self.state)
    }

    fn settled(&self, transactions: Vec<TransactionId>) {
        let mut state = self.state();
        if state.committed.len() > KEPT {
            state.committed.clear();
        }
        state.committed.extend(transactions);
    }
}

/// Runs until there are no drivers left, or the database is gone.
fn finish(shared: &Shared, inner: &Weak<Inner>) {
    let mut mine: Vec<(Driver, Instant)> = Vec::new();
    loop {
        let mut settled = Vec::new();
        let mut busy = false;
        for (driver, _) in &mut mine {
            busy |= driver.poll(|_, id, report| {
                if let Report::Settled(_) = report {
                    settled.push(id);
                }
            });
            if !busy {
                driver.rest();
            }
        }
        let (over, left): (Vec<_>, Vec<_>) = std::mem::take(&mut mine)
            .into_iter()
            .partition(|(driver, until)| driver.running() == 0 || thread::now() > *until);
        mine = left;
        let alive = inner.upgrade();
        for (driver, _) in over {
            if let (0, Some(inner)) = (driver.running(), &alive) {
                inner.give_back(driver);
            }
        }
        if !settled.is_empty() {
            shared.settled(settled);
        }
        let mut state = shared.state();
        mine.append(&mut state.drivers);
        if mine.is_empty() || alive.is_none() {
            state.runs = false;
            return;
        }
        drop(state);
        drop(alive);
        if !busy {
            thread::sleep(PAUSE);
        }
    }
}
