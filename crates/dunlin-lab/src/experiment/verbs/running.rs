//! The verbs of an experiment on a cluster, and counts of what its threads have done.

use std::sync::atomic::Ordering;
use std::sync::Arc;

use dunlin_sim::Cluster;

use super::model::Verbs;
use crate::experiment::window::VerbTally;
use crate::load::Done;

/// Running verbs.
#[derive(Debug)]
pub(in super::super) struct Running {
    /// Counts of each group.
    done: Vec<Arc<Done>>,
}

impl Running {
    /// Starts the verbs on the hosts of a cluster.
    pub(in super::super) fn begin(cluster: &Cluster, groups: &[Verbs], seed: u64) -> Self {
        let begin = |group: &Verbs| {
            let done = Arc::new(Done::default());
            group.posting.spawn(cluster, seed, Some(&done));
            done.time();
            done
        };
        Self {
            done: groups.iter().map(begin).collect(),
        }
    }

    /// Number of verbs completed so far, by group.
    pub(in super::super) fn counts(&self) -> Vec<u64> {
        let counts = self.done.iter();
        counts
            .map(|done| done.count.load(Ordering::Relaxed))
            .collect()
    }

    /// Tallies of the groups between these counts; takes the times.
    pub(in super::super) fn tallies(&self, before: &[u64], after: &[u64]) -> Vec<VerbTally> {
        let counts = before.iter().zip(after);
        let tally = |(done, (before, after)): (&Arc<Done>, (&u64, &u64))| VerbTally {
            done: after - before,
            times_ns: done.take(),
        };
        self.done.iter().zip(counts).map(tally).collect()
    }

    /// Ends the threads.
    pub(in super::super) fn end(&self) {
        self.done.iter().for_each(|done| done.end());
    }
}
