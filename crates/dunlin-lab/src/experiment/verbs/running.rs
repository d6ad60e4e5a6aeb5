//! The verbs of an experiment on a cluster, and what its threads have done.

use std::sync::atomic::Ordering;
use std::sync::Arc;

use dunlin_sim::{Cluster, HostId};

use super::model::{Load, Verbs};
use crate::experiment::window::VerbTally;
use crate::load::{datagram_rpc, Answers};

/// Verbs at work.
#[derive(Debug)]
pub(in super::super) struct Running {
    /// Of each group.
    done: Vec<Arc<Answers>>,
}

impl Running {
    /// Puts them on the hosts of a cluster, where they begin at once.
    pub(in super::super) fn begin(cluster: &Cluster, groups: &[Verbs], seed: u64) -> Self {
        let hosts = cluster.hosts();
        let places = |all: &[(usize, usize)]| -> Vec<(HostId, usize)> {
            all.iter()
                .map(|&(host, core)| (hosts[host], core))
                .collect()
        };
        let begin = |group: &Verbs| {
            let done = match &group.load {
                Load::Posting(posting) => {
                    let done = Arc::new(Answers::default());
                    posting.spawn(cluster, seed, Some(&done));
                    done
                }
                Load::Answered {
                    requesters,
                    servers,
                    plan,
                } => datagram_rpc(cluster, &places(requesters), &places(servers), *plan),
            };
            done.time();
            done
        };
        Self {
            done: groups.iter().map(begin).collect(),
        }
    }

    /// How many are done so far, by group.
    pub(in super::super) fn counts(&self) -> Vec<u64> {
        let counts = self.done.iter();
        counts
            .map(|done| done.count.load(Ordering::Relaxed))
            .collect()
    }

    /// What groups did between these counts; takes the times.
    pub(in super::super) fn tallies(&self, before: &[u64], after: &[u64]) -> Vec<VerbTally> {
        let counts = before.iter().zip(after);
        let tally = |(done, (before, after)): (&Arc<Answers>, (&u64, &u64))| VerbTally {
            done: after - before,
            times_ns: done.take(),
        };
        self.done.iter().zip(counts).map(tally).collect()
    }

    /// Their threads end.
    pub(in super::super) fn end(&self) {
        self.done.iter().for_each(|done| done.end());
    }
}
