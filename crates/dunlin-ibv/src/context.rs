//! An open device of the library, which all its objects hold.

use std::collections::{HashMap, HashSet};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, Weak};

use dunlin_verbs::process::Generation;
use dunlin_verbs::{DeviceAttributes, VerbsError};

use crate::clock::Clock;
use crate::completion_queue::CqCore;
use crate::config::IbvConfig;
use crate::events::Events;
use crate::last_receive::LastReceives;
use crate::link::Link;
use crate::placement::PlacementReason;
use crate::sys::extended::Extended;
use crate::sys::types;
use crate::sys::Api;
use crate::work_table::Registry;

/// A pointer from the library that threads share: its functions may be called from any thread.
pub(crate) struct Shared<T>(pub(crate) *mut T);

impl<T> std::fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Pointer::fmt(&self.0, f)
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Shared<T> {}

// SAFETY: libibverbs is thread-safe: its objects may be used from any thread, which its manual states.
unsafe impl<T> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Shared<T> {}

/// The keys of all live regions.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    live: Mutex<HashSet<u32>>,
}

impl Keys {
    pub(crate) fn insert(&self, lkey: u32) {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        live.insert(lkey);
    }

    pub(crate) fn remove(&self, lkey: u32) {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        live.remove(&lkey);
    }

    pub(crate) fn is_live(&self, lkey: u32) -> bool {
        let live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        live.contains(&lkey)
    }
}

/// The open device and its properties.
#[derive(Debug)]
pub(crate) struct Core {
    /// The process that opened the device: a child must not use the kernel's objects, which belong to its parent and
    /// share its descriptors.
    pub(crate) made_in: Generation,
    pub(crate) api: Api,
    pub(crate) context: Shared<types::Context>,
    pub(crate) config: IbvConfig,
    /// The NIC's own name.
    pub(crate) nic: String,
    pub(crate) attributes: DeviceAttributes,
    pub(crate) placement_reason: PlacementReason,
    pub(crate) link: Link,
    /// Maximum number of READs and atomics that a queue pair has outstanding, and answers.
    pub(crate) reads_initiated: u8,
    pub(crate) reads_answered: u8,
    pub(crate) tables: Registry,
    pub(crate) queues: Mutex<HashMap<usize, Weak<CqCore>>>,
    pub(crate) events: Events,
    pub(crate) last_receives: LastReceives,
    pub(crate) keys: Keys,
    /// The provider's extended calls, unless the configuration disables them.
    pub(crate) extended: Option<Extended>,
    /// The clock of completion timestamps.
    pub(crate) clock: Option<Clock>,
    /// Whether queue pairs are created for extended calls, as determined by a trial.
    pub(crate) posts_by_calls: bool,
    /// Whether it is the kernel's soft-RoCE, whose statuses are coarser.
    pub(crate) soft_roce: bool,
    pub(crate) registered: AtomicUsize,
    pub(crate) next_vector: AtomicUsize,
}

impl Core {
    /// The provider's functions for the data path.
    pub(crate) fn operations(&self) -> &types::Operations {
        // SAFETY: the context is open until `self` is dropped, and providers fill the table before it is handed out.
        unsafe { &(*self.context.0).operations }
    }

    /// The descriptor of asynchronous events.
    pub(crate) fn async_descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is the context's, which is open as long as `self`.
        unsafe { BorrowedFd::borrow_raw((*self.context.0).async_descriptor) }
    }

    /// The completion vector of the next queue: vectors are used in turn.
    pub(crate) fn vector(&self) -> i32 {
        // SAFETY: the context is open.
        let count = unsafe { (*self.context.0).completion_vectors }.max(1) as usize;
        (self.next_vector.fetch_add(1, Ordering::Relaxed) % count) as i32
    }

    /// Whether completions are taken by extended calls.
    pub(crate) fn polls_by_calls(&self) -> bool {
        self.extended.is_some() && (self.clock.is_some() || self.config.extended == Some(true))
    }

    /// Describes which extended calls are used.
    pub(crate) fn extended_words(&self) -> String {
        let posting = if self.posts_by_calls {
            "requests posted by calls"
        } else {
            "requests posted by lists"
        };
        let polling = match (self.polls_by_calls(), self.clock) {
            (_, Some(_)) => "completions with hardware timestamps",
            (true, None) => "completions taken by calls, no timestamps",
            (false, None) => "no timestamps",
        };
        format!("{posting}, {polling}")
    }

    /// Takes `bytes` from the budget.
    pub(crate) fn reserve(&self, bytes: usize) -> Result<(), VerbsError> {
        let limit = self.attributes.max_registered_bytes;
        let taken = self
            .registered
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |used| {
                used.checked_add(bytes).filter(|&sum| sum <= limit)
            });
        match taken {
            Ok(_) => Ok(()),
            Err(used) => Err(VerbsError::Limit {
                resource: "max_registered_bytes",
                asked: bytes,
                available: limit - used,
                limit,
            }),
        }
    }

    pub(crate) fn release(&self, bytes: usize) {
        self.registered.fetch_sub(bytes, Ordering::AcqRel);
    }

    /// The completion queue with this address in the library.
    pub(crate) fn queue(&self, address: usize) -> Option<std::sync::Arc<CqCore>> {
        let queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        queues.get(&address)?.upgrade()
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        if !self.made_in.is_current() {
            return;
        }
        // SAFETY: all objects made from the context hold this value, so none is left; it is closed once.
        let errno = unsafe { (self.api.close_device)(self.context.0) };
        if errno != 0 {
            tracing::warn!(device = %self.nic, errno, "ibv_close_device failed");
        }
    }
}
