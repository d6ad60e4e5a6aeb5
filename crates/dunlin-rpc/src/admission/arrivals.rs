//! How much has come: counted by the poller that takes it, looked at by the scheduler.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Requests that have come, and messages that they came in, modulo 2^32: now, and when they were looked at last.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    came: [AtomicU32; 2],
    seen: [AtomicU32; 2],
}

impl Arrivals {
    /// So many requests have come in all, in so many messages: said by the poller, which alone writes that.
    #[inline]
    pub(super) fn came(&self, requests: u32, messages: u32) {
        self.came[0].store(requests, Ordering::Relaxed);
        self.came[1].store(messages, Ordering::Relaxed);
    }

    /// Requests and messages since the last look, which is the scheduler's.
    pub(super) fn look(&self) -> [u64; 2] {
        [0, 1].map(|i| {
            let now = self.came[i].load(Ordering::Relaxed);
            let before = self.seen[i].swap(now, Ordering::Relaxed);
            now.wrapping_sub(before).into()
        })
    }
}

/// What the poller of a datagram queue pair and the scheduler share.
#[derive(Debug, Default)]
pub(crate) struct DatagramShare {
    pub(super) arrivals: Arrivals,
    /// Clients that can are asked for datagrams: answers say so.
    pub(super) wanted: AtomicBool,
}

impl DatagramShare {
    /// See [`Arrivals::came`].
    #[inline]
    pub(crate) fn came(&self, requests: u32, datagrams: u32) {
        self.arrivals.came(requests, datagrams);
    }

    /// Whether clients that can are asked for datagrams.
    #[inline]
    pub(crate) fn wants_datagrams(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }
}
