//! A data server: a region of memory backed by a file. Clients READ and WRITE the region themselves; calls are only
//! needed for the file.

mod file;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use dunlin::{
    HandlerError, Memory, Region, Request, Responder, RunningServer, ServeError, ServerBuilder,
};

use crate::meta::Durability;
use crate::types::EXTENT_BYTES;
use crate::wire::{self, decode, encode, Copy, Described, Flush};
use file::ExtentFile;

/// The error code of a malformed request, or one for extents that do not exist.
const MALFORMED: u32 = 1;
/// The error code of a request for another start of the server.
pub(crate) const OTHER_START: u32 = 2;
/// The error code of a server that is not ready yet.
const LOADING: u32 = 3;
/// The error code of a file that cannot be written.
const FILE: u32 = 4;
/// Maximum number of extents of one server: 8 TiB.
const MOST_EXTENTS: u64 = 1 << 28;

/// The options of a data server.
#[derive(Clone, Debug)]
pub struct DataOptions {
    /// Its file; created if it does not exist.
    pub file: PathBuf,
    /// Bytes that it offers, rounded down to extents: the same amount of memory, and a sparse file. An existing file
    /// may grow.
    pub bytes: u64,
    /// Whether synced bytes must survive loss of power, or only the end of the process.
    pub durability: Durability,
}

/// A data server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// The file cannot be used.
    #[error("file {}: {why}", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// The problem.
        why: String,
    },
    /// The size is invalid.
    #[error("invalid size of {0} bytes: it must be from {EXTENT_BYTES}, one extent, to 8 TiB")]
    Bytes(u64),
    /// The RPC server could not be started.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The system does not provide random numbers.
    #[error("system error: {0}")]
    System(#[from] std::io::Error),
}

struct Service {
    region: Region,
    about: Described,
    file: ExtentFile,
    durability: Durability,
    /// Set when the file has been loaded into the region.
    loaded: OnceLock<()>,
    copying: Mutex<()>,
}

/// Serves a file, with the settings of `server`. When this returns the file has been loaded into the region.
///
/// # Errors
/// See [`DataError`].
pub fn serve(server: ServerBuilder, options: &DataOptions) -> Result<RunningServer, DataError> {
    let extents = options.bytes / EXTENT_BYTES;
    if !(1..=MOST_EXTENTS).contains(&extents) {
        return Err(DataError::Bytes(options.bytes));
    }
    let (file, id) = ExtentFile::open(&options.file, extents as u32)?;
    let about = Described {
        id,
        incarnation: crate::random()?,
        extents: extents as u32,
    };
    let bytes = extents * EXTENT_BYTES;
    let service = Arc::new(Service {
        region: Region::new(&wire::region_name(about.incarnation), bytes as usize).writable(),
        about,
        file,
        durability: options.durability,
        loaded: OnceLock::new(),
        copying: Mutex::new(()),
    });
    let (described, flushed, copied) = (service.clone(), service.clone(), service.clone());
    let running = server
        .region(&service.region)
        .handle(wire::data::DESCRIBE, move |_, reply| {
            described.memory()?;
            reply.write(&encode(&described.about))
        })
        .handle_on_workers(wire::data::FLUSH, move |request, reply| {
            flushed.flush(request, reply)
        })
        .handle_on_workers(wire::data::COPY, move |request, reply| {
            copied.copy(request, reply)
        })
        .serve()?;
    let memory = service.region.memory().ok_or_else(|| DataError::File {
        path: options.file.clone(),
        why: "the region is not allocated".into(),
    })?;
    service.file.load(memory)?;
    let _ = service.loaded.set(());
    Ok(running)
}

#[cold]
fn malformed() -> HandlerError {
    HandlerError::new(MALFORMED, "unknown request, or extents that do not exist")
}

impl Service {
    fn memory(&self) -> Result<&Memory, HandlerError> {
        let ready = self.loaded.get().and_then(|()| self.region.memory());
        ready.ok_or_else(|| {
            HandlerError::new(LOADING, "the server is still reading its file: try again")
        })
    }

    /// Returns the memory, for a request about this start and these extents.
    fn checked(
        &self,
        incarnation: u64,
        mut extents: impl Iterator<Item = u32>,
    ) -> Result<&Memory, HandlerError> {
        if incarnation != self.about.incarnation {
            let words = "the server was restarted: what was not synced is lost";
            return Err(HandlerError::new(OTHER_START, words));
        }
        match extents.all(|extent| extent < self.about.extents) {
            true => self.memory(),
            false => Err(malformed()),
        }
    }

    fn keep(&self, memory: &Memory, extents: Vec<u32>) -> Result<(), HandlerError> {
        let kept = self.file.keep(memory, extents, self.durability);
        kept.map_err(|error| HandlerError::new(FILE, error.to_string()))
    }

    fn flush(&self, request: &Request<'_>, reply: &mut Responder<'_>) -> Result<(), HandlerError> {
        let flush: Flush = decode(request.payload()).ok_or_else(malformed)?;
        let memory = self.checked(flush.incarnation, flush.extents.iter().copied())?;
        self.keep(memory, flush.extents)?;
        reply.write(&[])
    }

    fn copy(&self, request: &Request<'_>, reply: &mut Responder<'_>) -> Result<(), HandlerError> {
        let copy: Copy = decode(request.payload()).ok_or_else(malformed)?;
        let both = copy.pairs.iter().flat_map(|(from, to)| [*from, *to]);
        let memory = self.checked(copy.incarnation, both)?;
        let _one = self.copying.lock().unwrap_or_else(PoisonError::into_inner);
        let mut bytes = vec![0; EXTENT_BYTES as usize];
        for (from, to) in &copy.pairs {
            memory.read(file::offset(*from) as usize, &mut bytes);
            memory.write(file::offset(*to) as usize, &bytes);
        }
        self.keep(memory, copy.pairs.iter().map(|(_, to)| *to).collect())?;
        reply.write(&[])
    }
}
