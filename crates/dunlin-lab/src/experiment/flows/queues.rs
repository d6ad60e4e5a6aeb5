//! Queue lengths at switch ports: the maximum in a window, and the mean over its time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dunlin_sim::{Observer, SwitchId};

/// The maxima over all ports in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in super::super) struct Deepest {
    /// Maximum bytes queued at one port.
    pub(in super::super) most_bytes: u64,
    /// Mean of the port with the greatest mean.
    pub(in super::super) mean_bytes: f64,
}

/// Queue statistics of one port in a window.
#[derive(Clone, Copy, Debug, Default)]
struct Had {
    most: u64,
    /// Bytes times picoseconds.
    area: f64,
}

/// One port.
#[derive(Clone, Copy, Debug, Default)]
struct Queue {
    bytes: u64,
    since_ps: u64,
    piece: Had,
    whole: Had,
}

impl Queue {
    fn until(&mut self, at_ps: u64) {
        let area = self.bytes as f64 * at_ps.saturating_sub(self.since_ps) as f64;
        self.piece.area += area;
        self.whole.area += area;
        self.since_ps = self.since_ps.max(at_ps);
    }

    fn set(&mut self, bytes: u64) {
        self.bytes = bytes;
        self.piece.most = self.piece.most.max(bytes);
        self.whole.most = self.whole.most.max(bytes);
    }

    /// Statistics of a new window, which begins with what is queued already.
    fn afresh(&self) -> Had {
        Had {
            most: self.bytes,
            area: 0.0,
        }
    }
}

#[derive(Debug, Default)]
struct Seen {
    ports: BTreeMap<(usize, u16), Queue>,
    /// When the piece and the whole window began.
    piece_ps: u64,
    whole_ps: u64,
}

impl Seen {
    fn deepest(&mut self, now_ps: u64, begun_ps: u64, had: fn(&Queue) -> Had) -> Deepest {
        let window_ps = now_ps.saturating_sub(begun_ps).max(1);
        let mut deepest = Deepest::default();
        for queue in self.ports.values_mut() {
            queue.until(now_ps);
            let had = had(queue);
            deepest.most_bytes = deepest.most_bytes.max(had.most);
            deepest.mean_bytes = deepest.mean_bytes.max(had.area / window_ps as f64);
        }
        deepest
    }
}

/// An observer that records queue lengths; clones share the record.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Queues(Arc<Mutex<Seen>>);

impl Queues {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the measurement.
    pub(in super::super) fn start(&self, now_ns: u64) {
        self.piece(now_ns);
        let mut seen = self.seen();
        seen.whole_ps = seen.piece_ps;
        for queue in seen.ports.values_mut() {
            queue.whole = queue.afresh();
        }
    }

    /// The maxima since the last call, or since the start; begins the next piece.
    pub(in super::super) fn piece(&self, now_ns: u64) -> Deepest {
        let now_ps = now_ns * 1_000;
        let mut seen = self.seen();
        let begun_ps = seen.piece_ps;
        let deepest = seen.deepest(now_ps, begun_ps, |queue| queue.piece);
        for queue in seen.ports.values_mut() {
            queue.piece = queue.afresh();
        }
        seen.piece_ps = now_ps;
        deepest
    }

    /// The maxima since the start.
    pub(in super::super) fn whole(&self, now_ns: u64) -> Deepest {
        let mut seen = self.seen();
        let begun_ps = seen.whole_ps;
        seen.deepest(now_ns * 1_000, begun_ps, |queue| queue.whole)
    }
}

impl Observer for Queues {
    fn begin(&mut self, now_ps: u64) {
        let mut seen = self.seen();
        (seen.piece_ps, seen.whole_ps) = (now_ps, now_ps);
    }

    fn port(&mut self, at_ps: u64, switch: SwitchId, port: u16, queued_bytes: u64) {
        let mut seen = self.seen();
        let queue = seen.ports.entry((switch.number(), port)).or_default();
        queue.until(at_ps);
        queue.set(queued_bytes);
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
    fn means_are_over_time_and_pieces_follow_each_other() {
        let mut queues = Queues::default();
        let switch = switch();
        queues.begin(1_000_000);
        queues.port(2_000_000, switch, 3, 100);
        queues.port(3_000_000, switch, 3, 300);
        queues.port(4_000_000, switch, 3, 0);
        queues.port(4_000_000, switch, 4, 50);
        // One microsecond of 100 and one of 300 bytes in four.
        let first = queues.piece(5_000);
        assert_eq!(
            first,
            Deepest {
                most_bytes: 300,
                mean_bytes: 100.0
            }
        );
        // What is queued stays queued.
        let second = queues.piece(7_000);
        assert_eq!(
            second,
            Deepest {
                most_bytes: 50,
                mean_bytes: 50.0
            }
        );
        // In six microseconds port 3 had 100 bytes for one of them and 300 for another, port 4 had 50 for three.
        let whole = queues.whole(7_000);
        assert_eq!(whole.most_bytes, 300);
        assert!((whole.mean_bytes - 400.0 / 6.0).abs() < 1e-9, "{whole:?}");
        queues.start(7_000);
        assert_eq!(queues.whole(8_000), second);
    }
}
