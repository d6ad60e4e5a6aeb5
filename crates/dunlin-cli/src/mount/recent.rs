//! Attributes of the files that a mount is writing.
//!
//! After each write the kernel drops what it has cached of a file, and asks again before the next. Size and times of
//! such a file cannot be changed by anyone else; the rest is trusted for as long as the kernel trusts names, unless
//! this mount changes something itself. Without this, a program that alternates between writes and stats waits for the
//! metadata server each time.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dunlin_fs::types::{Attr, Ino};
use dunlin_fs::{FileSystem, FsError};

/// Maximum number of files remembered; beyond it, all are forgotten.
const REMEMBERED: usize = 4096;

#[derive(Debug)]
pub(super) struct Recent {
    keep: Duration,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// Number of changes by this mount: an answer requested before a change is not remembered after it.
    changes: u64,
    attributes: HashMap<Ino, (Instant, Attr)>,
    /// Files without the attribute `security.capability`.
    incapable: HashMap<Ino, Instant>,
}

/// When a question was asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    at: Instant,
    changes: u64,
}

impl Recent {
    /// Trusts attributes for this time.
    pub(super) fn new(keep: Duration) -> Self {
        Self {
            keep,
            known: Mutex::default(),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn left(&self, at: Instant) -> Option<Duration> {
        self.keep
            .checked_sub(at.elapsed())
            .filter(|left| !left.is_zero())
    }

    /// Called before a request is sent to the server.
    pub(super) fn ask(&self) -> Asked {
        Asked {
            at: Instant::now(),
            changes: self.known().changes,
        }
    }

    /// Called when this mount has changed something.
    pub(super) fn forget(&self) {
        let mut known = self.known();
        known.changes += 1;
        known.attributes.clear();
        known.incapable.clear();
    }

    /// Attributes of a file, and how long the kernel may cache them.
    pub(super) fn attributes(
        &self,
        system: &FileSystem,
        ino: Ino,
    ) -> Result<(Attr, Duration), FsError> {
        let known = self.known().attributes.get(&ino).cloned();
        let believed = known.and_then(|(at, attr)| Some((attr, self.left(at)?)));
        if let Some((attr, left)) = believed {
            if let Some(attr) = system.attributes_of_written(&attr) {
                return Ok((attr, left));
            }
        }
        let asked = self.ask();
        let attr = system.attributes(ino)?;
        self.learn(asked, system, &attr);
        Ok((attr, self.keep))
    }

    /// Remembers the server's answer if the file is written here.
    pub(super) fn learn(&self, asked: Asked, system: &FileSystem, attr: &Attr) {
        if self.keep.is_zero() || system.attributes_of_written(attr).is_none() {
            return;
        }
        let mut known = self.known();
        if known.changes == asked.changes {
            if known.attributes.len() >= REMEMBERED {
                known.attributes.clear();
            }
            known.attributes.insert(attr.ino, (asked.at, attr.clone()));
        }
    }

    /// Whether a file is known to have no capabilities, which the kernel asks for before a write.
    pub(super) fn is_incapable(&self, ino: Ino) -> bool {
        let known = self.known().incapable.get(&ino).copied();
        known.and_then(|at| self.left(at)).is_some()
    }

    pub(super) fn learn_incapable(&self, asked: Asked, ino: Ino) {
        let mut known = self.known();
        if !self.keep.is_zero() && known.changes == asked.changes {
            if known.incapable.len() >= REMEMBERED {
                known.incapable.clear();
            }
            known.incapable.insert(ino, asked.at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_before_a_change_is_not_learnt_after_it() {
        let recent = Recent::new(Duration::from_secs(3600));
        let asked = recent.ask();
        recent.learn_incapable(asked, 7);
        assert!(recent.is_incapable(7));
        recent.forget();
        assert!(!recent.is_incapable(7));
        recent.learn_incapable(asked, 7);
        assert!(!recent.is_incapable(7));
    }

    #[test]
    fn nothing_is_believed_for_no_time() {
        let recent = Recent::new(Duration::ZERO);
        recent.learn_incapable(recent.ask(), 7);
        assert!(!recent.is_incapable(7));
    }
}
