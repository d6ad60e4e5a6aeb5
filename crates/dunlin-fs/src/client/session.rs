//! The session of a file system: how long it is valid by this client's clock, and how it is replaced.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use super::file_state::Reign;
use super::{FileSystem, FsError};
use crate::types::Errno;
use crate::wire::{Change, Watched, Welcome};

/// Interval between two checks whether the session is valid again.
const LOOK_EVERY: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(super) struct SessionKeeper {
    base: Instant,
    reign: Mutex<Reign>,
    /// Milliseconds after `base` at which the session counts as over, unless it was renewed.
    valid_until: AtomicU64,
    lease: Duration,
    /// Held by each WRITE; a thread that replaces the session waits until none is in progress.
    gate: RwLock<()>,
    stop: AtomicBool,
}

impl SessionKeeper {
    pub(super) fn new(welcome: &Welcome, asked: Instant) -> Self {
        let keeper = Self {
            base: asked,
            reign: Mutex::new(Reign {
                session: welcome.session,
                epoch: welcome.epoch,
            }),
            valid_until: AtomicU64::new(0),
            lease: Duration::from_millis(welcome.lease_ms),
            gate: RwLock::default(),
            stop: AtomicBool::new(false),
        };
        keeper.renewed(asked);
        keeper
    }

    /// The server has renewed the session; counted from the time of the request, minus a tenth.
    pub(super) fn renewed(&self, asked: Instant) {
        let until = asked.duration_since(self.base) + self.lease * 9 / 10;
        self.valid_until
            .fetch_max(until.as_millis() as u64, Ordering::AcqRel);
    }

    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    fn is_valid(&self) -> bool {
        self.base.elapsed().as_millis() < u128::from(self.valid_until.load(Ordering::Acquire))
    }
}

impl FileSystem {
    pub(super) fn reign(&self) -> Reign {
        let reign = self.inner.keeper.reign.lock();
        *reign.unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the session is valid by this client's clock.
    pub(super) fn wait_for_session(&self) -> Result<(), FsError> {
        let began = Instant::now();
        while !self.inner.keeper.is_valid() || self.reign().session != self.meta().session() {
            if began.elapsed() > self.patience() || self.inner.keeper.is_stopped() {
                return Err(Errno::IO.into());
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// Permission to WRITE in a session; `None` if it is over.
    pub(super) fn write_gate(&self, session: u64) -> Option<RwLockReadGuard<'_, ()>> {
        let keeper = &self.inner.keeper;
        loop {
            self.wait_for_session().ok()?;
            let open = keeper.gate.read().unwrap_or_else(PoisonError::into_inner);
            if self.reign().session != session {
                return None;
            }
            if keeper.is_valid() {
                return Some(open);
            }
        }
    }

    /// Performs one long poll; returns its results.
    pub(super) fn watch(&self) -> Vec<u64> {
        let keeper = &self.inner.keeper;
        let reign = self.reign();
        let asked = Instant::now();
        let within = (keeper.lease / 2).max(Duration::from_millis(100));
        match self.meta().watch(reign.epoch, within) {
            Ok(Ok(Watched { epoch, recalled })) => {
                if epoch != reign.epoch {
                    let mut reign = keeper.reign.lock().unwrap_or_else(PoisonError::into_inner);
                    reign.epoch = epoch;
                }
                keeper.renewed(asked);
                recalled
            }
            Ok(Err(refused)) if refused.0 == Errno::STALE => {
                if let Err(error) = self.begin_anew() {
                    tracing::warn!(%error, "cannot open a new session");
                    std::thread::sleep(LOOK_EVERY * 4);
                }
                Vec::new()
            }
            Ok(Err(_)) | Err(_) => {
                std::thread::sleep(LOOK_EVERY * 4);
                Vec::new()
            }
        }
    }

    /// Replaces a session that has ended. First no WRITE of the old one is in progress, then the server is told so.
    fn begin_anew(&self) -> Result<(), FsError> {
        let keeper = &self.inner.keeper;
        let _closed = keeper.gate.write().unwrap_or_else(PoisonError::into_inner);
        let ended = self.reign().session;
        let asked = Instant::now();
        let welcome = self.meta().hello()?;
        self.reserved().begin(welcome.session);
        let mut reign = keeper.reign.lock().unwrap_or_else(PoisonError::into_inner);
        *reign = Reign {
            session: welcome.session,
            epoch: welcome.epoch,
        };
        drop(reign);
        keeper.renewed(asked);
        tracing::warn!("the session had expired, and what was not synced in it is lost; a new session has been opened");
        self.meta().change(Change::Settle { ended }).map(drop)
    }

    /// Ends the session, and everything that the server holds for it.
    pub(super) fn say_goodbye(&self) {
        let keeper = &self.inner.keeper;
        let _closed = keeper.gate.write().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = self.meta().change(Change::Bye) {
            tracing::debug!(%error, "cannot close the session");
        }
    }
}
