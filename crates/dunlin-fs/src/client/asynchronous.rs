//! The client for async tasks: each operation runs on a thread pool (the crate `blocking`, as in async-fs and tokio's
//! own `fs`), so no executor's thread waits for a server or a disk, and any executor can be used.
//!
//! If the future of an operation is dropped, the operation does not start, or continues to its end unobserved.

use std::sync::Arc;

use blocking::unblock;

use super::path::File;
use super::{FileSystem, FsError, FsOptions};
use crate::types::Attr;

/// A file system whose operations are futures. Cheap to clone; see [`FileSystem`] for the operations.
#[derive(Clone, Debug)]
pub struct AsyncFileSystem {
    /// `None` only while it is dropped.
    system: Option<FileSystem>,
}

/// An open file whose operations are futures. It is closed when it is dropped; [`AsyncFile::close`] waits for that.
#[derive(Debug)]
pub struct AsyncFile {
    /// Shared with operations in progress. `None` only while it is dropped.
    file: Option<Arc<File>>,
}

impl From<FileSystem> for AsyncFileSystem {
    fn from(system: FileSystem) -> Self {
        Self {
            system: Some(system),
        }
    }
}

impl AsyncFileSystem {
    /// Connects to a metadata server with default options.
    ///
    /// # Errors
    /// See [`FsError`], as for all of these.
    pub async fn connect(address: &str) -> Result<Self, FsError> {
        Self::connect_with(address, &FsOptions::default()).await
    }

    /// Connects to a metadata server.
    #[allow(clippy::missing_errors_doc)]
    pub async fn connect_with(address: &str, options: &FsOptions) -> Result<Self, FsError> {
        let (address, options) = (address.to_owned(), options.clone());
        let connected = unblock(move || FileSystem::connect_with(&address, &options)).await;
        connected.map(Self::from)
    }

    /// Any other operation of [`FileSystem`]: `work` runs on the pool and may block.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&FileSystem) -> T + Send + 'static,
    ) -> T {
        let system = self.blocking().clone();
        unblock(move || work(&system)).await
    }

    /// The same file system with blocking operations.
    pub fn blocking(&self) -> &FileSystem {
        self.system
            .as_ref()
            .expect("it is taken only while it is dropped")
    }

    /// Opens a file.
    #[allow(clippy::missing_errors_doc)]
    pub async fn open(&self, path: &str) -> Result<AsyncFile, FsError> {
        let path = path.to_owned();
        self.run(move |system| system.open(&path).map(AsyncFile::from))
            .await
    }

    /// Creates a file, which must not exist, and opens it.
    #[allow(clippy::missing_errors_doc)]
    pub async fn create_new(&self, path: &str) -> Result<AsyncFile, FsError> {
        let path = path.to_owned();
        self.run(move |system| system.create_new(&path).map(AsyncFile::from))
            .await
    }

    /// Returns the attributes of a path; symbolic links are not followed.
    #[allow(clippy::missing_errors_doc)]
    pub async fn find(&self, path: &str) -> Result<Attr, FsError> {
        let path = path.to_owned();
        self.run(move |system| system.find(&path)).await
    }

    /// Creates a directory.
    #[allow(clippy::missing_errors_doc)]
    pub async fn create_directory(&self, path: &str) -> Result<Attr, FsError> {
        let path = path.to_owned();
        self.run(move |system| system.create_directory(&path)).await
    }

    /// Removes a file's name.
    #[allow(clippy::missing_errors_doc)]
    pub async fn remove(&self, path: &str) -> Result<(), FsError> {
        let path = path.to_owned();
        self.run(move |system| system.remove(&path)).await
    }

    /// Returns the names in a directory.
    #[allow(clippy::missing_errors_doc)]
    pub async fn list(&self, path: &str) -> Result<Vec<String>, FsError> {
        let path = path.to_owned();
        self.run(move |system| system.list(&path)).await
    }

    /// Syncs everything that was written.
    #[allow(clippy::missing_errors_doc)]
    pub async fn sync_all(&self) -> Result<(), FsError> {
        self.run(FileSystem::sync_all).await
    }

    /// Closes this handle; when the last one is closed, everything is synced and the session ends before this
    /// completes.
    pub async fn close(mut self) {
        let system = self.system.take();
        unblock(move || drop(system)).await;
    }
}

/// Dropping the last handle syncs and waits for threads, which must not happen on an executor's thread.
impl Drop for AsyncFileSystem {
    fn drop(&mut self) {
        if let Some(system) = self.system.take() {
            unblock(move || drop(system)).detach();
        }
    }
}

impl From<File> for AsyncFile {
    fn from(file: File) -> Self {
        Self {
            file: Some(Arc::new(file)),
        }
    }
}

impl AsyncFile {
    async fn run<T: Send + 'static>(&self, work: impl FnOnce(&File) -> T + Send + 'static) -> T {
        let file = self.file.clone();
        unblock(move || {
            work(
                file.as_deref()
                    .expect("it is taken only while it is dropped"),
            )
        })
        .await
    }

    /// Reads up to `length` bytes from `offset`: fewer at the end of the file.
    ///
    /// # Errors
    /// See [`FsError`], as for all of these.
    pub async fn read_at(&self, offset: u64, length: usize) -> Result<Vec<u8>, FsError> {
        self.run(move |file| file.read_at(offset, length)).await
    }

    /// Writes at `offset`.
    #[allow(clippy::missing_errors_doc)]
    pub async fn write_at(
        &self,
        offset: u64,
        bytes: impl AsRef<[u8]> + Send + 'static,
    ) -> Result<(), FsError> {
        self.run(move |file| file.write_at(offset, bytes.as_ref()))
            .await
    }

    /// When it completes, what was written before is on the data servers' disks and in the journal.
    #[allow(clippy::missing_errors_doc)]
    pub async fn sync(&self) -> Result<(), FsError> {
        self.run(File::sync).await
    }

    /// The same without the time of the last write.
    #[allow(clippy::missing_errors_doc)]
    pub async fn sync_data(&self) -> Result<(), FsError> {
        self.run(File::sync_data).await
    }

    /// Shortens or extends the file.
    #[allow(clippy::missing_errors_doc)]
    pub async fn set_len(&self, bytes: u64) -> Result<(), FsError> {
        self.run(move |file| file.set_len(bytes)).await
    }

    /// Returns the attributes.
    #[allow(clippy::missing_errors_doc)]
    pub async fn attributes(&self) -> Result<Attr, FsError> {
        self.run(File::attributes).await
    }

    /// Closes the file.
    pub async fn close(mut self) {
        let file = self.file.take();
        unblock(move || drop(file)).await;
    }
}

/// Closing sends a request to the metadata server, which must not happen on an executor's thread.
impl Drop for AsyncFile {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            unblock(move || drop(file)).detach();
        }
    }
}
