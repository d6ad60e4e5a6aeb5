//! The journal: records in fjall, in groups. A group is one batch, which is stored completely or not at all.

use std::path::{Path, PathBuf};

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use crate::namespace::Record;

/// Memory of fjall's tables that are not yet in segments: the namespace itself is in memory, so little is enough.
const CACHE_BYTES: u64 = 8 << 20;

/// When a change counts as durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// On disk: it survives loss of power.
    Power,
    /// With the kernel: it survives the process.
    Process,
}

/// A store could not be opened, read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// An error of the store.
    #[error("store {}: {source}", path.display())]
    Store {
        /// Its path.
        path: PathBuf,
        /// fjall's error.
        #[source]
        source: fjall::Error,
    },
    /// Its contents are inconsistent.
    #[error("store {} is damaged: {first} ({count} faults; `dunlin fsck` shows them)", path.display())]
    Damaged {
        /// Its path.
        path: PathBuf,
        /// The first fault.
        first: crate::namespace::Fault,
        /// Number of faults.
        count: usize,
    },
    /// Another server, or `dunlin fsck`, uses it.
    #[error("store {}: in use by another process", .0.display())]
    InUse(PathBuf),
    /// The path is a file, but must be a folder.
    #[error("store {}: not a directory", .0.display())]
    File(PathBuf),
    /// The store does not exist.
    #[error("no store at {}", .0.display())]
    Absent(PathBuf),
}

/// A key and its value.
type Pair = (Vec<u8>, Vec<u8>);

pub(crate) struct Store {
    path: PathBuf,
    database: Database,
    records: Keyspace,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Store").field(&self.path).finish()
    }
}

impl Store {
    pub(crate) fn open(path: &Path) -> Result<Self, StoreError> {
        if path.is_file() {
            return Err(StoreError::File(path.to_owned()));
        }
        let failed = |source| match source {
            fjall::Error::Locked => StoreError::InUse(path.to_owned()),
            source => StoreError::Store {
                path: path.to_owned(),
                source,
            },
        };
        let builder = Database::builder(path).cache_size(CACHE_BYTES);
        let database = builder.open().map_err(failed)?;
        let records = database.keyspace("namespace", KeyspaceCreateOptions::default);
        Ok(Self {
            path: path.to_owned(),
            records: records.map_err(failed)?,
            database,
        })
    }

    pub(crate) fn load(&self) -> Result<Vec<Pair>, StoreError> {
        let pair = |guard: fjall::Guard| guard.into_inner();
        let pairs = self.records.iter().map(pair);
        let owned = pairs.map(|pair| pair.map(|(key, value)| (key.to_vec(), value.to_vec())));
        owned
            .collect::<Result<_, _>>()
            .map_err(|source| self.failed(source))
    }

    /// Writes a group of records; later records of a key supersede earlier ones.
    pub(crate) fn keep(
        &self,
        group: Vec<Record>,
        durability: Durability,
    ) -> Result<(), StoreError> {
        let mode = match durability {
            Durability::Power => PersistMode::SyncData,
            Durability::Process => PersistMode::Buffer,
        };
        let mut batch = self.database.batch().durability(Some(mode));
        for (key, value) in last_of_each(group) {
            match value {
                Some(value) => batch.insert(&self.records, key, value),
                None => batch.remove(&self.records, key),
            }
        }
        batch.commit().map_err(|source| self.failed(source))
    }

    fn failed(&self, source: fjall::Error) -> StoreError {
        StoreError::Store {
            path: self.path.clone(),
            source,
        }
    }
}

/// All records of a batch have one sequence number in fjall, so a key may occur only once.
fn last_of_each(group: Vec<Record>) -> std::collections::HashMap<Vec<u8>, Option<Vec<u8>>> {
    group.into_iter().collect()
}
