//! What a server counts.

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
    /// Requests that came after their client's turn, or were hit by one that did; they were fetched again.
    pub late: u64,
    /// WRITEs that told clients of their turns because no answer did.
    pub turn_words: u64,
}

impl Counters {
    /// One more request. Each poller counts its own, so the addition never meets another core's.
    #[inline]
    pub(super) fn request(&self) {
        self.requests(1);
    }

    /// So many more.
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

    /// Another group's turn begins.
    pub(super) fn switched(&self) {
        self.switches.fetch_add(1, Ordering::Relaxed);
    }

    /// A client's turn has ended: so many of its requests were late, and so many WRITEs only told of the turn.
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
