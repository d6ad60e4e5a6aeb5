//! Names and attributes: calls to the metadata server, combined with what this client has not committed yet.

use std::collections::hash_map::Entry;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::file_state::{FileState, Right};
use super::{FileSystem, FsError};
use crate::types::{without_privileges, Attr, Errno, Ino, S_IFREG};
use crate::wire::{Answer, Ask, Change};

/// The owner of a new file, and its kind and permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    /// Kind and permissions.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// Attributes to set; `None` leaves one unchanged. Times are nanoseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// Permissions.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length.
    pub size: Option<u64>,
    /// Time of the last read.
    pub atime: Option<i64>,
    /// Time of the last change.
    pub mtime: Option<i64>,
    /// Clear the bits that a write by an unprivileged user, or a new owner, clears: see [`without_privileges`].
    pub clear_privileges: bool,
}

/// The space of a file system, in bytes, and its number of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Total of all data servers.
    pub bytes: u64,
    /// Free.
    pub free: u64,
    /// Reserved, because a client that is gone might still write there.
    pub quarantined: u64,
    /// Number of files and directories.
    pub files: u64,
}

impl FileSystem {
    /// Makes a change in the current session, whichever it is.
    fn change(&self, change: &Change<'_>) -> Result<Answer, FsError> {
        let began = Instant::now();
        loop {
            match self.meta().change(change.clone()) {
                Err(FsError::Refused(refused))
                    if refused.0 == Errno::STALE && began.elapsed() < self.patience() =>
                {
                    self.wait_for_session()?;
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
                other => return other,
            }
        }
    }

    fn change_attr(&self, change: &Change<'_>) -> Result<Attr, FsError> {
        match self.change(change)? {
            Answer::Attr(attr) => Ok(attr),
            other => Err(self.meta().strange(&other)),
        }
    }

    fn overlaid(&self, mut attr: Attr) -> Attr {
        if attr.kind() == S_IFREG {
            if let Some(file) = self.known_file(attr.ino) {
                file.lock().overlay(&mut attr, self.reign());
            }
        }
        attr
    }

    /// Returns the attributes of a file that this session writes, without a request to the server: `known` is an
    /// earlier result. Nobody else can change size and time of such a file. `None` if the session does not write it.
    pub fn attributes_of_written(&self, known: &Attr) -> Option<Attr> {
        let file = self.known_file(known.ino)?;
        let mut attr = known.clone();
        let overlaid = file.lock().overlay(&mut attr, self.reign());
        overlaid.then_some(attr)
    }

    /// Returns the attributes of a name.
    ///
    /// # Errors
    /// See [`FsError`], as for all of these.
    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr, FsError> {
        let attr = self.meta().ask_attr(&Ask::Lookup { parent, name })?;
        Ok(self.overlaid(attr))
    }

    /// Returns the attributes of a file.
    #[allow(clippy::missing_errors_doc)]
    pub fn attributes(&self, ino: Ino) -> Result<Attr, FsError> {
        Ok(self.overlaid(self.meta().ask_attr(&Ask::GetAttr { ino })?))
    }

    /// Sets attributes.
    #[allow(clippy::missing_errors_doc)]
    pub fn set_attributes(&self, ino: Ino, set: &SetAttributes) -> Result<Attr, FsError> {
        if let Some(size) = set.size {
            self.truncate(ino, size)?;
        }
        if set.mtime.is_some() {
            if let Some(file) = self.known_file(ino) {
                // A later commit must not restore the time of the write.
                let mut state = file.lock();
                (state.mtime, state.written) = (None, None);
            }
        }
        let SetAttributes {
            mode,
            uid,
            gid,
            atime,
            mtime,
            clear_privileges,
            ..
        } = *set;
        let others = mode.is_some() || uid.is_some() || gid.is_some();
        if !others && atime.is_none() && mtime.is_none() {
            let attr = self.attributes(ino)?;
            if !clear_privileges || without_privileges(attr.mode) == attr.mode {
                return Ok(attr);
            }
        }
        let attr = self.change_attr(&Change::SetAttr {
            ino,
            mode,
            uid,
            gid,
            atime,
            mtime,
            clear_privileges,
        })?;
        Ok(self.overlaid(attr))
    }

    /// Creates a directory, device, pipe or empty file, or a symbolic link if a target is given.
    #[allow(clippy::missing_errors_doc)]
    pub fn make(
        &self,
        parent: Ino,
        name: &[u8],
        mode: Mode,
        rdev: u32,
        target: &[u8],
    ) -> Result<Attr, FsError> {
        self.change_attr(&making(parent, name, mode, (rdev, target, false)))
    }

    /// Creates a file and opens it for writing at once.
    #[allow(clippy::missing_errors_doc)]
    pub fn create(&self, parent: Ino, name: &[u8], mode: Mode) -> Result<Attr, FsError> {
        let begun = self.files().begin_making();
        let before = self.reign();
        let made = self.change_attr(&making(parent, name, mode, (0, &[], true)));
        let after = self.reign();
        let mut files = self.files();
        // Another thread may have found and closed the file meanwhile: then its lease was released.
        let left = |attr: &Attr| files.left_since(begun, attr.ino);
        let left = made.as_ref().is_ok_and(left);
        files.end_making(begun);
        let attr = made?;
        if let Entry::Vacant(place) = files.known.entry(attr.ino) {
            let mut state = FileState::new(after);
            state.handles = 1;
            state.leased = attr.kind() == S_IFREG;
            if before == after && !left && attr.kind() == S_IFREG {
                state.take(Right::Write, after, &attr, BTreeMap::new());
            }
            place.insert(Arc::new(Mutex::new(state)));
            return Ok(attr);
        }
        drop(files);
        // Another thread has found the file meanwhile, and has perhaps written it: its state takes precedence.
        loop {
            let file = self.file(attr.ino);
            let mut state = file.lock();
            if !state.gone {
                state.handles += 1;
                state.leased = true;
                return Ok(attr);
            }
        }
    }

    /// Opens a file: it exists while it is open, even without a name.
    #[allow(clippy::missing_errors_doc)]
    pub fn open_number(&self, ino: Ino) -> Result<(), FsError> {
        self.with_right(ino, Right::Read, |state| {
            state.handles += 1;
            Ok(())
        })
    }

    /// Closes it. What was written is committed within a second, or by [`FileSystem::sync`].
    pub fn close_number(&self, ino: Ino) {
        if let Some(file) = self.known_file(ino) {
            let mut state = file.lock();
            state.handles = state.handles.saturating_sub(1);
            state.used = Instant::now();
        }
    }

    /// Removes a name.
    #[allow(clippy::missing_errors_doc)]
    pub fn unlink(&self, parent: Ino, name: &[u8]) -> Result<(), FsError> {
        let attr = self.change_attr(&Change::Unlink { parent, name })?;
        if attr.nlink == 0 {
            self.drop_nameless(attr.ino);
        }
        Ok(())
    }

    /// Discards the changes of a file without a name that nobody has open here.
    fn drop_nameless(&self, ino: Ino) {
        let Some(file) = self.known_file(ino) else {
            return;
        };
        let mut state = file.lock();
        if state.gone || state.handles > 0 {
            return;
        }
        let unused = state.take_fresh(0);
        self.give_extents(&state, unused);
        self.let_go(ino, &mut state);
        // Nobody needs what is lost with the file.
        state.error = None;
    }

    /// Removes an empty directory.
    #[allow(clippy::missing_errors_doc)]
    pub fn remove_directory(&self, parent: Ino, name: &[u8]) -> Result<(), FsError> {
        self.change(&Change::Rmdir { parent, name }).map(drop)
    }

    /// Renames a file; `flags` are [`crate::types::RENAME_NOREPLACE`] or [`crate::types::RENAME_EXCHANGE`].
    #[allow(clippy::missing_errors_doc)]
    pub fn rename(
        &self,
        (parent, name): (Ino, &[u8]),
        (new_parent, new_name): (Ino, &[u8]),
        flags: u32,
    ) -> Result<(), FsError> {
        self.change(&Change::Rename {
            parent,
            name,
            new_parent,
            new_name,
            flags,
        })
        .map(drop)
    }

    /// Adds another name to a file.
    #[allow(clippy::missing_errors_doc)]
    pub fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr, FsError> {
        let attr = self.change_attr(&Change::Link { ino, parent, name })?;
        Ok(self.overlaid(attr))
    }

    fn ask_bytes(&self, ask: &Ask<'_>) -> Result<Vec<u8>, FsError> {
        match self.meta().ask(ask)? {
            Answer::Bytes(bytes) => Ok(bytes),
            other => Err(self.meta().strange(&other)),
        }
    }

    /// Returns the target of a symbolic link.
    #[allow(clippy::missing_errors_doc)]
    pub fn read_link(&self, ino: Ino) -> Result<Vec<u8>, FsError> {
        self.ask_bytes(&Ask::ReadLink { ino })
    }

    /// Returns all entries of a directory: names, numbers, kinds.
    #[allow(clippy::missing_errors_doc)]
    pub fn read_directory(&self, ino: Ino) -> Result<Vec<(Vec<u8>, Ino, u32)>, FsError> {
        self.meta().read_dir(ino)
    }

    /// Returns an extended attribute.
    #[allow(clippy::missing_errors_doc)]
    pub fn xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>, FsError> {
        self.ask_bytes(&Ask::GetXattr { ino, name })
    }

    /// Returns the names of the extended attributes, each terminated by a zero.
    #[allow(clippy::missing_errors_doc)]
    pub fn xattr_names(&self, ino: Ino) -> Result<Vec<u8>, FsError> {
        self.ask_bytes(&Ask::ListXattr { ino })
    }

    /// Sets an extended attribute; `flags` are [`crate::types::XATTR_CREATE`] or [`crate::types::XATTR_REPLACE`].
    #[allow(clippy::missing_errors_doc)]
    pub fn set_xattr(
        &self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        flags: u32,
    ) -> Result<(), FsError> {
        self.change(&Change::SetXattr {
            ino,
            name,
            value,
            flags,
        })
        .map(drop)
    }

    /// Removes an extended attribute.
    #[allow(clippy::missing_errors_doc)]
    pub fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<(), FsError> {
        self.change(&Change::RemoveXattr { ino, name }).map(drop)
    }

    /// Returns space and number of files.
    #[allow(clippy::missing_errors_doc)]
    pub fn space(&self) -> Result<Space, FsError> {
        match self.meta().ask(&Ask::StatFs)? {
            Answer::StatFs {
                extents,
                free,
                quarantined,
                files,
            } => Ok(Space {
                bytes: extents * crate::types::EXTENT_BYTES,
                free: free * crate::types::EXTENT_BYTES,
                quarantined: quarantined * crate::types::EXTENT_BYTES,
                files,
            }),
            other => Err(self.meta().strange(&other)),
        }
    }
}

fn making<'a>(
    parent: Ino,
    name: &'a [u8],
    Mode { mode, uid, gid }: Mode,
    (rdev, target, lease): (u32, &'a [u8], bool),
) -> Change<'a> {
    Change::Make {
        parent,
        name,
        mode,
        uid,
        gid,
        rdev,
        target,
        lease,
    }
}
