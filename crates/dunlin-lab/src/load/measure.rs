//! Taking a rate: warm up, measure, and look at the counters.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Mutex;

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

/// Latencies of a window.
pub(super) struct Latencies(Vec<u64>);

impl Latencies {
    /// Takes those that threads have left here, in nanoseconds.
    pub(super) fn take(left: &Mutex<Vec<u64>>) -> Self {
        let mut all = std::mem::take(&mut *left.lock().expect("no thread panicked"));
        all.sort_unstable();
        Self(all)
    }

    /// The one below which this share of them is, in microseconds.
    pub(super) fn us(&self, share: f64) -> f64 {
        let place = (self.0.len() as f64 * share) as usize;
        self.0.get(place).map_or(f64::NAN, |&ns| ns as f64 / 1e3)
    }
}

/// What some hosts had counted when a window began.
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

    /// The counters of each host at the end.
    pub(super) fn end(self) -> Counted {
        let after = self.hosts.iter().map(|&host| self.cluster.counters(host));
        Counted {
            after: after.collect(),
            before: self.before,
        }
    }
}

/// What some hosts counted in a window.
pub(super) struct Counted {
    before: Vec<Counters>,
    after: Vec<Counters>,
}

impl Counted {
    /// A counter, of all hosts.
    pub(super) fn all(&self, of: impl Fn(&Counters) -> u64) -> f64 {
        let pairs = self.after.iter().zip(&self.before);
        pairs.map(|(a, b)| (of(a) - of(b)) as f64).sum()
    }

    /// A counter, of the first host.
    pub(super) fn first(&self, of: impl Fn(&Counters) -> u64) -> f64 {
        (of(&self.after[0]) - of(&self.before[0])) as f64
    }

    /// A counter of all hosts since they began.
    pub(super) fn since_the_beginning(&self, of: impl Fn(&Counters) -> u64) -> f64 {
        self.after.iter().map(of).sum::<u64>() as f64
    }
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
