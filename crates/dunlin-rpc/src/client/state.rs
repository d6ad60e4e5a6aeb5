//! What the clones of a client share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, Weak};
use std::thread::Thread;
use std::time::Duration;

use dunlin_verbs::process::Owned;
use dunlin_verbs::thread;

use super::driver::AsyncLanes;
use super::recipe::Recipe;
use super::thread_lane::ThreadLane;
use super::ConnectionInfo;
use super::Serving;
use crate::call::timeout::Told;
use crate::config::ChannelConfig;

/// What the clones of a client share.
pub(crate) type Core = Owned<CoreState>;

/// The shared state; see [`Core`].
pub(crate) struct CoreState {
    pub(super) id: u64,
    /// Settings that apply to all lanes, whatever the preset.
    pub(super) settings: Settings,
    /// The recipe for lanes, and the device and preset of the first one.
    pub(super) current: RwLock<(Arc<Recipe>, ConnectionInfo)>,
    /// Held while the preset changes.
    pub(super) changing: Mutex<()>,
    pub(super) closed: AtomicBool,
    pub(super) lanes: Mutex<Vec<Weak<Owned<ThreadLane>>>>,
    pub(super) asynchronous: Mutex<AsyncLanes>,
    /// The thread that reports, if there is one.
    pub(super) reporter: OnceLock<Thread>,
    /// Number of regions attached so far.
    pub(super) regions: AtomicU64,
    /// The server that the client's own server calls, if there is or was one.
    pub(super) callable: Mutex<Weak<Serving>>,
}

/// See [`CoreState::settings`].
pub(super) struct Settings {
    pub(super) channel: ChannelConfig,
    pub(super) deadline: Duration,
    pub(super) told: Told,
    pub(super) is_local: bool,
}

impl CoreState {
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(super) fn current(&self) -> RwLockReadGuard<'_, (Arc<Recipe>, ConnectionInfo)> {
        self.current.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The present recipe for lanes.
    pub(super) fn recipe(&self) -> Arc<Recipe> {
        Arc::clone(&self.current().0)
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        if let Some(thread) = self.reporter.get() {
            thread.unpark();
        }
        self.recipe().spares.clear();
        let lanes = std::mem::take(&mut *thread::lock(&self.lanes));
        for lane in lanes.iter().filter_map(Weak::upgrade) {
            lane.close();
        }
        let asynchronous = std::mem::take(&mut *thread::lock(&self.asynchronous));
        asynchronous.close();
    }
}

impl Drop for CoreState {
    fn drop(&mut self) {
        self.close();
        // Pipelines may continue: the handle ends with the last of them.
        if let Some(handle) = self.recipe().handle() {
            handle.orphan();
        }
    }
}
