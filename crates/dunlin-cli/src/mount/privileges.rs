//! Set-user-id and set-group-id bits, which a write, a truncation or another owner takes away.
//!
//! With `FUSE_HANDLE_KILLPRIV_V2` that is a file system's own business: the kernel says with each write whether the
//! writer may keep them, and does not look itself.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dunlin_fs::client::SetAttributes;
use dunlin_fs::types::{Attr, Ino, S_IFMT, S_IFREG};
use dunlin_fs::{FileSystem, FsError};
use fuser::Request;

const SET_USER_ID: u32 = 0o4000;
const SET_GROUP_ID: u32 = 0o2000;
const GROUP_MAY_RUN: u32 = 0o10;
/// Files whose bits are remembered; more are asked for again.
const REMEMBERED: usize = 4096;

/// Which files are known to have nothing to take away.
#[derive(Debug)]
pub(super) struct Privileges {
    /// How long that is believed: as long as the kernel believes attributes.
    cache: Duration,
    plain: Mutex<HashMap<Ino, Instant>>,
}

/// The mode without what is to go, where something is. A group's bit without its right to run it means something else.
fn without(mode: u32) -> Option<u32> {
    let goes = match mode & GROUP_MAY_RUN {
        0 => SET_USER_ID,
        _ => SET_USER_ID | SET_GROUP_ID,
    };
    (mode & S_IFMT == S_IFREG && mode & goes != 0).then_some(mode & !S_IFMT & !goes)
}

impl Privileges {
    pub(super) fn new(cache: Duration) -> Self {
        Self {
            cache,
            plain: Mutex::default(),
        }
    }

    fn plain(&self) -> MutexGuard<'_, HashMap<Ino, Instant>> {
        self.plain.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Before a write of somebody who may not keep them.
    pub(super) fn drop_of(&self, system: &FileSystem, ino: Ino) -> Result<(), FsError> {
        let learnt = self.plain().get(&ino).copied();
        if learnt.is_some_and(|at| at.elapsed() < self.cache) {
            return Ok(());
        }
        let asked = Instant::now();
        if let Some(mode) = without(system.attributes(ino)?.mode) {
            let set = SetAttributes {
                mode: Some(mode),
                ..SetAttributes::default()
            };
            system.set_attributes(ino, &set)?;
        }
        let mut plain = self.plain();
        if plain.len() >= REMEMBERED {
            plain.clear();
        }
        plain.insert(ino, asked);
        Ok(())
    }

    /// Sets attributes, and takes away what must go with them.
    pub(super) fn set(
        &self,
        system: &FileSystem,
        request: &Request,
        ino: Ino,
        mut set: SetAttributes,
    ) -> Result<Attr, FsError> {
        let another_owner = set.uid.is_some() || set.gid.is_some();
        // The kernel says who may keep them, fuser does not pass it on: root may.
        let truncated = set.size.is_some() && request.uid() != 0;
        if set.mode.is_none() && (another_owner || truncated) {
            set.mode = without(system.attributes(ino)?.mode);
        }
        let attr = system.set_attributes(ino, &set);
        self.plain().remove(&ino);
        attr
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_with_a_write() {
        assert_eq!(without(S_IFREG | 0o755), None);
        assert_eq!(without(S_IFREG | 0o6755), Some(0o755));
        assert_eq!(without(S_IFREG | 0o6745), Some(0o2745));
        assert_eq!(without(S_IFREG | 0o2745), None);
        assert_eq!(without(dunlin_fs::types::S_IFDIR | 0o2755), None);
    }
}
