//! The file of a data server: a page that identifies it, then the extents, sparse.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use dunlin::Memory;
use rustix::fs::{FlockOperation, SeekFrom};

use super::DataError;
use crate::meta::Durability;
use crate::types::EXTENT_BYTES;

/// Offset of the extents.
const HEADER_BYTES: u64 = 4096;
/// The first bytes of the file.
const MAGIC: &[u8; 16] = b"dunlin-fs data 1";
/// Bytes copied between file and memory at once.
const STEP_BYTES: u64 = 1 << 20;

pub(super) struct ExtentFile {
    path: PathBuf,
    file: File,
    extents: u32,
    /// Number of writes of extents.
    written: AtomicU64,
    synced: Mutex<Synced>,
}

/// What is known to be on the disk.
#[derive(Default)]
struct Synced {
    /// Number of writes that are on the disk.
    writes: u64,
    /// A sync has failed. The system reports this once, whichever write was lost, and the next sync succeeds.
    has_failed: bool,
}

/// Offset of an extent in the region.
pub(super) fn offset(extent: u32) -> u64 {
    u64::from(extent) * EXTENT_BYTES
}

impl ExtentFile {
    /// Opens or creates the file; also returns the random number drawn at its creation.
    pub(super) fn open(path: &Path, extents: u32) -> Result<(Self, u64), DataError> {
        let failed = |why: &dyn std::fmt::Display| DataError::File {
            path: path.to_owned(),
            why: why.to_string(),
        };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(path).map_err(|error| failed(&error))?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| failed(&"in use by another process"))?;
        let length = file.metadata().map_err(|error| failed(&error))?.len();
        let mut header = [0; 24];
        let id = if length == 0 {
            let id = crate::random()?;
            header[..16].copy_from_slice(MAGIC);
            header[16..].copy_from_slice(&id.to_le_bytes());
            file.write_all_at(&header, 0)
                .map_err(|error| failed(&error))?;
            id
        } else {
            file.read_exact_at(&mut header, 0)
                .map_err(|error| failed(&error))?;
            let (magic, id) = header.split_at(16);
            if magic != MAGIC {
                return Err(failed(&"not a data server's file"));
            }
            id.try_into().map_or(0, u64::from_le_bytes)
        };
        let wanted = HEADER_BYTES + offset(extents);
        if length > wanted {
            let kept = (length - HEADER_BYTES.min(length)) / EXTENT_BYTES * EXTENT_BYTES;
            return Err(failed(&format_args!(
                "it contains {kept} bytes of extents: give the server at least this size"
            )));
        }
        file.set_len(wanted).map_err(|error| failed(&error))?;
        file.sync_all().map_err(|error| failed(&error))?;
        let path = path.to_owned();
        Ok((
            Self {
                path,
                file,
                extents,
                written: AtomicU64::new(0),
                synced: Mutex::default(),
            },
            id,
        ))
    }

    fn failed(&self, error: impl std::fmt::Display) -> DataError {
        DataError::File {
            path: self.path.clone(),
            why: error.to_string(),
        }
    }

    /// Reads the whole file into memory.
    pub(super) fn load(&self, memory: &Memory) -> Result<(), DataError> {
        let end = HEADER_BYTES + offset(self.extents);
        let mut bytes = vec![0; STEP_BYTES as usize];
        let mut at = HEADER_BYTES;
        while at < end {
            at = match rustix::fs::seek(&self.file, SeekFrom::Data(at)) {
                Ok(data) => data.max(HEADER_BYTES),
                Err(rustix::io::Errno::NXIO) => break,
                Err(error) => return Err(self.failed(error)),
            };
            let hole = rustix::fs::seek(&self.file, SeekFrom::Hole(at));
            let until = hole.map_err(|error| self.failed(error))?.min(end);
            while at < until {
                let part = &mut bytes[..(until - at).min(STEP_BYTES) as usize];
                let read = self.file.read_exact_at(part, at);
                read.map_err(|error| self.failed(error))?;
                memory.write((at - HEADER_BYTES) as usize, part);
                at += part.len() as u64;
            }
        }
        Ok(())
    }

    /// Writes extents from memory to the file; when it returns they are as durable as `durability` requires.
    pub(super) fn keep(
        &self,
        memory: &Memory,
        mut extents: Vec<u32>,
        durability: Durability,
    ) -> std::io::Result<()> {
        extents.sort_unstable();
        extents.dedup();
        let mut bytes = vec![0; EXTENT_BYTES as usize];
        for extent in extents {
            memory.read(offset(extent) as usize, &mut bytes);
            self.file
                .write_all_at(&bytes, HEADER_BYTES + offset(extent))?;
        }
        let write = self.written.fetch_add(1, Ordering::SeqCst) + 1;
        match durability {
            Durability::Power => self.sync(write),
            Durability::Process => Ok(()),
        }
    }

    /// Executes one sync at a time, each for everything written before it: concurrently with one that fails, another
    /// could succeed whose bytes are lost. After a failed sync, no other is trusted.
    fn sync(&self, write: u64) -> std::io::Result<()> {
        let mut synced = self.synced.lock().unwrap_or_else(PoisonError::into_inner);
        if synced.has_failed {
            let words = "an earlier sync of the file failed: restart the server";
            return Err(std::io::Error::other(words));
        }
        if synced.writes < write {
            let writes = self.written.load(Ordering::SeqCst);
            synced.has_failed = true;
            self.file.sync_data()?;
            (synced.writes, synced.has_failed) = (writes, false);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dunlin::{Region, Server};

    #[test]
    fn after_a_sync_that_failed_nothing_is_said_to_be_kept() {
        let region = Region::new("extents", EXTENT_BYTES as usize);
        let server = Server::bind("dunlin://127.0.0.1:0").unwrap();
        let _server = server.region(&region).serve().unwrap();
        let memory = region.memory().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let (mut kept, _) = ExtentFile::open(&folder.path().join("data"), 1).unwrap();
        let keep = |kept: &ExtentFile| kept.keep(memory, vec![0], Durability::Power);
        keep(&kept).unwrap();
        // It accepts writes, but cannot be synced.
        let null = OpenOptions::new().write(true).open("/dev/null").unwrap();
        let good = std::mem::replace(&mut kept.file, null);
        assert!(keep(&kept).is_err());
        kept.file = good;
        assert!(keep(&kept).is_err());
        drop(kept);
        let (again, _) = ExtentFile::open(&folder.path().join("data"), 1).unwrap();
        keep(&again).unwrap();
    }
}
