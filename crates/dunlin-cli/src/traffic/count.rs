//! Counts records by flow.

use std::cmp::Reverse;
use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::{Flow, Key, Record};

/// Packets and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Volume {
    /// Number of packets.
    pub packets: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
}

impl Volume {
    fn add(&mut self, bytes: u32) {
        self.packets += 1;
        self.bytes += u64::from(bytes);
    }
}

/// A flow and its volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Talker {
    /// The flow.
    #[serde(flatten)]
    pub flow: Flow,
    /// Number of packets and bytes.
    #[serde(flatten)]
    pub volume: Volume,
}

/// The result of counting.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// All packets.
    pub all: Volume,
    /// Those without a flow.
    pub without_flow: Volume,
    /// Those of flows that appeared when the maximum number of flows was reached.
    pub of_more_flows: Volume,
    /// Number of flows.
    pub flows: u64,
    /// Time from the first to the last packet, in nanoseconds.
    pub lasted_ns: u64,
    /// The flows with the most bytes, the largest first.
    pub top: Vec<Talker>,
}

/// Counts records.
#[derive(Debug)]
pub struct Counter {
    /// Hashed in such a way that the sender of the traffic cannot choose the hashes.
    flows: HashMap<Key, Volume>,
    flows_max: usize,
    all: Volume,
    without_flow: Volume,
    of_more_flows: Volume,
    first_ns: u64,
    last_ns: u64,
    lost: bool,
}

impl Counter {
    /// Counts at most this many flows separately, and packets of others together.
    pub fn new(flows_max: usize) -> Self {
        Self {
            flows: HashMap::new(),
            flows_max,
            all: Volume::default(),
            without_flow: Volume::default(),
            of_more_flows: Volume::default(),
            first_ns: u64::MAX,
            last_ns: 0,
            lost: false,
        }
    }

    /// Takes the next record.
    #[inline]
    pub fn take(&mut self, record: &Record) {
        self.lost |= record.sequence != self.all.packets;
        self.all.add(record.bytes);
        self.first_ns = self.first_ns.min(record.time_ns);
        self.last_ns = self.last_ns.max(record.time_ns);
        if record.key == [0; super::KEY_BYTES] {
            return self.without_flow.add(record.bytes);
        }
        if self.flows.len() < self.flows_max {
            return self.flows.entry(record.key).or_default().add(record.bytes);
        }
        match self.flows.get_mut(&record.key) {
            Some(known) => known.add(record.bytes),
            None => self.of_more_flows.add(record.bytes),
        }
    }

    /// Whether records were missing or out of order.
    pub fn has_lost(&self) -> bool {
        self.lost
    }

    /// The result, with the `top` largest flows.
    pub fn counts(&self, top: usize) -> Counts {
        let flows = self.flows.iter();
        let mut talkers: Vec<Talker> = flows
            .filter_map(|(key, volume)| {
                Some(Talker {
                    flow: Flow::of(key)?,
                    volume: *volume,
                })
            })
            .collect();
        let order = |talker: &Talker| {
            let Volume { packets, bytes } = talker.volume;
            (Reverse((bytes, packets)), talker.flow)
        };
        talkers.sort_unstable_by_key(order);
        talkers.truncate(top);
        Counts {
            all: self.all,
            without_flow: self.without_flow,
            of_more_flows: self.of_more_flows,
            flows: self.flows.len() as u64,
            lasted_ns: self.last_ns.saturating_sub(self.first_ns),
            top: talkers,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(sequence: u64, flow: u16, bytes: u32) -> Record {
        let flow = Flow {
            source: [10, 0, 0, 1].into(),
            source_port: flow,
            destination: [10, 0, 0, 2].into(),
            destination_port: 80,
            protocol: 6,
        };
        Record {
            key: flow.key(),
            time_ns: 1000 * sequence,
            sequence,
            bytes,
        }
    }

    #[test]
    fn flows_are_counted_and_the_largest_come_first() {
        let mut counter = Counter::new(100);
        for (sequence, (flow, bytes)) in [(1, 60), (2, 1500), (1, 60), (3, 70)]
            .into_iter()
            .enumerate()
        {
            counter.take(&record(sequence as u64, flow, bytes));
        }
        let counts = counter.counts(2);
        assert!(!counter.has_lost());
        assert_eq!((counts.all.packets, counts.all.bytes), (4, 1690));
        assert_eq!((counts.flows, counts.lasted_ns), (3, 3000));
        let top: Vec<_> = counts
            .top
            .iter()
            .map(|one| (one.flow.source_port, one.volume.packets))
            .collect();
        assert_eq!(top, [(2, 1), (1, 2)]);
    }

    #[test]
    fn more_flows_than_may_be_are_counted_together() {
        let mut counter = Counter::new(2);
        for (sequence, flow) in [1, 2, 3, 1, 4].into_iter().enumerate() {
            counter.take(&record(sequence as u64, flow, 100));
        }
        let counts = counter.counts(9);
        assert_eq!((counts.flows, counts.all.packets), (2, 5));
        assert_eq!(counts.of_more_flows.packets, 2);
    }

    #[test]
    fn what_is_missing_is_noticed() {
        let mut counter = Counter::new(2);
        counter.take(&record(0, 1, 100));
        counter.take(&record(2, 1, 100));
        assert!(counter.has_lost());
    }
}
