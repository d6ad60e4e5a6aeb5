//! Serves the file system to the kernel through FUSE: each request is one operation of the client.

mod convert;
mod recent;
pub(crate) mod unmount;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use dunlin_fs::client::{Mode, SetAttributes};
use dunlin_fs::types::{
    without_privileges, Ino, EXTENT_BYTES, NAME_BYTES, S_IFDIR, S_IFLNK, S_IFMT, S_IFREG,
};
use dunlin_fs::{FileSystem, FsError};
use fuser::{
    BsdFileFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr,
    Request, TimeOrNow, WriteFlags,
};

use convert::{attr_of, errno_of, kind_of, nanoseconds};
use recent::Recent;

/// Bytes of one read or write of the kernel.
const STEP_BYTES: u32 = 1 << 20;
/// Inode numbers are never reused, so one generation is enough.
const GENERATION: Generation = Generation(0);

type Entries = Arc<Vec<(Vec<u8>, Ino, u32)>>;

/// A mounted file system.
#[derive(Debug)]
pub(crate) struct Mounted {
    system: FileSystem,
    /// Time for which the kernel may cache names and attributes.
    cache: Duration,
    /// Directories that are open, as they were when they were read from their beginning.
    directories: Mutex<HashMap<u64, Entries>>,
    next: AtomicU64,
    recent: Recent,
}

impl Mounted {
    /// The file system of a client.
    pub(crate) fn new(system: FileSystem, cache: Duration) -> Self {
        Self {
            system,
            cache,
            directories: Mutex::default(),
            next: AtomicU64::new(1),
            recent: Recent::new(cache),
        }
    }

    fn directories(&self) -> MutexGuard<'_, HashMap<u64, Entries>> {
        let directories = self.directories.lock();
        directories.unwrap_or_else(PoisonError::into_inner)
    }

    /// A change, which may be one of what was learnt.
    fn changed<T>(&self, outcome: T) -> T {
        self.recent.forget();
        outcome
    }

    /// Drops privileges of a file after a write by a user who may not keep them.
    fn clear_privileges(&self, ino: Ino) -> Result<(), FsError> {
        let (attr, _) = self.recent.attributes(&self.system, ino)?;
        if without_privileges(attr.mode) == attr.mode {
            return Ok(());
        }
        let set = SetAttributes {
            clear_privileges: true,
            ..SetAttributes::default()
        };
        self.changed(self.system.set_attributes(ino, &set).map(drop))
    }

    /// The current entries of a directory.
    fn entries(&self, ino: Ino) -> Result<Entries, FsError> {
        let mut entries = self.system.read_directory(ino)?;
        let above = self.system.lookup(ino, b"..").map_or(ino, |attr| attr.ino);
        entries.push((b".".to_vec(), ino, S_IFDIR));
        entries.push((b"..".to_vec(), above, S_IFDIR));
        Ok(Arc::new(entries))
    }

    fn entry(&self, made: Result<dunlin_fs::types::Attr, FsError>, reply: ReplyEntry) {
        match made {
            Ok(attr) => reply.entry(&self.cache, &attr_of(&attr), GENERATION),
            Err(error) => reply.error(errno_of(&error)),
        }
    }

    fn make(
        &self,
        request: &Request,
        (parent, name): (INodeNo, &OsStr),
        mode: u32,
        (rdev, target): (u32, &[u8]),
        reply: ReplyEntry,
    ) {
        let mode = mode_of(request, mode);
        let made = self
            .system
            .make(parent.0, name.as_bytes(), mode, rdev, target);
        self.entry(made, reply);
    }
}

fn mode_of(request: &Request, mode: u32) -> Mode {
    Mode {
        mode,
        uid: request.uid(),
        gid: request.gid(),
    }
}

fn done(outcome: Result<(), FsError>, reply: ReplyEmpty) {
    match outcome {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno_of(&error)),
    }
}

