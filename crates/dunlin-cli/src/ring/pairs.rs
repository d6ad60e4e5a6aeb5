//! Several producers at the same time, each with its own ring, consumer process and thread (RB² Exp#3).

use std::time::Duration;

use dunlin_verbs::Device;

use super::active::Active;
use super::serve::Consumer;
use super::{Plan, Without};
use crate::affinity;
use crate::commands::Failure;
use crate::peer::Peer;
use crate::report::Tally;

/// The pairs of one design.
#[derive(Debug)]
pub struct Pairs<D: Device> {
    plan: Plan,
    members: Vec<Active<D>>,
}

/// The cores of a pair: the first two are the first pair's, and so on; if there are too few they are shared.
fn cores(pair: usize) -> Option<(usize, usize)> {
    let cores = affinity::cores();
    let at = |index: usize| cores[index % cores.len()];
    (cores.len() > 1).then(|| (at(2 * pair), at(2 * pair + 1)))
}

/// Pins the calling thread to the core of a pair's producer, or, to measure the cost of that, to one of another node.
fn stay(plan: &Plan, pair: usize) {
    if let Some((first, _)) = cores(pair) {
        let away = !plan.has(Without::Numa);
        let other = away.then(|| affinity::core_of_another_node(first));
        affinity::pin(other.flatten().unwrap_or(first));
    }
}

impl<D: Device> Pairs<D> {
    /// Creates them, one after the other, each on the core where its producer will run.
    ///
    /// # Errors
    /// When the device's limits do not permit it, or the design does not support it.
    pub fn start(device: &D, plan: &Plan, peers: Vec<Peer<Consumer>>) -> Result<Self, Failure> {
        let start = |(pair, peer)| {
            stay(plan, pair);
            Active::start(device, plan, peer, cores(pair).map(|(_, second)| second))
        };
        let members = peers.into_iter().enumerate().map(start);
        Ok(Self {
            plan: plan.clone(),
            members: members.collect::<Result<_, _>>()?,
        })
    }

    /// The plan of the measurement.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Measures one slice of all of them at the same time.
    ///
    /// # Errors
    /// When a ring fails.
    pub fn slice(&mut self, length: Duration) -> Result<Tally, Failure> {
        let plan = &self.plan;
        stay(plan, 0);
        let Some((first, others)) = self.members.split_first_mut() else {
            return Ok(Tally::default());
        };
        std::thread::scope(|scope| {
            let others: Vec<_> = others
                .iter_mut()
                .enumerate()
                .map(|(index, member)| {
                    scope.spawn(move || {
                        stay(plan, index + 1);
                        member.slice(length)
                    })
                })
                .collect();
            let (mut tally, mut measured) = first.slice(length)?;
            let alone = others.is_empty();
            for other in others {
                let joined = other.join();
                let joined = joined.map_err(|_| Failure::new("a producer panicked"))?;
                let (theirs, when) = joined?;
                tally.merge_beside(&theirs);
                measured = measured.start.min(when.start)..measured.end.max(when.end);
            }
            if !alone {
                // Where cores are too few they took turns, and all of the turns count.
                tally.elapsed = measured.end - measured.start;
            }
            Ok(tally)
        })
    }

    /// Ends the consumers' processes.
    ///
    /// # Errors
    /// When one ends unexpectedly.
    pub fn stop(self) -> Result<(), Failure> {
        self.members.into_iter().try_for_each(Active::stop)
    }
}
