//! Completion times of flows: for each window, and for each flow.

use serde::Serialize;

use super::Running;
use crate::experiment::window::FlowTally;

/// The result of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FlowTime {
    /// Index of the sending host, in the order of the file.
    pub from: usize,
    /// Index of the receiving host.
    pub to: usize,
    /// Size in bytes.
    pub bytes: u64,
    /// Planned start, since time zero.
    pub start_ns: u64,
    /// Time from the start to the completion of its last WRITE; `None` if it has not ended.
    pub took_ns: Option<u64>,
}

/// The flows of a run, window by window.
#[derive(Debug)]
pub(in super::super) struct FlowTimes<'a> {
    running: &'a Running,
    groups: usize,
    took_ns: Vec<Option<u64>>,
}

impl<'a> FlowTimes<'a> {
    pub(in super::super) fn new(running: &'a Running, groups: usize) -> Self {
        Self {
            running,
            groups,
            took_ns: vec![None; running.flows.len()],
        }
    }

    /// Tallies by group of the flows that ended since the last call; `now_ns` is since time zero.
    pub(in super::super) fn take(&mut self, now_ns: u64) -> Vec<FlowTally> {
        let mut tallies = vec![FlowTally::default(); self.groups];
        for finished in self.running.take() {
            self.took_ns[finished.flow] = finished.took_ns;
            let (group, flow) = &self.running.flows[finished.flow];
            if let Some(took) = finished.took_ns {
                tallies[*group].times_ns.push(took);
                tallies[*group].bytes += flow.bytes;
            }
        }
        for ((group, flow), took) in self.running.flows.iter().zip(&self.took_ns) {
            tallies[*group].unfinished += u64::from(took.is_none() && flow.start_ns <= now_ns);
        }
        for tally in &mut tallies {
            tally.times_ns.sort_unstable();
        }
        tallies
    }

    /// All flows, whenever they ended.
    pub(in super::super) fn all(&self) -> Vec<FlowTime> {
        let all = self.running.flows.iter().zip(&self.took_ns);
        let time = |((_, flow), took): (&(usize, super::Flow), &Option<u64>)| FlowTime {
            from: flow.from,
            to: flow.to,
            bytes: flow.bytes,
            start_ns: flow.start_ns,
            took_ns: *took,
        };
        all.map(time).collect()
    }
}
