//! The client: a file system used as a library, without a mount. Any thread may use it; calls block.

#[cfg(feature = "async")]
mod asynchronous;
mod background;
mod error;
mod file_state;
mod files;
mod io;
mod link;
mod meta;
mod names;
mod path;
mod pool;
mod session;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[cfg(feature = "async")]
pub use asynchronous::{AsyncFile, AsyncFileSystem};
pub use error::FsError;
pub use meta::{FsOptions, MetaClient};
pub use names::{Mode, SetAttributes, Space};
pub use path::File;

use crate::types::Ino;
use file_state::FileState;
use files::Files;
use link::Links;
use pool::Pool;
use session::SessionKeeper;

/// Files that [`FileSystem::sync_all`] syncs concurrently.
const SYNCED_AT_ONCE: usize = 16;

/// A file system, with files addressed by number as a mount needs it; [`FileSystem::open`] and related functions take
/// paths.
///
/// Cheap to clone. When the last clone is dropped, everything is synced and the session ends.
#[derive(Clone, Debug)]
pub struct FileSystem {
    inner: Arc<Inner>,
    /// `None` in the client's own threads.
    _owner: Option<Arc<Owner>>,
}

/// Ends the session when the last user is dropped.
#[derive(Debug)]
struct Owner {
    system: FileSystem,
    threads: Vec<JoinHandle<()>>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        if let Err(error) = self.system.sync_all() {
            tracing::warn!(%error, "the last sync of a file system failed");
        }
        self.system.say_goodbye();
        self.system.inner.keeper.stop();
        self.system.meta().close();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

#[derive(Debug)]
struct Inner {
    meta: MetaClient,
    links: Links,
    keeper: SessionKeeper,
    files: Mutex<Files>,
    reserved: Mutex<Pool>,
    options: FsOptions,
}

/// The state of one file.
#[derive(Clone, Debug)]
struct FileHandle(Arc<Mutex<FileState>>);

impl FileHandle {
    fn lock(&self) -> MutexGuard<'_, FileState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Nanoseconds since 1970.
fn wall_now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as i64)
}

impl FileSystem {
    /// Connects to a metadata server with default options.
    ///
    /// # Errors
    /// See [`FsError`].
    pub fn connect(address: &str) -> Result<Self, FsError> {
        Self::connect_with(address, &FsOptions::default())
    }

    /// Connects to a metadata server.
    ///
    /// # Errors
    /// See [`FsError`].
    pub fn connect_with(address: &str, options: &FsOptions) -> Result<Self, FsError> {
        let began = std::time::Instant::now();
        let (meta, welcome) = MetaClient::connect(address, options)?;
        let inner = Arc::new(Inner {
            meta,
            links: Links::new(options),
            keeper: SessionKeeper::new(&welcome, began),
            files: Mutex::default(),
            reserved: Mutex::new(Pool::new(welcome.session)),
            options: options.clone(),
        });
        let system = Self {
            inner,
            _owner: None,
        };
        let owner = Owner {
            threads: background::start(&system)?,
            system: system.clone(),
        };
        Ok(Self {
            _owner: Some(Arc::new(owner)),
            ..system
        })
    }

    /// The client for calls to the metadata server.
    pub fn meta(&self) -> &MetaClient {
        &self.inner.meta
    }

    /// Syncs everything that was written: several files concurrently, so that they share the syncs of the servers'
    /// disks.
    ///
    /// # Errors
    /// One of the errors; the other files are synced all the same.
    pub fn sync_all(&self) -> Result<(), FsError> {
        let known: Vec<Ino> = self.files().known.keys().copied().collect();
        let next = AtomicUsize::new(0);
        let sync = || {
            let mut all = Ok(());
            while let Some(ino) = known.get(next.fetch_add(1, Ordering::Relaxed)) {
                all = all.and(self.sync(*ino));
            }
            all
        };
        std::thread::scope(|scope| {
            let helpers = 1..SYNCED_AT_ONCE.min(known.len());
            // If helper threads cannot be started, this thread does their work.
            let helpers = helpers.map_while(|_| {
                let thread = std::thread::Builder::new().name("dunlin-fs-sync".into());
                thread.spawn_scoped(scope, sync).ok()
            });
            let helpers: Vec<_> = helpers.collect();
            let all = sync();
            helpers.into_iter().fold(all, |all, helper| {
                let joined = helper.join();
                all.and(joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            })
        })
    }
}

impl FileSystem {
    fn files(&self) -> MutexGuard<'_, Files> {
        let files = self.inner.files.lock();
        files.unwrap_or_else(PoisonError::into_inner)
    }

    fn links(&self) -> &Links {
        &self.inner.links
    }

    fn patience(&self) -> Duration {
        self.inner.options.patience
    }

    fn reserved(&self) -> MutexGuard<'_, Pool> {
        let reserved = self.inner.reserved.lock();
        reserved.unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the state of a file; creates it if there is none.
    fn file(&self, ino: Ino) -> FileHandle {
        let reign = self.reign();
        let mut files = self.files();
        let file = files.known.entry(ino);
        FileHandle(Arc::clone(
            file.or_insert_with(|| Arc::new(Mutex::new(FileState::new(reign)))),
        ))
    }

    fn known_file(&self, ino: Ino) -> Option<FileHandle> {
        self.files().known.get(&ino).cloned().map(FileHandle)
    }
}
