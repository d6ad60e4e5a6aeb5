//! The shared state and counters of a lane.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicU8, Ordering};
use std::sync::OnceLock;

use crate::admission::Standing;
use crate::error::CallError;

/// The state of a lane, readable by all threads, and its counters.
#[derive(Debug)]
pub(crate) struct Status {
    state: AtomicU8,
    /// Bits of [`Standing`], as the server told them last.
    standing: AtomicU8,
    /// Whether a thread with outstanding calls holds requests back because the lane is not active.
    stuck: AtomicBool,
    /// Whether a thread sleeps for lack of room or credits; and whether there is some now.
    wanted: AtomicBool,
    news: AtomicBool,
    /// Number of threads whose port is assigned to it. Written with the handle's lock held.
    threads: AtomicU32,
    why: OnceLock<CallError>,
    pub(super) figures: LaneFigures,
}

const OPEN: u8 = 0;
const LEAVING: u8 = 1;
const LOST: u8 = 2;

impl Status {
    pub(super) fn new() -> Self {
        Self {
            state: AtomicU8::new(OPEN),
            standing: AtomicU8::new(Standing::ACTIVE.bits()),
            stuck: AtomicBool::new(false),
            wanted: AtomicBool::new(false),
            news: AtomicBool::new(false),
            threads: AtomicU32::new(0),
            why: OnceLock::new(),
            figures: LaneFigures::default(),
        }
    }

    /// Number of threads that are assigned to it.
    #[inline]
    pub(super) fn threads(&self) -> u32 {
        self.threads.load(Ordering::Relaxed)
    }

    /// Adds a thread.
    pub(super) fn add_thread(&self) {
        self.threads.store(self.threads() + 1, Ordering::Relaxed);
    }

    /// Removes a thread.
    pub(super) fn remove_thread(&self) {
        let left = self.threads().saturating_sub(1);
        self.threads.store(left, Ordering::Relaxed);
    }

    /// Whether the lane takes calls.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.state.load(Ordering::Relaxed) == OPEN
    }

    /// Whether the server said goodbye.
    pub(crate) fn is_leaving(&self) -> bool {
        self.state.load(Ordering::Relaxed) == LEAVING
    }

    /// Whether the channel has failed: nothing will be answered on it.
    #[inline]
    pub(crate) fn is_lost(&self) -> bool {
        self.state.load(Ordering::Acquire) == LOST
    }

    /// Whether the server wants requests on it (FLOCK's active queue pair).
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.standing().contains(Standing::ACTIVE)
    }

    #[inline]
    pub(super) fn standing(&self) -> Standing {
        Standing::from_bits_truncate(self.standing.load(Ordering::Relaxed))
    }

    /// Announces that the calling thread will sleep until there is room and credit.
    pub(super) fn want(&self) {
        self.wanted.store(true, Ordering::SeqCst);
    }

    #[inline]
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Announces that there is what a thread sleeps for.
    pub(super) fn announce(&self) {
        self.wanted.store(false, Ordering::SeqCst);
        self.news.store(true, Ordering::SeqCst);
    }

    /// Whether threads that sleep for room or credits are to be woken; clears the flag.
    pub(super) fn take_news(&self) -> bool {
        self.news.load(Ordering::Relaxed) && self.news.swap(false, Ordering::SeqCst)
    }

    pub(super) fn set_standing(&self, standing: Standing) {
        self.standing.store(standing.bits(), Ordering::Relaxed);
        if standing.contains(Standing::ACTIVE) {
            self.stuck.store(false, Ordering::Relaxed);
        }
    }

    /// Records that a thread cannot move to an active lane, because it has calls outstanding on this one, which may be
    /// waiting for the requests that it holds back.
    pub(super) fn stick(&self) {
        self.stuck.store(true, Ordering::Relaxed);
    }

    /// Whether its credits may be spent: on a deactivated lane only if a thread cannot leave it.
    #[inline]
    pub(super) fn spends(&self) -> bool {
        self.is_active() || self.stuck.load(Ordering::Relaxed)
    }

    pub(super) fn leave(&self) {
        let _ = self
            .state
            .compare_exchange(OPEN, LEAVING, Ordering::Relaxed, Ordering::Relaxed);
    }

    pub(super) fn lose(&self, error: CallError) {
        let _ = self.why.set(error);
        self.state.store(LOST, Ordering::Release);
    }

    /// The error of calls that were outstanding when the lane was lost.
    pub(crate) fn error(&self) -> CallError {
        self.why.get().cloned().unwrap_or(CallError::Closed)
    }
}

/// The counters of a lane. Written only by its leader, with each message: on a cache line that threads do not read when
/// they send.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct LaneFigures {
    pub(crate) messages: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) threads: AtomicU64,
    /// Number of one-sided operations, and number of times that some were posted together.
    pub(crate) operations: AtomicU64,
    pub(crate) lists: AtomicU64,
    pub(crate) credits: AtomicU32,
}

impl LaneFigures {
    #[inline]
    pub(super) fn sent(&self, requests: u32, threads: u32) {
        let bump = |count: &AtomicU64, by: u32| {
            count.store(
                count.load(Ordering::Relaxed) + u64::from(by),
                Ordering::Relaxed,
            );
        };
        bump(&self.messages, 1);
        bump(&self.requests, requests);
        bump(&self.threads, threads);
    }

    pub(super) fn operated(&self, operations: u64) {
        let bump = |count: &AtomicU64, by: u64| {
            count.store(count.load(Ordering::Relaxed) + by, Ordering::Relaxed);
        };
        bump(&self.operations, operations);
        bump(&self.lists, 1);
    }

    #[inline]
    pub(super) fn credits(&self, left: u32) {
        self.credits.store(left, Ordering::Relaxed);
    }
}
