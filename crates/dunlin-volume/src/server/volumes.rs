//! What a server must remember about its volumes besides their blocks: a small file for each, rewritten when an epoch
//! begins.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use super::log::sync_folder;
use super::state::Copy;
use super::{BlockServerError, State};
use crate::wire::{checksum, decode, encode, Described};

const LOCK: &str = "lock";
const MAGIC: &[u8; 16] = b"dunlin-volume v2";
/// A file that does not contain the epoch in which its copy was settled.
const MAGIC_1: &[u8; 16] = b"dunlin-volume v1";

/// The folder of a server, locked while this exists.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    _lock: File,
}

impl Folder {
    /// Opens the folder, or creates it.
    pub(super) fn open(path: &Path) -> Result<Self, BlockServerError> {
        let failed = |error: io::Error| BlockServerError::at(path, error);
        fs::create_dir_all(path).map_err(|error| match error.kind() {
            // Not a folder that exists: it is a file.
            io::ErrorKind::AlreadyExists => failed(io::ErrorKind::NotADirectory.into()),
            _ => failed(error),
        })?;
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        let lock = options.open(path.join(LOCK)).map_err(failed)?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(BlockServerError::InUse(path.to_owned()))
            }
            Err(error) => return Err(failed(error.into())),
        }
        Ok(Self {
            path: path.to_owned(),
            _lock: lock,
        })
    }

    fn file(&self, volume: u64) -> PathBuf {
        self.path.join(format!("volume{volume:016x}"))
    }

    /// Reads all volumes.
    pub(super) fn load(&self, state: &mut State) -> Result<(), BlockServerError> {
        let failed = |error: io::Error| BlockServerError::at(&self.path, error);
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let name = name.to_string_lossy();
            let Some(id) = name.strip_prefix("volume") else {
                continue;
            };
            let path = self.path.join(&*name);
            if id.len() != 16 {
                // It was being written.
                fs::remove_file(&path).map_err(failed)?;
                continue;
            }
            let bytes = fs::read(&path).map_err(|error| BlockServerError::at(&path, error))?;
            let described = read(&bytes).ok_or(BlockServerError::Damaged {
                file: path,
                offset: 0,
                why: "not a valid description of a volume",
            })?;
            state
                .copies
                .insert(described.shape.id, Copy::new(described));
        }
        Ok(())
    }

    /// Writes what must be remembered; when this returns it is on the disk.
    pub(super) fn save(&self, described: &Described) -> io::Result<()> {
        let path = self.file(described.shape.id);
        let unfinished = path.with_extension("unfinished");
        let content = encode(described);
        let mut file = File::create(&unfinished)?;
        file.write_all(MAGIC)?;
        file.write_all(&checksum(&content).to_le_bytes())?;
        file.write_all(&content)?;
        file.sync_all()?;
        fs::rename(&unfinished, &path)?;
        sync_folder(&self.path)
    }

    pub(super) fn remove(&self, volume: u64) -> io::Result<()> {
        fs::remove_file(self.file(volume))?;
        sync_folder(&self.path)
    }
}

fn read(bytes: &[u8]) -> Option<Described> {
    let (magic, rest) = bytes.split_first_chunk()?;
    let (sum, content) = rest.split_first_chunk()?;
    if u32::from_le_bytes(*sum) != checksum(content) {
        return None;
    }
    let described: Described = match magic {
        MAGIC => decode(content)?,
        // Settled in epoch zero, which is the last field: an open compares such copies with each other by versions
        // alone. The promised epoch would be wrong, since a copy may have promised it to an open that failed, and may
        // have missed what the previous owner went on to write.
        MAGIC_1 => decode(&[content, &[0]].concat())?,
        _ => return None,
    };
    described.shape.validate().ok()?;
    (described.place < described.shape.servers).then_some(described)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Shape;

    #[test]
    fn a_file_of_version_1_is_of_a_copy_that_was_never_settled() {
        let shape = Shape {
            id: 7,
            name: "birds".into(),
            blocks: 100,
            chunk_blocks: 64,
            copies: 3,
            servers: 3,
        };
        let described = Described {
            shape,
            place: 2,
            epoch: 300,
            owner: u64::MAX,
            whole: true,
            settled: 0,
        };
        let mut content = encode(&described);
        assert_eq!(content.pop(), Some(0));
        let file = |magic: &[u8; 16], content: &[u8]| {
            [magic, &checksum(content).to_le_bytes()[..], content].concat()
        };
        assert_eq!(read(&file(MAGIC_1, &content)), Some(described));
        assert_eq!(read(&file(MAGIC, &content)), None);
        assert_eq!(read(&file(b"dunlin-volume v9", &content)), None);
    }
}
