//! Transactions of tasks: each step is a future, and the progress thread ([`super::progress`]) takes it.

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
    /// As [`Database::run`], for tasks of any executor: a thread of the database's own polls and waits. The function is
    /// given the transaction and returns a future, `|t| async move { ... }`.
    ///
    /// When the future is dropped while it commits, the transaction may have committed or not; before, it has no
    /// effect.
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
    /// As for [`Database::run`]; and [`DatabaseError::Busy`] where [`crate::TRANSACTIONS_MAX`] are open.
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

    /// As [`Database::run_async`] for a transaction that changes nothing: it takes no locks.
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

    /// As [`Database::begin`], for tasks: it begins with its first step, and waits until another has ended where
    /// [`crate::TRANSACTIONS_MAX`] are open.
    pub fn begin_async(&self) -> AsyncTransaction {
        self.begin_after(Duration::ZERO)
    }

    fn begin_after(&self, pause: Duration) -> AsyncTransaction {
        let at = thread::now() + pause;
        AsyncTransaction::new(Session::new(at, at + self.deadline), self.clone())
    }
}

/// A transaction of a task: as [`crate::Transaction`], under any executor. What it asks for at the same time, as by
/// `join!`, goes out together. Clones are the same transaction; when the last one is dropped before it has committed it
/// has no effect.
///
/// Made by [`Database::run_async`] and [`Database::begin_async`].
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

    /// The value of a key, if it has one.
    ///
    /// # Errors
    /// When the transaction cannot go on: return the error, and [`Database::run_async`] tries again where that helps.
    pub async fn get<K: TableKey, V: TableValue>(
        &self,
        table: &Table<K, V>,
        key: &K,
    ) -> Result<Option<V>, DatabaseError> {
        let key = table.key(key)?;
        self.fetch(std::slice::from_ref(&key), false).await?;
        self.value(table, &key)
    }

    /// The values of several keys, for which all machines are asked at once.
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

    /// As [`AsyncTransaction::get`], and locks the key at once: for what will be written, and is wanted by many. Others
    /// that want it meanwhile are tried again later, not this one.
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

    /// Gives a key a value, when the transaction commits. Nothing is sent before.
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

    /// Takes a key away, when the transaction commits.
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

    /// Commits: all that was written is there, and all that was read was so, at one moment. When the future is dropped
    /// before it has ended, the transaction may have committed or not.
    ///
    /// # Errors
    /// When it has not committed, or perhaps not ([`DatabaseError::UnknownOutcome`]).
    pub async fn commit(self) -> Result<(), DatabaseError> {
        self.end().await
    }

    /// Ends it without an effect, as dropping it does.
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

    /// What has made the transaction fail, if anything has.
    pub(super) fn take_failure(&self) -> Option<DatabaseError> {
        self.0.session.state().take_failure()
    }

    /// Whether its owner has committed it already.
    pub(super) fn has_committed(&self) -> bool {
        self.0.session.state().has_committed()
    }

    /// Reads keys that have not been read, or locks them.
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
            // Without a thread nothing has begun.
            let _ = self
                .database
                .inner
                .progress
                .tell(&self.session, &self.database.inner);
        }
    }
}

/// A transaction that only reads. Made by [`Database::read_async`].
#[derive(Clone, Debug)]
pub struct AsyncReadTransaction(pub(super) AsyncTransaction);

impl AsyncReadTransaction {
    /// As [`AsyncTransaction::get`].
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

    /// As [`AsyncTransaction::get_many`].
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
