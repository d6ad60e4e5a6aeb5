//! The faults of a run, as they begin and end.

use std::sync::Arc;
use std::time::Duration;

use dunlin_sim::{Cluster, FaultRule, HostId, RuleGuard};

use super::host::Shared;
use super::{Fault, Reason};

/// How much later a packet comes for the second time.
const SECOND_NS: u64 = 5_000;

/// What is in force, and until when.
enum InForce {
    Rule(#[expect(dead_code, reason = "it ends when it is dropped")] RuleGuard),
    Slow(HostId),
}

/// Faults of a cluster in the order of their times.
pub(super) struct Timeline {
    cluster: Cluster,
    shared: Arc<Shared>,
    /// Those to come, the next one last.
    to_come: Vec<(Duration, Fault)>,
    in_force: Vec<(Duration, InForce)>,
    crashed: Vec<usize>,
    past: Vec<(Duration, String)>,
}

impl Timeline {
    pub(super) fn new(
        cluster: &Cluster,
        shared: &Arc<Shared>,
        mut faults: Vec<(Duration, Fault)>,
    ) -> Result<Self, Reason> {
        let named = faults.iter().flat_map(|(_, fault)| fault.hosts());
        if let Some(name) = named.into_iter().find(|name| !shared.names.contains(name)) {
            return Err(Reason::NoHost {
                name: name.clone(),
                hosts: shared.names.clone(),
            });
        }
        faults.reverse();
        faults.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
        Ok(Self {
            cluster: cluster.clone(),
            shared: Arc::clone(shared),
            to_come: faults,
            in_force: Vec::new(),
            crashed: Vec::new(),
            past: Vec::new(),
        })
    }

    /// When something begins or ends next.
    pub(super) fn next(&self) -> Option<Duration> {
        let begins = self.to_come.last().map(|(at, _)| *at);
        let ends = self.in_force.iter().map(|(until, _)| *until);
        ends.chain(begins).min()
    }

    /// Lets everything begin and end that is due.
    pub(super) fn advance(&mut self, now: Duration) {
        let (over, on): (Vec<_>, Vec<_>) = std::mem::take(&mut self.in_force)
            .into_iter()
            .partition(|(until, _)| *until <= now);
        self.in_force = on;
        for (_, what) in over {
            if let InForce::Slow(host) = what {
                self.cluster.slow_down(host, 1.0);
            }
        }
        while let Some((_, fault)) = self.to_come.pop_if(|(at, _)| *at <= now) {
            self.past.push((now, fault.to_string()));
            self.begin(now, &fault);
        }
    }

    fn begin(&mut self, now: Duration, fault: &Fault) {
        let cluster = self.cluster.clone();
        let place = |name: &String| self.shared.names.iter().position(|other| other == name);
        let host = |name: &String| place(name).map(|place| cluster.hosts()[place]);
        let rule = |fault, share| InForce::Rule(cluster.fault(FaultRule::new(fault, share)));
        let begun = match fault {
            Fault::Loss { share, lasts } => Some((lasts, rule(dunlin_sim::Fault::Drop, *share))),
            Fault::Delay { most, lasts } => {
                let delay = dunlin_sim::Fault::Delay {
                    least_ns: 0,
                    most_ns: most.as_nanos() as u64,
                };
                Some((lasts, rule(delay, 1.0)))
            }
            Fault::Duplicates { share, lasts } => {
                let twice = dunlin_sim::Fault::Duplicate {
                    after_ns: SECOND_NS,
                };
                Some((lasts, rule(twice, *share)))
            }
            Fault::Partition { hosts, lasts } => {
                let side: Vec<HostId> = hosts.iter().filter_map(host).collect();
                Some((lasts, InForce::Rule(cluster.partition(&side))))
            }
            Fault::Pause { host: name, lasts } => {
                if let Some(host) = host(name) {
                    cluster.pause(host, lasts.as_nanos() as u64);
                }
                None
            }
            Fault::Slow {
                host: name,
                factor,
                lasts,
            } => host(name).map(|host| {
                cluster.slow_down(host, *factor);
                (lasts, InForce::Slow(host))
            }),
            Fault::LostConnections { host: name } => {
                if let Some(host) = host(name) {
                    cluster.fail_queue_pairs(host);
                }
                None
            }
            Fault::Crash { host: name } => {
                if let Some(host) = host(name) {
                    cluster.crash(host);
                    self.crashed.push(host.number());
                }
                None
            }
            Fault::Clock {
                host: name,
                jump_ns,
                drift_ppm,
            } => {
                if let Some(place) = place(name) {
                    self.shared.set_clock(place, now, (*jump_ns, *drift_ppm));
                }
                None
            }
        };
        if let Some((lasts, what)) = begun {
            self.in_force.push((now + *lasts, what));
        }
    }

    /// Hosts that have crashed.
    pub(super) fn crashed(&self) -> &[usize] {
        &self.crashed
    }

    pub(super) fn has_crashed(&self, host: usize) -> bool {
        self.crashed.contains(&host)
    }

    /// Ends what is in force; gives what has come.
    pub(super) fn end(mut self) -> Vec<(Duration, String)> {
        self.to_come.clear();
        self.advance(Duration::MAX);
        self.past
    }
}
