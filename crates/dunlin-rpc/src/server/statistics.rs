//! The counters of a server.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// Live counters of a server.
#[derive(Debug, Default)]
pub(super) struct Counters {
    requests: AtomicU64,
    accepted: AtomicU64,
    closed: AtomicU64,
    violations: AtomicU64,
    switches: AtomicU64,
    late: AtomicU64,
    turn_words: AtomicU64,
}

/// A snapshot of a server's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ServerStatistics {
    /// Requests taken.
    pub requests: u64,
    /// Connections accepted since the start.
    pub accepted: u64,
    /// Connections that have ended, for whatever reason.
    pub closed: u64,
    /// Of these, the ones that ended because the client broke the protocol.
    pub violations: u64,
    /// Slices that ended because another group of clients waited (preset `scalerpc`).
    pub switches: u64,
    /// Requests that arrived after their client's turn, or were overwritten by one that did; they were fetched again.
    pub late: u64,
    /// WRITEs that told clients about their turns, because there was no answer to carry this.
    pub turn_words: u64,
}

impl Counters {
    /// Counts a request. Each poller has its own counters, so there is no contention with other cores.
    #[inline]
    pub(super) fn request(&self) {
        self.requests(1);
    }

    /// Counts `more` requests.
    #[inline]
    pub(super) fn requests(&self, more: u64) {
        let seen = self.requests.load(Ordering::Relaxed);
        self.requests.store(seen + more, Ordering::Relaxed);
    }

    pub(super) fn accepted(&self) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn closed(&self, violation: bool) {
        self.closed.fetch_add(1, Ordering::Relaxed);
        self.violations
            .fetch_add(u64::from(violation), Ordering::Relaxed);
    }

    /// Counts a switch to another group.
    pub(super) fn switched(&self) {
        self.switches.fetch_add(1, Ordering::Relaxed);
    }

    /// Called when a client's turn has ended: adds its late requests, and the WRITEs that only told it about turns.
    pub(super) fn turn_ended(&self, late: u64, words: u64) {
        self.late.fetch_add(late, Ordering::Relaxed);
        self.turn_words.fetch_add(words, Ordering::Relaxed);
    }

    pub(super) fn add_to(&self, sum: &mut ServerStatistics) {
        sum.requests += self.requests.load(Ordering::Relaxed);
        sum.accepted += self.accepted.load(Ordering::Relaxed);
        sum.closed += self.closed.load(Ordering::Relaxed);
        sum.violations += self.violations.load(Ordering::Relaxed);
        sum.switches += self.switches.load(Ordering::Relaxed);
        sum.late += self.late.load(Ordering::Relaxed);
        sum.turn_words += self.turn_words.load(Ordering::Relaxed);
    }
}
