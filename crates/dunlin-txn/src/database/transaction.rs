//! Transactions executed step by step.

use std::time::{Duration, Instant};

use dunlin_verbs::thread;

use super::explain::explain;
use super::write_set::WriteSet;
use super::{Database, DatabaseError, Table, TableKey, TableValue};
use crate::driver::{Driver, Report};
use crate::logic::{Logic, Step, View};
use crate::types::{Key, TransactionId};

/// Time that the end of a transaction waits for the last answers before it hands them to a thread of the database.
pub(super) const LINGER: Duration = Duration::from_millis(20);

/// Waits for its owner's decisions.
#[derive(Debug)]
struct StepByStep;

impl Logic for StepByStep {
    fn step(&mut self, _view: View<'_>) -> Step {
        Step::Wait
    }
}

/// A transaction. Everything it reads existed at one moment, that of its commit; others see its writes from then on.
/// Reads see the transaction's own writes.
///
/// Returned by [`Database::run`] and [`Database::begin`].
#[derive(Debug)]
pub struct Transaction {
    /// Present until the end of the transaction.
    driver: Option<Driver>,
    database: Database,
    id: TransactionId,
    began: Instant,
    set: WriteSet,
    failure: Option<DatabaseError>,
    over: bool,
}

impl Transaction {
    pub(super) fn new(mut driver: Driver, database: Database) -> Self {
        let id = driver.begin(0, Box::new(StepByStep));
        // A driver in the pool has no running transaction.
        let id = id.unwrap_or_else(|| unreachable!("a pooled driver without a free slot"));
        Self {
            driver: Some(driver),
            database,
            id,
            began: thread::now(),
            set: WriteSet::default(),
            failure: None,
            over: false,
        }
    }

    /// The transaction's number, for [`Database::outcome`].
    pub fn id(&self) -> TransactionId {
        self.id
    }

    /// Returns the value of a key, if it has one.
    ///
    /// # Errors
    /// When the transaction cannot continue: return the error, and [`Database::run`] retries if that helps.
    pub fn get<K: TableKey, V: TableValue>(
        &mut self,
        table: &Table<K, V>,
        key: &K,
    ) -> Result<Option<V>, DatabaseError> {
        let key = table.key(key)?;
        self.fetch(std::slice::from_ref(&key), false)?;
        self.value(table, &key)
    }

    /// Returns the values of several keys; all machines are asked at once.
    ///
    /// # Errors
    /// As for [`Transaction::get`].
    pub fn get_many<'k, K: TableKey + 'k, V: TableValue>(
        &mut self,
        table: &Table<K, V>,
        keys: impl IntoIterator<Item = &'k K>,
    ) -> Result<Vec<Option<V>>, DatabaseError> {
        let keys: Vec<Key> = keys
            .into_iter()
            .map(|key| table.key(key))
            .collect::<Result<_, _>>()?;
        self.fetch(&keys, false)?;
        keys.iter().map(|key| self.value(table, key)).collect()
    }

    /// Like [`Transaction::get`], but locks the key at once: for contended keys that will be written. Other
    /// transactions that access it meanwhile have to be retried, not this one.
    ///
    /// # Errors
    /// As for [`Transaction::get`].
    pub fn get_for_update<K: TableKey, V: TableValue>(
        &mut self,
        table: &Table<K, V>,
        key: &K,
    ) -> Result<Option<V>, DatabaseError> {
        let key = table.key(key)?;
        self.fetch(std::slice::from_ref(&key), true)?;
        self.value(table, &key)
    }

    /// Sets the value of a key when the transaction commits. Nothing is sent before.
    ///
    /// # Errors
    /// When the key or the value is too long.
    pub fn put<K: TableKey, V: TableValue>(
        &mut self,
        table: &Table<K, V>,
        key: &K,
        value: &V,
    ) -> Result<(), DatabaseError> {
        self.set.put(table, key, value)
    }

    /// Deletes a key when the transaction commits.
    ///
    /// # Errors
    /// When the key is too long.
    pub fn delete<K: TableKey, V: TableValue>(
        &mut self,
        table: &Table<K, V>,
        key: &K,
    ) -> Result<(), DatabaseError> {
        self.set.delete(table, key)
    }

    /// Commits: all writes take effect, and all reads are valid, at one moment.
    ///
    /// # Errors
    /// When it has not committed, or may not have committed ([`DatabaseError::UnknownOutcome`]).
    pub fn commit(mut self) -> Result<(), DatabaseError> {
        self.check()?;
        let (lock, commit) = self.set.commit();
        if let Some(lock) = lock {
            self.step(lock)?;
        }
        self.step(commit)
    }

    /// Ends the transaction without effect, like dropping it.
    pub fn abort(self) {}