impl Filesystem for Mounted {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // The kernel takes what it can.
        let _ = config.set_max_write(STEP_BYTES);
        let _ = config.add_capabilities(InitFlags::FUSE_PARALLEL_DIROPS);
        // Else it asks for the attribute `security.capability` before every write: a call to the metadata server.
        let _ = config.add_capabilities(InitFlags::FUSE_HANDLE_KILLPRIV_V2);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.system.lookup(parent.0, name.as_bytes()) {
            // No number: the kernel may remember that there is nothing.
            Err(error) if error.errno() == dunlin_fs::types::Errno::NOENT => {
                let nothing = convert::nothing();
                reply.entry(&self.cache, &nothing, GENERATION);
            }
            found => self.entry(found, reply),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.recent.attributes(&self.system, ino.0) {
            Ok((attr, left)) => reply.attr(&left, &attr_of(&attr)),
            Err(error) => reply.error(errno_of(&error)),
        }
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let set = SetAttributes {
            mode,
            uid,
            gid,
            size,
            atime: atime.map(nanoseconds),
            mtime: mtime.map(nanoseconds),
            // The kernel says whether who truncates may keep them, but fuser does not pass it on: root may.
            clear_privileges: uid.is_some()
                || gid.is_some()
                || size.is_some() && request.uid() != 0,
        };
        match self.changed(self.system.set_attributes(ino.0, &set)) {
            Ok(attr) => reply.attr(&self.cache, &attr_of(&attr)),
            Err(error) => reply.error(errno_of(&error)),
        }
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        match self.system.read_link(ino.0) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(errno_of(&error)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let mode = match mode & S_IFMT {
            0 => mode | S_IFREG,
            _ => mode,
        };
        self.make(request, (parent, name), mode, (rdev, &[]), reply);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        let mode = mode & !S_IFMT | S_IFDIR;
        self.make(request, (parent, name), mode, (0, &[]), reply);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let removed = self.system.unlink(parent.0, name.as_bytes());
        done(self.changed(removed), reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let removed = self.system.remove_directory(parent.0, name.as_bytes());
        done(removed, reply);
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let target = target.as_os_str().as_bytes();
        let mode = S_IFLNK | 0o777;
        self.make(request, (parent, name), mode, (0, target), reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (from, to) = (
            (parent.0, name.as_bytes()),
            (new_parent.0, new_name.as_bytes()),
        );
        let renamed = self.system.rename(from, to, flags.bits());
        done(self.changed(renamed), reply);
    }

    fn link(&self, _: &Request, ino: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let linked = self.system.link(ino.0, parent.0, name.as_bytes());
        self.entry(self.changed(linked), reply);
    }

    fn open(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.system.open_number(ino.0) {
            Ok(()) => reply.opened(FileHandle(0), FopenFlags::empty()),
            Err(error) => reply.error(errno_of(&error)),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        let mode = mode_of(request, mode & !S_IFMT | S_IFREG);
        let asked = self.recent.ask();
        match self.system.create(parent.0, name.as_bytes(), mode) {
            Ok(attr) => {
                self.recent.learn(asked, &self.system, &attr);
                let (attr, flags) = (attr_of(&attr), FopenFlags::empty());
                reply.created(&self.cache, &attr, GENERATION, FileHandle(0), flags);
            }
            Err(error) => reply.error(errno_of(&error)),
        }
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.system.read(ino.0, offset, size as usize) {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(errno_of(&error)),
        }
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) {
            if let Err(error) = self.clear_privileges(ino.0) {
                return reply.error(errno_of(&error));
            }
        }
        match self.system.write(ino.0, offset, data) {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(errno_of(&error)),
        }
    }

    /// A close sends nothing to the servers: the kernel need not report it again.
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn release(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.system.close_number(ino.0);
        reply.ok();
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, only_data: bool, reply: ReplyEmpty) {
        let synced = match only_data {
            true => self.system.sync_data(ino.0),
            false => self.system.sync(ino.0),
        };
        done(synced, reply);
    }

    /// Changes of a directory are in the journal when they are answered: the kernel need not ask again.
    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    /// Sends no request: a directory may be opened only to be synced.
    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let handle = self.next.fetch_add(1, Ordering::Relaxed);
        reply.opened(FileHandle(handle), FopenFlags::empty());
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let known = self.directories().get(&handle.0).cloned();
        let entries = match known.filter(|_| offset > 0) {
            Some(entries) => entries,
            None => match self.entries(ino.0) {
                Ok(entries) => {
                    self.directories().insert(handle.0, Arc::clone(&entries));
                    entries
                }
                Err(error) => return reply.error(errno_of(&error)),
            },
        };
        let from = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(entries.len());
        for (place, (name, ino, kind)) in (offset + 1..).zip(&entries[from..]) {
            let name = OsStr::from_bytes(name);
            if reply.add(INodeNo(*ino), place, kind_of(*kind), name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.directories().remove(&handle.0);
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        match self.system.space() {
            Ok(space) => {
                let free = space.free / EXTENT_BYTES;
                reply.statfs(
                    space.bytes / EXTENT_BYTES,
                    free,
                    free,
                    space.files,
                    u64::from(u32::MAX),
                    EXTENT_BYTES as u32,
                    NAME_BYTES as u32,
                    EXTENT_BYTES as u32,
                );
            }
            Err(error) => reply.error(errno_of(&error)),
        }
    }

    fn setxattr(
        &self,
        _: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let set = self
            .system
            .set_xattr(ino.0, name.as_bytes(), value, flags as u32);
        done(self.changed(set), reply);
    }

    fn getxattr(&self, _: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let capability = name == "security.capability";
        if capability && self.recent.is_incapable(ino.0) {
            return reply.error(Errno::ENODATA);
        }
        let asked = self.recent.ask();
        let found = self.system.xattr(ino.0, name.as_bytes());
        let absent = |error: &FsError| error.errno() == dunlin_fs::types::Errno::NODATA;
        if capability && found.as_ref().is_err_and(absent) {
            self.recent.learn_incapable(asked, ino.0);
        }
        convert::answer_xattr(found, size, reply);
    }

    fn listxattr(&self, _: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        convert::answer_xattr(self.system.xattr_names(ino.0), size, reply);
    }

    fn removexattr(&self, _: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let removed = self.system.remove_xattr(ino.0, name.as_bytes());
        done(self.changed(removed), reply);
    }
}
