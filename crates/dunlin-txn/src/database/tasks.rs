//! Transactions of tasks: each step is a future, executed by the progress thread ([`super::progress`]).

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use dunlin_verbs::thread;

use super::retry::Retry;
use super::session::Session;
use super::{Database, DatabaseError, Table, TableKey, TableValue};
use crate::logic::Step;
use crate::types::Key;

impl Database {
    /// Like [`Database::run`], for tasks of any executor: a thread of the database polls and waits. The function takes
    /// the transaction and returns a future, `|t| async move { ... }`.
    ///
    /// If the future is dropped during the commit, the transaction may or may not have committed; if it is dropped
    /// earlier, the transaction has no effect.
    ///
    /// ```
    /// # use dunlin_txn::{Database, DatabaseError, Table};
    /// # async fn withdraw(bank: Database) -> Result<i64, DatabaseError> {
    /// let accounts: &Table<u64, i64> = &bank.table("accounts")?;
    /// bank.run_async(|t| async move {
    ///     let left = t.get(accounts, &1).await?.unwrap_or(100) - 10;
    ///     t.put(accounts, &1, &left)?;
    ///     Ok(left)
    /// })
    /// .await
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`Database::run`]; and [`DatabaseError::Busy`] when [`crate::TRANSACTIONS_MAX`] transactions are open.
    pub async fn run_async<T, E, F, R>(&self, mut function: F) -> Result<T, E>
    where
        E: From<DatabaseError>,
        F: FnMut(AsyncTransaction) -> R,
        R: Future<Output = Result<T, E>>,
    {
        let mut retry = Retry::within(self.deadline, &*self.inner.host);
        let mut pause = Duration::ZERO;
        loop {
            let transaction = self.begin_after(pause);
            let result = function(transaction.clone()).await;
            let failed = match (transaction.take_failure(), result) {
                (None, Err(error)) => return Err(error),
                (None, Ok(value)) if transaction.has_committed() => return Ok(value),
                (None, Ok(value)) => match transaction.end().await {
                    Ok(()) => return Ok(value),
                    Err(error) => error,
                },
                (Some(error), _) => error,
            };
            pause = retry.pause(failed, || self.is_replicated())?;
        }
    }

    /// Like [`Database::run_async`], for a transaction that changes nothing: it takes no locks.
    ///
    /// # Errors
    /// As for [`Database::run_async`].
    pub async fn read_async<T, E, F, R>(&self, mut function: F) -> Result<T, E>
    where
        E: From<DatabaseError>,
        F: FnMut(AsyncReadTransaction) -> R,
        R: Future<Output = Result<T, E>>,
    {
        self.run_async(|transaction| function(AsyncReadTransaction(transaction)))
            .await
    }

    /// Like [`Database::begin`], for tasks: the transaction begins with its first step, and first waits for another to
    /// end if [`crate::TRANSACTIONS_MAX`] are open.
    pub fn begin_async(&self) -> AsyncTransaction {
        self.begin_after(Duration::ZERO)
    }

    fn begin_after(&self, pause: Duration) -> AsyncTransaction {
        let at = thread::now() + pause;
        AsyncTransaction::new(Session::new(at, at + self.deadline), self.clone())
    }
}

/// A transaction of a task: like [`crate::Transaction`], under any executor. Requests made at the same time, as by
/// `join!`, are sent together. Clones are the same transaction; if the last one is dropped before it has committed, it
/// has no effect.
///
/// Returned by [`Database::run_async`] and [`Database::begin_async`].
#[derive(Clone, Debug)]
pub struct AsyncTransaction(Arc<Open>);

#[derive(Debug)]
struct Open {
    session: Arc<Session>,
    database: Database,
}

impl AsyncTransaction {
    pub(super) fn new(session: Arc<Session>, database: Database) -> Self {
        Self(Arc::new(Open { session, database }))
    }

    /// Returns the value of a key, if it has one.
    ///
    /// # Errors
    /// When the transaction cannot continue: return the error, and [`Database::run_async`] retries if that helps.
    pub async fn get<K: TableKey, V: TableValue>(
        &self,
        table: &Table<K, V>,
        key: &K,
    ) -> Result<Option<V>, DatabaseError> {
        let key = table.key(key)?;
        self.fetch(std::slice::from_ref(&key), false).await?;
        self.value(table, &key)
    }

    /// Returns the values of several keys; all machines are asked at once.
    ///
    /// # Errors
    /// As for [`AsyncTransaction::get`].
    pub async fn get_many<'k, K: TableKey + 'k, V: TableValue>(
        &self,
        table: &Table<K, V>,
        keys: impl IntoIterator<Item = &'k K>,
    ) -> Result<Vec<Option<V>>, DatabaseError> {
        let keys = keys.into_iter().map(|key| table.key(key));
        let keys: Vec<Key> = keys.collect::<Result<_, _>>()?;
        self.fetch(&keys, false).await?;
        keys.iter().map(|key| self.value(table, key)).collect()
    }