    /// Reads keys that have not been read yet, or locks them.
    fn fetch(&mut self, keys: &[Key], lock: bool) -> Result<(), DatabaseError> {
        self.check()?;
        let Some(seen) = seen(self.driver.as_ref(), self.id) else {
            return Err(DatabaseError::Over);
        };
        match self.set.missing(keys, lock, |key| seen.has(key)) {
            Some(access) => self.step(Step::Access(access)),
            None => Ok(()),
        }
    }

    fn value<K: TableKey, V: TableValue>(
        &self,
        table: &Table<K, V>,
        key: &Key,
    ) -> Result<Option<V>, DatabaseError> {
        let seen = seen(self.driver.as_ref(), self.id);
        self.set.value(table, key, seen)
    }

    fn check(&self) -> Result<(), DatabaseError> {
        match self.over {
            true => Err(DatabaseError::Over),
            false => Ok(()),
        }
    }

    /// Returns the error that made the transaction fail, if it has.
    pub(super) fn take_failure(&mut self) -> Option<DatabaseError> {
        self.failure.take()
    }

    /// Takes a step and waits for its end. A step that fails ends the transaction; [`Database::run`] learns this from
    /// [`Transaction::take_failure`], whatever happens to the error that is returned.
    fn step(&mut self, step: Step) -> Result<(), DatabaseError> {
        let commits = matches!(step, Step::Commit(_));
        let Some(driver) = &mut self.driver else {
            return Err(DatabaseError::Over);
        };
        driver.proceed(self.id.slot, step);
        let (mut ended, mut settled) = (None, Vec::new());
        while ended.is_none() {
            // Reports of this driver's previous transaction may arrive first.
            let busy = driver.poll(|_, id, report| match report {
                Report::Ended(result) if id == self.id => ended = Some(result),
                Report::Settled(_) => settled.push(id),
                _ => {}
            });
            if !settled.is_empty() {
                let finisher = &self.database.inner.finisher;
                finisher.settled(std::mem::take(&mut settled));
            }
            let waits = |c: &crate::Coordinator| c.is_waiting();
            if ended.is_none() && driver.coordinator(self.id.slot).is_some_and(waits) {
                return Ok(());
            }
            if !busy && ended.is_none() {
                driver.rest();
            }
        }
        self.over = true;
        let error = match ended {
            Some(Err(error)) => error,
            _ => return Ok(()),
        };
        let of = (self.id, self.began);
        let error = explain(error, of, Some(&self.database.inner), self.driver.as_ref());
        if commits {
            return Err(error);
        }
        let again = error.again();
        self.failure = Some(error);
        Err(again)
    }
}

/// What a transaction has read so far, unless it is over.
fn seen(driver: Option<&Driver>, id: TransactionId) -> Option<View<'_>> {
    let coordinator = driver?.coordinator(id.slot)?;
    Some(coordinator.view())
}

impl Drop for Transaction {
    /// Aborts a transaction that has not committed, and makes sure that its locks are released.
    fn drop(&mut self) {
        let Some(mut driver) = self.driver.take() else {
            return;
        };
        if !self.over {
            driver.proceed(self.id.slot, Step::Abort);
        }
        let until = thread::now() + LINGER;
        let mut settled = Vec::new();
        while driver.running() > 0 && thread::now() < until {
            let busy = driver.poll(|_, id, report| {
                if let Report::Settled(_) = report {
                    settled.push(id);
                }
            });
            if !busy {
                driver.rest();
            }
        }
        if !settled.is_empty() {
            self.database.inner.finisher.settled(settled);
        }
        match driver.running() {
            0 => self.database.inner.give_back(driver),
            _ => self
                .database
                .inner
                .finisher
                .take(driver, &self.database.inner),
        }
    }
}

/// A transaction that only reads.
#[derive(Debug)]
pub struct ReadTransaction<'t>(&'t mut Transaction);

impl<'t> ReadTransaction<'t> {
    pub(super) fn new(transaction: &'t mut Transaction) -> Self {
        Self(transaction)
    }

    /// Like [`Transaction::get`].
    ///
    /// # Errors
    /// As for [`Transaction::get`].
    pub fn get<K: TableKey, V: TableValue>(
        &mut self,
        table: &Table<K, V>,
        key: &K,
    ) -> Result<Option<V>, DatabaseError> {
        self.0.get(table, key)
    }

    /// Like [`Transaction::get_many`].
    ///
    /// # Errors
    /// As for [`Transaction::get`].
    pub fn get_many<'k, K: TableKey + 'k, V: TableValue>(
        &mut self,
        table: &Table<K, V>,
        keys: impl IntoIterator<Item = &'k K>,
    ) -> Result<Vec<Option<V>>, DatabaseError> {
        self.0.get_many(table, keys)
    }
}
