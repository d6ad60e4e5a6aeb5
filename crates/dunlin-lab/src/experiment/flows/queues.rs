//! What waits at the ports of switches: the most of a window, and the mean over its time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use dunlin_sim::{Observer, SwitchId};

/// The ports where most waited in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in super::super) struct Deepest {
    /// Most bytes that waited at one port.
    pub(in super::super) most_bytes: u64,
    /// Mean of the port whose mean is greatest.
    pub(in super::super) mean_bytes: f64,
}

impl Deepest {
    /// With a window that is this share of all.
    pub(in super::super) fn add(&mut self, window: Self, share: f64) {
        self.most_bytes = self.most_bytes.max(window.most_bytes);
        self.mean_bytes += window.mean_bytes * share;
    }
}

/// One port.
#[derive(Clone, Copy, Debug, Default)]
struct Queue {
    bytes: u64,
    most: u64,
    since_ps: u64,
    /// Bytes times picoseconds of this window.
    area: f64,
}

impl Queue {
    fn until(&mut self, at_ps: u64) {
        self.area += self.bytes as f64 * at_ps.saturating_sub(self.since_ps) as f64;
        self.since_ps = self.since_ps.max(at_ps);
    }
}

#[derive(Debug, Default)]
struct Seen {
    ports: BTreeMap<(usize, u16), Queue>,
    begun_ps: u64,
}

/// An observer that keeps the queues; clones look at the same.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Queues(Arc<Mutex<Seen>>);

impl Queues {
    /// What there was since it was last asked; the next window begins.
    pub(in super::super) fn take(&self, now_ns: u64) -> Deepest {
        let now_ps = now_ns * 1_000;
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let window_ps = now_ps.saturating_sub(seen.begun_ps).max(1);
        let mut deepest = Deepest::default();
        for queue in seen.ports.values_mut() {
            queue.until(now_ps);
            deepest.most_bytes = deepest.most_bytes.max(queue.most);
            deepest.mean_bytes = deepest.mean_bytes.max(queue.area / window_ps as f64);
            (queue.most, queue.area) = (queue.bytes, 0.0);
        }
        seen.begun_ps = now_ps;
        deepest
    }
}

impl Observer for Queues {
    fn begin(&mut self, now_ps: u64) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.begun_ps = now_ps;
    }

    fn port(&mut self, at_ps: u64, switch: SwitchId, port: u16, queued_bytes: u64) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let begun_ps = seen.begun_ps;
        let queue = seen
            .ports
            .entry((switch.number(), port))
            .or_insert_with(|| Queue {
                since_ps: begun_ps,
                ..Queue::default()
            });
        queue.until(at_ps);
        queue.bytes = queued_bytes;
        queue.most = queue.most.max(queued_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dunlin_sim::{Cluster, ClusterBuilder, SwitchParameters};

    fn switch() -> SwitchId {
        let mut builder = ClusterBuilder::new(1);
        let switch = builder.switch(SwitchParameters::sx1012());
        let _: Cluster = builder.build();
        switch
    }

    #[test]
    fn means_are_over_time_and_windows_follow_each_other() {
        let mut queues = Queues::default();
        let switch = switch();
        queues.begin(1_000_000);
        queues.port(2_000_000, switch, 3, 100);
        queues.port(3_000_000, switch, 3, 300);
        queues.port(4_000_000, switch, 3, 0);
        queues.port(4_000_000, switch, 4, 50);
        // One microsecond of 100 and one of 300 bytes in four.
        let first = queues.take(5_000);
        assert_eq!(
            first,
            Deepest {
                most_bytes: 300,
                mean_bytes: 100.0
            }
        );
        // What waits goes on waiting.
        let second = queues.take(7_000);
        assert_eq!(
            second,
            Deepest {
                most_bytes: 50,
                mean_bytes: 50.0
            }
        );
    }
}
