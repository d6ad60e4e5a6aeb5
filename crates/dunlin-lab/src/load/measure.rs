//! Measuring a rate: warm up, measure, and compare the counters.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Mutex;

use dunlin_sim::{Cluster, Counters, HostId};

/// Durations of warm-up and measurement, in virtual nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The warm-up.
    pub warm_ns: u64,
    /// The measurement.
    pub measured_ns: u64,
}

impl Window {
    /// 100 µs each: enough for caches of a thousand entries at tens of millions of operations per second.
    pub const SHORT: Self = Self {
        warm_ns: 100_000,
        measured_ns: 100_000,
    };
}

/// Activity of one host in a window.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// Duration of the measurement, in nanoseconds.
    pub nanoseconds: u64,
    /// Counters at the beginning.
    pub before: Counters,
    /// Counters at the end.
    pub after: Counters,
}

impl Rate {
    /// A counter in millions per second.
    pub fn mops(&self, counter: impl Fn(&Counters) -> u64) -> f64 {
        (counter(&self.after) - counter(&self.before)) as f64 * 1_000.0 / self.nanoseconds as f64
    }

    /// A counter of bytes in gigabits per second.
    pub fn gbit_s(&self, counter: impl Fn(&Counters) -> u64) -> f64 {
        self.mops(counter) * 8.0 / 1_000.0
    }
}

/// Runs the cluster through the window and returns the rates of `hosts`.
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

/// Latencies of a window.
pub(super) struct Latencies(Vec<u64>);

impl Latencies {
    /// Takes the latencies recorded by threads, in nanoseconds.
    pub(super) fn take(left: &Mutex<Vec<u64>>) -> Self {
        let mut all = std::mem::take(&mut *left.lock().expect("no thread panicked"));
        all.sort_unstable();
        Self(all)
    }

    /// The quantile `share`, in microseconds.
    pub(super) fn us(&self, share: f64) -> f64 {
        let place = (self.0.len() as f64 * share) as usize;
        self.0.get(place).map_or(f64::NAN, |&ns| ns as f64 / 1e3)
    }
}

/// Counters of some hosts at the beginning of a window.
pub(super) struct Counting<'a> {
    cluster: &'a Cluster,
    hosts: &'a [HostId],
    before: Vec<Counters>,
}

impl<'a> Counting<'a> {
    pub(super) fn begin(cluster: &'a Cluster, hosts: &'a [HostId]) -> Self {
        let before = hosts.iter().map(|&host| cluster.counters(host));
        Self {
            before: before.collect(),
            cluster,
            hosts,
        }
    }

    /// Ends the window.
    pub(super) fn end(self) -> Counted {
        let after = self.hosts.iter().map(|&host| self.cluster.counters(host));
        Counted {
            after: after.collect(),
            before: self.before,
        }
    }
}

/// Counters of some hosts in a window.
pub(super) struct Counted {
    before: Vec<Counters>,
    after: Vec<Counters>,
}

impl Counted {
    /// A counter, summed over all hosts.
    pub(super) fn all(&self, of: impl Fn(&Counters) -> u64) -> f64 {
        let pairs = self.after.iter().zip(&self.before);
        pairs.map(|(a, b)| (of(a) - of(b)) as f64).sum()
    }

    /// A counter of the first host.
    pub(super) fn first(&self, of: impl Fn(&Counters) -> u64) -> f64 {
        (of(&self.after[0]) - of(&self.before[0])) as f64
    }

    /// A counter of all hosts since they began.
    pub(super) fn since_the_beginning(&self, of: impl Fn(&Counters) -> u64) -> f64 {
        self.after.iter().map(of).sum::<u64>() as f64
    }
}

/// Maximum number of warm-up steps.
const WARM_STEPS: usize = 30;

/// Lets the load run, in steps of `step_ns`, until nearly all lines that NICs write are in the processor's cache, as
/// after the first milliseconds of a real run: receive queues and rings have been used once. If they are larger than a
/// NIC's share of the cache, this never happens.
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
