//! The faults of a run, with their beginnings and ends.

use std::sync::Arc;
use std::time::Duration;

use dunlin_sim::{FaultRule, HostId, RuleGuard};

use super::host::Shared;
use super::machines::Machines;
use super::Fault;

/// Delay of the duplicate of a packet.
const SECOND_NS: u64 = 5_000;

/// A fault in force, and until when.
enum InForce {
    Rule(#[expect(dead_code, reason = "it ends when it is dropped")] RuleGuard),
    Slow(usize),
}

/// Faults in the order of their times.
pub(super) struct Timeline {
    machines: Machines,
    shared: Arc<Shared>,
    /// Future faults, the next one last.
    to_come: Vec<(Duration, Fault)>,
    in_force: Vec<(Duration, InForce)>,
    past: Vec<(Duration, String)>,
}

impl Timeline {
    pub(super) fn new(
        machines: Machines,
        shared: &Arc<Shared>,
        mut faults: Vec<(Duration, Fault)>,
    ) -> Self {
        faults.reverse();
        faults.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
        Self {
            machines,
            shared: Arc::clone(shared),
            to_come: faults,
            in_force: Vec::new(),
            past: Vec::new(),
        }
    }

    pub(super) fn machines(&self) -> &Machines {
        &self.machines
    }

    /// The time at which something begins or ends next.
    pub(super) fn next(&self) -> Option<Duration> {
        let begins = self.to_come.last().map(|(at, _)| *at);
        let ends = self.in_force.iter().map(|(until, _)| *until);
        ends.chain(begins).chain(self.machines.next()).min()
    }

    /// Begins and ends everything that is due. Returns the hosts that have come back, and those that are down now.
    pub(super) fn advance(&mut self, now: Duration) -> (Vec<usize>, Vec<usize>) {
        let back = self.machines.back(now);
        let (over, on): (Vec<_>, Vec<_>) = std::mem::take(&mut self.in_force)
            .into_iter()
            .partition(|(until, _)| *until <= now);
        self.in_force = on;
        for (_, what) in over {
            if let InForce::Slow(host) = what {
                self.slow_down(host, 1.0);
            }
        }
        let mut down = Vec::new();
        while let Some((_, fault)) = self.to_come.pop_if(|(at, _)| *at <= now) {
            self.past.push((now, fault.to_string()));
            down.extend(self.begin(now, &fault));
        }
        (back, down)
    }

    /// For every machine that the host may be.
    fn slow_down(&self, host: usize, factor: f64) {
        for &machine in self.machines.all(host) {
            self.machines.cluster().slow_down(machine, factor);
        }
    }

    /// Begins a fault; returns the host that is down because of it.
    fn begin(&mut self, now: Duration, fault: &Fault) -> Option<usize> {
        let cluster = self.machines.cluster().clone();
        let place = |name: &String| self.shared.names.iter().position(|other| other == name);
        let rule = |fault, share| InForce::Rule(cluster.fault(FaultRule::new(fault, share)));
        let mut down = None;
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
                let places = hosts.iter().filter_map(place);
                let side = places.flat_map(|place| self.machines.all(place).iter().copied());
                let side: Vec<HostId> = side.collect();
                Some((lasts, InForce::Rule(cluster.partition(&side))))
            }
            Fault::Pause { host: name, lasts } => {
                if let Some(host) = place(name) {
                    let machine = self.machines.current(host);
                    cluster.pause(machine, lasts.as_nanos() as u64);
                }
                None
            }
            Fault::Slow {
                host: name,
                factor,
                lasts,
            } => place(name).map(|host| {
                self.slow_down(host, *factor);
                (lasts, InForce::Slow(host))
            }),
            Fault::LostConnections { host: name } => {
                if let Some(host) = place(name) {
                    cluster.fail_queue_pairs(self.machines.current(host));
                }
                None
            }
            Fault::Crash { host: name } => {
                down = place(name);
                if let Some(host) = down {
                    self.machines.stop(host, None);
                }
                None
            }
            Fault::Restart { host: name, lasts } => {
                down = place(name);
                if let Some(host) = down {
                    self.machines.stop(host, Some(now + *lasts));
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
        down
    }

    /// Ends everything in force, except that hosts are down; returns the faults so far.
    pub(super) fn end(self) -> (Machines, Vec<(Duration, String)>) {
        for (_, what) in &self.in_force {
            if let InForce::Slow(host) = what {
                self.slow_down(*host, 1.0);
            }
        }
        (self.machines, self.past)
    }
}
