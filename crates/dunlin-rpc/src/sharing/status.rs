//! What all see of a lane: where it stands, and what it has done.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicU8, Ordering};
use std::sync::OnceLock;

use crate::admission::Standing;
use crate::error::CallError;

/// Where a lane stands, for all to see.
#[derive(Debug)]
pub(crate) struct Status {
    state: AtomicU8,
    /// Bits of [`Standing`], as the server told it last.
    standing: AtomicU8,
    /// A thread whose calls are out holds requests back because it is not active.
    stuck: AtomicBool,
    /// A thread sleeps because it had no room or no credits; there is some now.
    wanted: AtomicBool,
    news: AtomicBool,
    /// Threads whose port is assigned to it. Written with the handle's lock held.
    threads: AtomicU32,
    why: OnceLock<CallError>,
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
        }
    }

    /// Threads that are assigned to it.
    #[inline]
    pub(super) fn threads(&self) -> u32 {
        self.threads.load(Ordering::Relaxed)
    }

    /// One thread more.
    pub(super) fn add_thread(&self) {
        self.threads.store(self.threads() + 1, Ordering::Relaxed);
    }

    /// One thread less.
    pub(super) fn remove_thread(&self) {
        let left = self.threads().saturating_sub(1);
        self.threads.store(left, Ordering::Relaxed);
    }

    /// Takes calls.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.state.load(Ordering::Relaxed) == OPEN
    }

    /// The server said goodbye.
    pub(crate) fn is_leaving(&self) -> bool {
        self.state.load(Ordering::Relaxed) == LEAVING
    }

    /// The channel is of no more use, and nobody will answer on it.
    #[inline]
    pub(crate) fn is_lost(&self) -> bool {
        self.state.load(Ordering::Acquire) == LOST
    }

    /// The server wants requests on it (FLOCK's active queue pair).
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.standing().contains(Standing::ACTIVE)
    }

    #[inline]
    pub(super) fn standing(&self) -> Standing {
        Standing::from_bits_truncate(self.standing.load(Ordering::Relaxed))
    }

    /// The calling thread goes to sleep until there is room and credits.
    pub(super) fn want(&self) {
        self.wanted.store(true, Ordering::SeqCst);
    }

    #[inline]
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// There is what a thread sleeps for.
    pub(super) fn announce(&self) {
        self.wanted.store(false, Ordering::SeqCst);
        self.news.store(true, Ordering::SeqCst);
    }

    /// Whether those who sleep for room or credits are to be woken.
    pub(super) fn take_news(&self) -> bool {
        self.news.load(Ordering::Relaxed) && self.news.swap(false, Ordering::SeqCst)
    }

    pub(super) fn set_standing(&self, standing: Standing) {
        self.standing.store(standing.bits(), Ordering::Relaxed);
        if standing.contains(Standing::ACTIVE) {
            self.stuck.store(false, Ordering::Relaxed);
        }
    }

    /// A thread cannot go to an active lane, because calls of it are out on this one, and they may wait for the
    /// requests that it holds.
    pub(super) fn stick(&self) {
        self.stuck.store(true, Ordering::Relaxed);
    }

    /// Whether the credits that it has may be spent: on a lane that was deactivated only by who cannot leave it.
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

    /// The error of calls that were out when it was lost.
    pub(crate) fn error(&self) -> CallError {
        self.why.get().cloned().unwrap_or(CallError::Closed)
    }
}

/// What a lane has done. Written by its leader alone.
#[derive(Debug, Default)]
pub(crate) struct LaneFigures {
    pub(crate) messages: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) threads: AtomicU64,
    /// One-sided operations, and how often some were posted together.
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
