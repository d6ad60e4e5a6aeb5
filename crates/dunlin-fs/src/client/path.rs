//! Files by path, as most programs need them.

use super::names::Mode;
use super::{FileSystem, FsError};
use crate::types::{Attr, Errno, Ino, ROOT, S_IFDIR, S_IFREG};

/// Permissions of files created by path.
const FILE_MODE: u32 = 0o644;
const DIRECTORY_MODE: u32 = 0o755;

/// An open file. It is closed when it is dropped; what was written is durable after [`File::sync`].
#[derive(Debug)]
pub struct File {
    system: FileSystem,
    ino: Ino,
}

impl File {
    /// The file's number.
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// Reads up to `length` bytes from `offset`: fewer at the end of the file.
    ///
    /// # Errors
    /// See [`FsError`], as for all of these.
    pub fn read_at(&self, offset: u64, length: usize) -> Result<Vec<u8>, FsError> {
        self.system.read(self.ino, offset, length)
    }

    /// Writes at `offset`.
    #[allow(clippy::missing_errors_doc)]
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), FsError> {
        self.system.write(self.ino, offset, bytes)
    }

    /// When it returns, what was written before is on the data servers' disks and in the journal.
    #[allow(clippy::missing_errors_doc)]
    pub fn sync(&self) -> Result<(), FsError> {
        self.system.sync(self.ino)
    }

    /// The same without the time of the last write: see [`FileSystem::sync_data`].
    #[allow(clippy::missing_errors_doc)]
    pub fn sync_data(&self) -> Result<(), FsError> {
        self.system.sync_data(self.ino)
    }

    /// Shortens or extends the file.
    #[allow(clippy::missing_errors_doc)]
    pub fn set_len(&self, bytes: u64) -> Result<(), FsError> {
        self.system.truncate(self.ino, bytes)
    }

    /// Returns the attributes.
    #[allow(clippy::missing_errors_doc)]
    pub fn attributes(&self) -> Result<Attr, FsError> {
        self.system.attributes(self.ino)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        self.system.close_number(self.ino);
    }
}

impl FileSystem {
    /// Returns the attributes of a path; symbolic links are not followed.
    ///
    /// # Errors
    /// See [`FsError`], as for all of these.
    pub fn find(&self, path: &str) -> Result<Attr, FsError> {
        let parts = path.split('/').filter(|part| !part.is_empty());
        let mut found = self.attributes(ROOT)?;
        for part in parts {
            found = self.lookup(found.ino, part.as_bytes())?;
        }
        Ok(found)
    }

    /// Returns the directory of a path, and the last name.
    fn place<'a>(&self, path: &'a str) -> Result<(Ino, &'a [u8]), FsError> {
        let path = path.trim_end_matches('/');
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        Ok((self.find(above)?.ino, name.as_bytes()))
    }

    /// Opens a file.
    #[allow(clippy::missing_errors_doc)]
    pub fn open(&self, path: &str) -> Result<File, FsError> {
        let attr = self.find(path)?;
        match attr.kind() {
            S_IFREG => self.open_number(attr.ino)?,
            S_IFDIR => return Err(Errno::ISDIR.into()),
            _ => return Err(Errno::INVAL.into()),
        }
        Ok(File {
            system: self.clone(),
            ino: attr.ino,
        })
    }

    /// Creates a file, which must not exist, and opens it.
    #[allow(clippy::missing_errors_doc)]
    pub fn create_new(&self, path: &str) -> Result<File, FsError> {
        let (parent, name) = self.place(path)?;
        let attr = self.create(parent, name, mode_of(S_IFREG | FILE_MODE))?;
        Ok(File {
            system: self.clone(),
            ino: attr.ino,
        })
    }

    /// Creates a directory.
    #[allow(clippy::missing_errors_doc)]
    pub fn create_directory(&self, path: &str) -> Result<Attr, FsError> {
        let (parent, name) = self.place(path)?;
        self.make(parent, name, mode_of(S_IFDIR | DIRECTORY_MODE), 0, &[])
    }

    /// Removes a file's name.
    #[allow(clippy::missing_errors_doc)]
    pub fn remove(&self, path: &str) -> Result<(), FsError> {
        let (parent, name) = self.place(path)?;
        self.unlink(parent, name)
    }

    /// Returns the names in a directory.
    #[allow(clippy::missing_errors_doc)]
    pub fn list(&self, path: &str) -> Result<Vec<String>, FsError> {
        let entries = self.read_directory(self.find(path)?.ino)?;
        let name = |(name, ..): (Vec<u8>, Ino, u32)| String::from_utf8_lossy(&name).into_owned();
        Ok(entries.into_iter().map(name).collect())
    }
}

fn mode_of(mode: u32) -> Mode {
    Mode {
        mode,
        uid: 0,
        gid: 0,
    }
}
