//! Two threads, each pinned to its own core: the setting in which every limit is measured.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::Barrier;
use std::time::Duration;

use crate::affinity;
use crate::clock::now_ns;
use crate::histogram::{Latencies, Percentiles};

/// How a thread of a duel waits for the other: it spins on its own core, and yields if both share one.
#[derive(Debug)]
pub struct Wait<'a> {
    stop: &'a AtomicBool,
    yields: bool,
    empty: u32,
}

impl Wait<'_> {
    /// One empty poll; returns `false` when the duel is over.
    #[inline]
    pub fn again(&mut self) -> bool {
        self.empty = self.empty.wrapping_add(1);
        if self.yields {
            std::thread::yield_now();
        }
        self.empty & 0x3f != 0 || self.goes_on()
    }

    /// Whether the duel is still running.
    pub fn goes_on(&self) -> bool {
        !self.stop.load(Relaxed)
    }
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Runs `client` on the first core and `server` on the second, and returns what the client found.
///
/// The duel is over when the client returns; then the server's [`Wait::again`] says so. Both threads are
/// new, so the caller's affinity stays as it was, and the caller sleeps meanwhile.
pub fn duel<R: Send>(
    client: impl FnOnce(&mut Wait<'_>) -> R + Send,
    server: impl FnOnce(&mut Wait<'_>) + Send,
) -> R {
    let pinned = affinity::client_and_server();
    let stop = AtomicBool::new(false);
    let start = Barrier::new(2);
    let wait = || Wait {
        stop: &stop,
        yields: pinned.is_none(),
        empty: 0,
    };
    let (mut client_wait, mut server_wait) = (wait(), wait());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            if let Some((_, core)) = pinned {
                affinity::pin(core);
            }
            start.wait();
            server(&mut server_wait);
        });
        let client = scope.spawn(|| {
            let _stop = StopOnDrop(&stop);
            if let Some((core, _)) = pinned {
                affinity::pin(core);
            }
            start.wait();
            client(&mut client_wait)
        });
        match client.join() {
            Ok(found) => found,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Repeats `batch`, which returns how many operations it did, for `duration`; operations a second.
///
/// On a busy machine nothing may have come back by then: it goes on until something has, to a hundred times that.
pub fn rate_per_s(duration: Duration, mut batch: impl FnMut() -> u64) -> f64 {
    let start = now_ns();
    let end = start + duration.as_nanos() as u64;
    let latest = start + duration.as_nanos() as u64 * 100;
    let mut operations = 0;
    loop {
        operations += batch();
        let now = now_ns();
        let enough = if operations > 0 { end } else { latest };
        if now >= enough {
            return operations as f64 * 1e9 / (now - start).max(1) as f64;
        }
    }
}

/// Round trips between two reads of the clock, each of which takes a tenth of the fastest.
const TIMED_TOGETHER: u64 = 16;

/// Repeats `round_trip` for `duration` and times them, some together; the first tenth warms up and does not count.
pub fn round_trips(duration: Duration, mut round_trip: impl FnMut()) -> Percentiles {
    let mut latencies = Latencies::new();
    let start = now_ns();
    let (warm, end) = (
        start + duration.as_nanos() as u64 / 10,
        start + duration.as_nanos() as u64,
    );
    let mut before = start;
    loop {
        for _ in 0..TIMED_TOGETHER {
            round_trip();
        }
        let now = now_ns();
        if before >= warm {
            latencies.record((now - before) / TIMED_TOGETHER);
        }
        if now >= end && latencies.count() > 0 {
            return latencies.percentiles();
        }
        // Read again, so that recording is in the loop and not in the figure.
        before = now_ns();
    }
}
