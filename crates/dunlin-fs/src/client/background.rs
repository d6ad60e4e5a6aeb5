//! The client's own threads: one renews the session, one commits old changes and releases leases.

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, TryLockError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::file_state::FileState;
use super::io::Sync;
use super::{FileSystem, FsError};
use crate::types::Ino;
use crate::wire::Change;

/// Interval between two searches for old changes.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Time after which a change is committed without a request.
const COMMIT_AFTER: Duration = Duration::from_millis(800);
/// Time after which a closed file's lease is released.
const CLOSED_FOR: Duration = Duration::from_secs(5);

/// Starts both threads.
pub(super) fn start(system: &FileSystem) -> Result<Vec<JoinHandle<()>>, FsError> {
    let (recalled, recalls) = std::sync::mpsc::channel();
    let (watching, committing) = (system.clone(), system.clone());
    let named = |name: &str| std::thread::Builder::new().name(name.into());
    let watch = named("dunlin-fs-watch").spawn(move || {
        while !watching.inner.keeper.is_stopped() {
            for ino in watching.watch() {
                let _ = recalled.send(ino);
            }
        }
    });
    let commit = named("dunlin-fs-commit").spawn(move || run(&committing, &recalls));
    Ok(vec![
        watch.map_err(FsError::Thread)?,
        commit.map_err(FsError::Thread)?,
    ])
}

fn run(system: &FileSystem, recalls: &Receiver<Ino>) {
    let mut asked = BTreeSet::new();
    while !system.inner.keeper.is_stopped() {
        match recalls.recv_timeout(LOOK_EVERY) {
            Ok(ino) => {
                asked.insert(ino);
                asked.extend(recalls.try_iter());
                // A file that is in use now is tried again.
                asked.retain(|ino| !system.give_back(*ino));
                asked.clear();
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        system.look_for_old();
    }
}

impl FileSystem {
    /// Commits a file and releases its lease; returns `false` if it is in use.
    fn give_back(&self, ino: Ino) -> bool {
        // If there is no state one is created, so that nobody requests the lease while it is being released.
        let file = self.file(ino);
        let mut state = match file.0.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        if state.gone || self.commit(ino, &mut state, Sync::All).is_err() {
            return false;
        }
        let is_open = state.handles > 0;
        let released = match is_open {
            // It stays, whoever removes its name.
            true => self.meta().change(Change::Keep { ino }),
            false => self.meta().change(Change::Release { ino }),
        };
        let released = match released {
            // A server of an earlier version does not know the first.
            Err(FsError::Strange(..)) if is_open => self.meta().change(Change::Release { ino }),
            released => released,
        };
        state.give_back();
        state.leased = is_open;
        if state.handles == 0 && state.error.is_none() {
            self.leave(ino, &mut state);
        }
        released.is_ok()
    }

    /// Commits changes that have waited long, and releases files that nobody has open.
    fn look_for_old(&self) {
        let known: Vec<_> = {
            let files = self.files();
            let known = files.known.iter();
            known.map(|(ino, file)| (*ino, Arc::clone(file))).collect()
        };
        for (ino, file) in known {
            let Ok(mut state) = file.try_lock() else {
                continue;
            };
            if state.gone {
                continue;
            }
            if state.is_dirty() && state.since.elapsed() > COMMIT_AFTER {
                if let Err(error) = self.commit(ino, &mut state, Sync::All) {
                    tracing::warn!(%error, ino, "cannot commit a file yet");
                }
            }
            let idle = !state.is_dirty() && state.used.elapsed() > CLOSED_FOR;
            if state.handles == 0 && idle && state.error.is_none() {
                self.let_go(ino, &mut state);
            }
        }
    }

    /// Releases the lease of a file that nobody has open, and removes the file from the table.
    pub(super) fn let_go(&self, ino: Ino, state: &mut FileState) {
        if state.leased {
            // Even without an answer the lease may belong to another session by now. If the server still considers it
            // ours, it recalls it again, or it ends with the session.
            let _ = self.meta().change(Change::Release { ino });
        }
        state.give_back();
        // Not earlier: a thread that creates a new state of the file then requests a lease that is no longer being
        // released.
        self.leave(ino, state);
    }

    fn leave(&self, ino: Ino, state: &mut FileState) {
        self.files().let_go(ino);
        state.gone = true;
    }
}
