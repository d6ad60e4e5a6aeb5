//! Taking a rate: warm up, measure, and look at the counters.

use std::sync::atomic::{AtomicU64, Ordering};

use dunlin_sim::{Cluster, Counters, HostId};

/// How long to warm up and to measure, in virtual nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Before the measurement.
    pub warm_ns: u64,
    /// The measurement.
    pub measured_ns: u64,
}

impl Window {
    /// 100 µs each: enough for caches of a thousand entries at tens of millions of operations a second.
    pub const SHORT: Self = Self {
        warm_ns: 100_000,
        measured_ns: 100_000,
    };
}

/// What one host did in the window.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// Nanoseconds measured.
    pub nanoseconds: u64,
    /// Counters at the beginning.
    pub before: Counters,
    /// Counters at the end.
    pub after: Counters,
}

impl Rate {
    /// Millions a second of a counter.
    pub fn mops(&self, counter: impl Fn(&Counters) -> u64) -> f64 {
        (counter(&self.after) - counter(&self.before)) as f64 * 1_000.0 / self.nanoseconds as f64
    }

    /// Gigabits a second of a counter of bytes.
    pub fn gbit_s(&self, counter: impl Fn(&Counters) -> u64) -> f64 {
        self.mops(counter) * 8.0 / 1_000.0
    }
}

/// Runs the cluster through the window and gives the rates of `hosts`.
pub fn rate(cluster: &Cluster, hosts: &[HostId], window: Window) -> Vec<Rate> {
    cluster.run_for(window.warm_ns);
    let before: Vec<_> = hosts.iter().map(|&host| cluster.counters(host)).collect();
    cluster.run_for(window.measured_ns);
    let rates = hosts.iter().zip(before).map(|(&host, before)| Rate {
        nanoseconds: window.measured_ns,
        before,
        after: cluster.counters(host),
    });
    rates.collect()
}

/// Steps of warming up, at most.
const WARM_STEPS: usize = 30;

/// Lets the load run, in steps of `step_ns`, until nearly all that NICs write goes to lines that the processor's cache
/// has, as after the first milliseconds of a real run: queues of RECEIVEs and rings have been once around. Where they
/// are larger than what a NIC may have of the cache that never comes.
pub(super) fn warm_up(cluster: &Cluster, calls: &AtomicU64, step_ns: u64) {
    let counted = || -> (u64, u64) {
        let all = cluster
            .hosts()
            .into_iter()
            .map(|host| cluster.counters(host));
        let allocating = all.map(|counters| counters.allocating_writes).sum();
        (calls.load(Ordering::Relaxed), allocating)
    };
    for _ in 0..WARM_STEPS {
        let before = counted();
        cluster.run_for(step_ns);
        let after = counted();
        if after.0 > before.0 && (after.1 - before.1) * 2 < after.0 - before.0 {
            return;
        }
    }
}
