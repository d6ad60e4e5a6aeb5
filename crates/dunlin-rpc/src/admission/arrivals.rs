//! Counts of arrived requests and messages: written by the poller that takes them, read by the scheduler.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Number of requests that have arrived, and of the messages that carried them, modulo 2^32: now, and when they were
/// last read.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    came: [AtomicU32; 2],
    seen: [AtomicU32; 2],
}

impl Arrivals {
    /// Sets the totals of requests and messages; called only by the poller.
    #[inline]
    pub(super) fn came(&self, requests: u32, messages: u32) {
        self.came[0].store(requests, Ordering::Relaxed);
        self.came[1].store(messages, Ordering::Relaxed);
    }

    /// Requests and messages since the last call, which is the scheduler's.
    pub(super) fn look(&self) -> [u64; 2] {
        [0, 1].map(|i| {
            let now = self.came[i].load(Ordering::Relaxed);
            let before = self.seen[i].swap(now, Ordering::Relaxed);
            now.wrapping_sub(before).into()
        })
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