    /// Like [`AsyncTransaction::get`], but locks the key at once: for contended keys that will be written. Other
    /// transactions that access it meanwhile have to be retried, not this one.
    ///
    /// # Errors
    /// As for [`AsyncTransaction::get`].
    pub async fn get_for_update<K: TableKey, V: TableValue>(
        &self,
        table: &Table<K, V>,
        key: &K,
    ) -> Result<Option<V>, DatabaseError> {
        let key = table.key(key)?;
        self.fetch(std::slice::from_ref(&key), true).await?;
        self.value(table, &key)
    }

    /// Sets the value of a key when the transaction commits. Nothing is sent before.
    ///
    /// # Errors
    /// When the key or the value is too long.
    pub fn put<K: TableKey, V: TableValue>(
        &self,
        table: &Table<K, V>,
        key: &K,
        value: &V,
    ) -> Result<(), DatabaseError> {
        self.0.session.state().set.put(table, key, value)
    }

    /// Deletes a key when the transaction commits.
    ///
    /// # Errors
    /// When the key is too long.
    pub fn delete<K: TableKey, V: TableValue>(
        &self,
        table: &Table<K, V>,
        key: &K,
    ) -> Result<(), DatabaseError> {
        self.0.session.state().set.delete(table, key)
    }

    /// Commits: all writes take effect, and all reads are valid, at one moment. If the future is dropped before it has
    /// completed, the transaction may or may not have committed.
    ///
    /// # Errors
    /// When it has not committed, or may not have committed ([`DatabaseError::UnknownOutcome`]).
    pub async fn commit(self) -> Result<(), DatabaseError> {
        self.end().await
    }

    /// Ends the transaction without effect, like dropping it.
    pub fn abort(self) {}

    pub(super) async fn end(&self) -> Result<(), DatabaseError> {
        let session = &self.0.session;
        let (number, tells) = {
            let mut state = session.state();
            if state.is_over() {
                return Err(DatabaseError::Over);
            }
            let (lock, commit) = state.set.commit();
            let told = lock.is_some_and(|lock| state.ask(lock).1);
            let (number, tells) = state.ask(commit);
            (number, told || tells)
        };
        self.tell(tells)?;
        let ended = session.done(number).await;
        session.state().take_failure().map_or(ended, Err)
    }

    /// Returns the error that made the transaction fail, if it has.
    pub(super) fn take_failure(&self) -> Option<DatabaseError> {
        self.0.session.state().take_failure()
    }

    /// Whether its owner has already committed it.
    pub(super) fn has_committed(&self) -> bool {
        self.0.session.state().has_committed()
    }

    /// Reads keys that have not been read yet, or locks them.
    async fn fetch(&self, keys: &[Key], lock: bool) -> Result<(), DatabaseError> {
        let session = &self.0.session;
        let (number, tells) = {
            let mut state = session.state();
            if state.is_over() {
                return Err(state.failure());
            }
            let Some(access) = state.missing(keys, lock) else {
                return Ok(());
            };
            state.ask(Step::Access(access))
        };
        self.tell(tells)?;
        session.done(number).await
    }

    fn tell(&self, tells: bool) -> Result<(), DatabaseError> {
        let Open { session, database } = &*self.0;
        match tells {
            true => database.inner.progress.tell(session, &database.inner),
            false => Ok(()),
        }
    }

    fn value<K: TableKey, V: TableValue>(
        &self,
        table: &Table<K, V>,
        key: &Key,
    ) -> Result<Option<V>, DatabaseError> {
        let state = self.0.session.state();
        state.set.value(table, key, Some(state.view()))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if self.session.abandon() {
            // If the thread cannot be started, nothing has begun.
            let _ = self
                .database
                .inner
                .progress
                .tell(&self.session, &self.database.inner);
        }
    }
}

/// A transaction that only reads. Returned by [`Database::read_async`].
#[derive(Clone, Debug)]
pub struct AsyncReadTransaction(pub(super) AsyncTransaction);

impl AsyncReadTransaction {
    /// Like [`AsyncTransaction::get`].
    ///
    /// # Errors
    /// As for [`AsyncTransaction::get`].
    pub async fn get<K: TableKey, V: TableValue>(
        &self,
        table: &Table<K, V>,
        key: &K,
    ) -> Result<Option<V>, DatabaseError> {
        self.0.get(table, key).await
    }

    /// Like [`AsyncTransaction::get_many`].
    ///
    /// # Errors
    /// As for [`AsyncTransaction::get`].
    pub async fn get_many<'k, K: TableKey + 'k, V: TableValue>(
        &self,
        table: &Table<K, V>,
        keys: impl IntoIterator<Item = &'k K>,
    ) -> Result<Vec<Option<V>>, DatabaseError> {
        self.0.get_many(table, keys).await
    }
}
