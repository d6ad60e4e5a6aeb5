//! Counts that pollers write and the scheduler reads: of requests and messages that have arrived, and of passes.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Two totals, modulo 2^32: now, and when they were last read.
#[derive(Debug, Default)]
struct Totals {
    now: [AtomicU32; 2],
    seen: [AtomicU32; 2],
}

impl Totals {
    /// Sets them; called only by the poller.
    #[inline]
    fn set(&self, totals: [u32; 2]) {
        for (now, total) in self.now.iter().zip(totals) {
            now.store(total, Ordering::Relaxed);
        }
    }

    /// What was added since the last call, which is the scheduler's.
    fn look(&self) -> [u64; 2] {
        [0, 1].map(|i| {
            let now = self.now[i].load(Ordering::Relaxed);
            let before = self.seen[i].swap(now, Ordering::Relaxed);
            now.wrapping_sub(before).into()
        })
    }
}

/// Number of requests that have arrived, and of the messages that carried them.
#[derive(Debug, Default)]
pub(super) struct Arrivals(Totals);

impl Arrivals {
    /// Sets the totals of requests and messages; called only by the poller.
    #[inline]
    pub(super) fn came(&self, requests: u32, messages: u32) {
        self.0.set([requests, messages]);
    }

    /// Requests and messages since the last call, which is the scheduler's.
    pub(super) fn look(&self) -> [u64; 2] {
        self.0.look()
    }
}

/// Number of passes of a polling thread that found work, and of those that found none.
#[derive(Debug, Default)]
pub(crate) struct Passes(Totals);

impl Passes {
    /// Counts a pass; called only by the polling thread.
    #[inline]
    pub(crate) fn passed(&self, found: bool) {
        let total = &self.0.now[usize::from(!found)];
        let more = total.load(Ordering::Relaxed).wrapping_add(1);
        total.store(more, Ordering::Relaxed);
    }

    /// Passes with and without work since the last call, which is the scheduler's.
    pub(super) fn look(&self) -> [u64; 2] {
        self.0.look()
    }
}

/// State shared by the poller of a datagram queue pair and the scheduler.
#[derive(Debug, Default)]
pub(crate) struct DatagramShare {
    pub(super) arrivals: Arrivals,
    /// Whether clients that can are asked to use datagrams: answers say so.
    pub(super) wanted: AtomicBool,
}

impl DatagramShare {
    /// See [`Arrivals::came`].
    #[inline]
    pub(crate) fn came(&self, requests: u32, datagrams: u32) {
        self.arrivals.came(requests, datagrams);
    }

    /// Whether clients that can are asked to use datagrams.
    #[inline]
    pub(crate) fn wants_datagrams(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }
}
