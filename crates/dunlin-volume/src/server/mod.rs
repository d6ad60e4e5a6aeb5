//! A block server: copies of the chunks of volumes, in a log on a disk or in memory.
//!
//! Writes and reads are executed on the polling thread that received them; a write to a log on a disk is answered by
//! the log's thread, when its group is written. Anything that has to wait for a disk for another reason runs on
//! workers.

mod blocks;
mod log;
mod membership;
mod state;
mod volumes;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dunlin::{Address, HandlerError, RunningServer, ServeError, ServerBuilder};

use crate::wire::{call, code};
use log::{Log, LogThread, Segments};
use state::State;
use volumes::Folder;

/// The failures that blocks survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Loss of the machine's power: they are on the disk.
    Power,
    /// The end of the process: the kernel has them.
    Process,
}

/// Where the blocks are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In memory: they are lost with the process, and only other copies preserve them.
    Memory,
    /// In a log in this folder, which is created if it does not exist.
    Log(PathBuf, Durability),
}

/// The options of a block server.
#[derive(Clone, Debug)]
pub struct BlockOptions {
    /// Where the blocks are stored.
    pub place: Place,
    /// Maximum number of bytes in volumes. In memory they take as much space as was written; in a log up to twice as
    /// much on the disk, plus 150 MB.
    pub capacity: u64,
}

impl BlockOptions {
    /// In memory, 1 GiB.
    pub fn in_memory() -> Self {
        Self {
            place: Place::Memory,
            capacity: 1 << 30,
        }
    }

    /// In a log that survives loss of power, 64 GiB.
    pub fn in_folder(folder: impl Into<PathBuf>) -> Self {
        Self {
            place: Place::Log(folder.into(), Durability::Power),
            capacity: 64 << 30,
        }
    }
}

/// A block server could not be started, or its log cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum BlockServerError {
    /// An I/O error.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// Another server uses the folder.
    #[error("{}: in use by another process", .0.display())]
    InUse(PathBuf),
    /// A file is damaged.
    #[error(
        "{} is damaged at byte {offset}: {why}. Move the directory away and restart the server: it then copies its \
         data from the others",
        file.display()
    )]
    Damaged {
        /// The file.
        file: PathBuf,
        /// The offset.
        offset: u64,
        /// The problem.
        why: &'static str,
    },
    /// The RPC server could not be started.
    #[error(transparent)]
    Serve(#[from] ServeError),
}

impl BlockServerError {
    pub(crate) fn at(path: &Path, source: std::io::Error) -> Self {
        Self::Io {
            path: path.to_owned(),
            source,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The state that the handlers share.
#[derive(Debug)]
struct Service {
    state: Arc<Mutex<State>>,
    /// Present if blocks are in a log.
    disk: Option<Disk>,
    capacity: u64,
    /// Serializes changes to a volume's file.
    changing: Mutex<()>,
}

#[derive(Debug)]
struct Disk {
    log: Arc<Log>,
    folder: Folder,
}

/// A running server.
#[derive(Debug)]
pub struct BlockServer {
    running: RunningServer,
    log: LogEnd,
}

/// The thread that may still be writing the log; when this is dropped it ends, after everything accepted is written. To
/// be dropped after the server.
#[derive(Debug)]
pub struct LogEnd(#[expect(dead_code, reason = "it ends with it")] Option<LogThread>);

impl BlockServer {
    /// The address on which it listens.
    pub fn address(&self) -> Address {
        self.running.address()
    }

    /// Returns the server, and what must be dropped after it.
    pub fn split(self) -> (RunningServer, LogEnd) {
        (self.running, self.log)
    }

    /// Shuts down: everything accepted is answered. Returns whether all answers could be delivered.
    pub fn shutdown(self) -> bool {
        let delivered = self.running.shutdown();
        drop(self.log);
        delivered
    }
}

/// Serves blocks, with the settings of `server`. When this returns the log has been read.
///
/// # Errors
/// See [`BlockServerError`].
pub fn serve(
    server: ServerBuilder,
    options: &BlockOptions,
) -> Result<BlockServer, BlockServerError> {
    let mut state = State::default();
    let opened = match &options.place {
        Place::Memory => None,
        Place::Log(path, durability) => {
            let folder = Folder::open(path)?;
            folder.load(&mut state)?;
            let segments = Segments::open(path, &mut state)?;
            Some((folder, segments, *durability, path))
        }
    };
    let state = Arc::new(Mutex::new(state));
    let log = Arc::<Log>::default();
    let (disk, thread) = match opened {
        None => (None, None),
        Some((folder, segments, durability, path)) => {
            let thread = LogThread::start(&log, &state, segments, durability)
                .map_err(|error| BlockServerError::at(path, error))?;
            (Some(Disk { log, folder }), Some(thread))
        }
    };
    let capacity = options.capacity;
    let changing = Mutex::default();
    let service = Arc::new(Service {
        state,
        disk,
        capacity,
        changing,
    });
    let running = handlers(server, &service).serve()?;
    Ok(BlockServer {
        running,
        log: LogEnd(thread),
    })
}

fn handlers(mut server: ServerBuilder, service: &Arc<Service>) -> ServerBuilder {
    macro_rules! handle {
        ($how:ident, $id:expr, $method:ident) => {{
            let service = Arc::clone(service);
            server = server.$how($id, move |request, reply| service.$method(request, reply));
        }};
    }
    handle!(handle, call::DESCRIBE, describe);
    handle!(handle_on_workers, call::CREATE, create);
    handle!(handle_on_workers, call::PROMISE, promise);
    handle!(handle_on_workers, call::JOIN, join);
    handle!(handle_on_workers, call::REMOVE, remove);
    handle!(handle, call::READ, read);
    handle!(handle_on_workers, call::READ_SLOW, read_slow);
    handle!(handle, call::DIGESTS, digests);
    handle!(handle, call::VERSIONS, versions);
    handle!(handle_on_workers, call::SCRUB, scrub);
    match service.disk {
        Some(_) => handle!(handle_deferred, call::WRITE, write_into_log),
        None => handle!(handle, call::WRITE, write_into_memory),
    }
    server
}

#[cold]
fn malformed() -> HandlerError {
    HandlerError::new(
        code::MALFORMED,
        "unknown request, or blocks that do not exist here",
    )
}

#[cold]
fn unknown() -> HandlerError {
    HandlerError::new(code::UNKNOWN, "no such volume on this server")
}

#[cold]
fn replaced(epoch: u64) -> HandlerError {
    HandlerError::new(
        code::REPLACED,
        format!("the volume was opened again: its epoch is {epoch}"),
    )
}
