//! A block server: copies of the chunks of volumes, in a log on a disk or in memory.
//!
//! Writes and reads run to their end on the polling thread that has taken them; a write into a log on a disk is
//! answered by the log's thread, when its group is there. What has to wait for a disk for another reason runs on
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

/// What blocks outlive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The machine's power: they are on the disk.
    Power,
    /// The process: they are with the kernel.
    Process,
}

/// Where the blocks are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In memory: they go with the process, and other copies are what keeps them.
    Memory,
    /// In a log in this folder, which is made where it is not there.
    Log(PathBuf, Durability),
}

/// What a block server is to be.
#[derive(Clone, Debug)]
pub struct BlockOptions {
    /// Where the blocks are.
    pub place: Place,
    /// Bytes of volumes that it takes at most. Where they are in memory they take so much of it as was written; in a
    /// log up to twice as much of the disk, and 150 MB.
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

    /// In a log that outlives the machine's power, 64 GiB.
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
    /// A file or a folder.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Another server has the folder.
    #[error("{}: another process has it open", .0.display())]
    InUse(PathBuf),
    /// A file is not what was written.
    #[error(
        "{} is damaged at byte {offset}: {why}. Move the folder away and start the server anew: it copies what it had \
         from the others",
        file.display()
    )]
    Damaged {
        /// Which.
        file: PathBuf,
        /// Where.
        offset: u64,
        /// What is wrong.
        why: &'static str,
    },
    /// The server.
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

/// What the handlers have.
#[derive(Debug)]
struct Service {
    state: Arc<Mutex<State>>,
    /// Where blocks are in a log.
    disk: Option<Disk>,
    capacity: u64,
    /// What changes a volume's file goes one by one.
    changing: Mutex<()>,
}

#[derive(Debug)]
struct Disk {
    log: Arc<Log>,
    folder: Folder,
}

/// A server that runs.
#[derive(Debug)]
pub struct BlockServer {
    running: RunningServer,
    log: LogEnd,
}

/// What writes the log still; it ends with this, after all that was taken is written. To be dropped after the server.
#[derive(Debug)]
pub struct LogEnd(#[expect(dead_code, reason = "it ends with it")] Option<LogThread>);

impl BlockServer {
    /// Where it listens.
    pub fn address(&self) -> Address {
        self.running.address()
    }

    /// The server, and what is to be dropped after it.
    pub fn split(self) -> (RunningServer, LogEnd) {
        (self.running, self.log)
    }

    /// Ends it: what was taken is answered. Whether all answers could be delivered.
    pub fn shutdown(self) -> bool {
        let delivered = self.running.shutdown();
        drop(self.log);
        delivered
    }
}

/// Serves blocks, on what `server` says. When this returns the log was read.
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
        "no such request, or blocks that are not here",
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
        format!("the volume was opened anew: its epoch is {epoch}"),
    )
}
