//! The machines behind the names of hosts. A host that comes back after a restart is another machine of the cluster: it
//! has no memory of the previous one, and messages to that one are not received.

use std::time::Duration;

use dunlin_sim::{Cluster, HostId, HostParameters, NicParameters, SwitchParameters};

/// The machines of all hosts.
pub(super) struct Machines {
    cluster: Cluster,
    hosts: Vec<Machine>,
}

struct Machine {
    /// All machines that the host may be, in the order of its starts.
    all: Vec<HostId>,
    restarts: usize,
    down: Option<Down>,
}

/// A host that is down.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Down {
    ForEver,
    /// It comes back at this time.
    Until(Duration),
}

impl Machines {
    /// Creates the machines for one host per number, which is the maximum number of its restarts.
    pub(super) fn new(
        seed: u64,
        (processor, nic, switch): &(HostParameters, NicParameters, SwitchParameters),
        restarts: &[usize],
    ) -> Self {
        let count = restarts.len() + restarts.iter().sum::<usize>();
        let cluster = Cluster::star(seed, count.max(1), processor, nic, switch);
        let all = cluster.hosts();
        let (first, mut others) = all.split_at(restarts.len().min(all.len()));
        let machine = |(&first, &restarts): (&HostId, &usize)| {
            let (own, rest) = others.split_at(restarts);
            others = rest;
            Machine {
                all: [&[first], own].concat(),
                restarts: 0,
                down: None,
            }
        };
        let hosts = first.iter().zip(restarts).map(machine).collect();
        Self { cluster, hosts }
    }

    pub(super) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The host's current machine.
    pub(super) fn current(&self, host: usize) -> HostId {
        let machine = &self.hosts[host];
        machine.all[machine.restarts]
    }

    /// The host's past, current and future machines.
    pub(super) fn all(&self, host: usize) -> &[HostId] {
        &self.hosts[host].all
    }

    /// Number of times that it has come back.
    pub(super) fn restarts(&self, host: usize) -> usize {
        self.hosts[host].restarts
    }

    pub(super) fn is_down(&self, host: usize) -> bool {
        self.hosts[host].down.is_some()
    }

    pub(super) fn comes_back(&self, host: usize) -> bool {
        matches!(self.hosts[host].down, Some(Down::Until(_)))
    }

    /// Stops a host, which comes back at `back`, if given. A host that is down and was to come back does not if it is
    /// now stopped for ever; another restart of it is ignored.
    pub(super) fn stop(&mut self, host: usize, back: Option<Duration>) {
        let current = self.current(host);
        let machine = &mut self.hosts[host];
        match (machine.down, back) {
            (None, _) => self.cluster.crash(current),
            (Some(_), None) => {}
            (Some(_), Some(_)) => return,
        }
        machine.down = Some(back.map_or(Down::ForEver, Down::Until));
    }

    /// When the next host comes back.
    pub(super) fn next(&self) -> Option<Duration> {
        let downs = self.hosts.iter().filter_map(|machine| machine.down);
        let backs = downs.filter_map(|down| match down {
            Down::Until(back) => Some(back),
            Down::ForEver => None,
        });
        backs.min()
    }

    /// The hosts that come back by now.
    pub(super) fn back(&mut self, now: Duration) -> Vec<usize> {
        let mut back = Vec::new();
        for (host, machine) in self.hosts.iter_mut().enumerate() {
            if matches!(machine.down, Some(Down::Until(at)) if at <= now) {
                machine.down = None;
                machine.restarts += 1;
                back.push(host);
            }
        }
        back
    }
}
