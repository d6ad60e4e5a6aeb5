//! The file of a data server: a page that says who it is, then the extents, sparse.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use dunlin::Memory;
use rustix::fs::{FlockOperation, SeekFrom};

use super::DataError;
use crate::meta::Durability;
use crate::types::EXTENT_BYTES;

/// Where the extents begin.
const HEADER_BYTES: u64 = 4096;
/// What a file begins with.
const MAGIC: &[u8; 16] = b"dunlin-fs data 1";
/// Bytes that cross between file and memory at once.
const STEP_BYTES: u64 = 1 << 20;

pub(super) struct ExtentFile {
    path: PathBuf,
    file: File,
    extents: u32,
}

/// Where an extent is in the region.
pub(super) fn offset(extent: u32) -> u64 {
    u64::from(extent) * EXTENT_BYTES
}

impl ExtentFile {
    /// Opens it, or makes it; with the number that is drawn when it is made.
    pub(super) fn open(path: &Path, extents: u32) -> Result<(Self, u64), DataError> {
        let failed = |why: &dyn std::fmt::Display| DataError::File {
            path: path.to_owned(),
            why: why.to_string(),
        };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(path).map_err(|error| failed(&error))?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| failed(&"another process has it open"))?;
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
                return Err(failed(&"not a file of a data server"));
            }
            id.try_into().map_or(0, u64::from_le_bytes)
        };
        let wanted = HEADER_BYTES + offset(extents);
        if length > wanted {
            let kept = (length - HEADER_BYTES.min(length)) / EXTENT_BYTES * EXTENT_BYTES;
            return Err(failed(&format_args!(
                "it has {kept} bytes of extents: give the server at least as many"
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

    /// Reads all that is there into memory.
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

    /// Writes extents out of memory; when it returns they are as safe as `durability` says.
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
        match durability {
            Durability::Power => self.file.sync_data(),
            Durability::Process => Ok(()),
        }
    }
}
