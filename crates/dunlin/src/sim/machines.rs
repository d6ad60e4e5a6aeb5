//! The machines behind the names of hosts. A host that comes back after a restart is another machine of the cluster: it
//! has nothing of what the one before had in memory, and what is sent to that one finds nobody.

use std::time::Duration;

use dunlin_sim::{Cluster, HostId, HostParameters, NicParameters, SwitchParameters};

/// Machines, by hosts.
pub(super) struct Machines {
    cluster: Cluster,
    hosts: Vec<Machine>,
}

struct Machine {
    /// All that the host may be, in the order of its starts.
    all: Vec<HostId>,
    restarts: usize,
    down: Option<Down>,
}

/// A host that is down.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Down {
    ForEver,
    /// It comes back then.
    Until(Duration),
}

impl Machines {
    /// For one host for each number, which is restarted so often at most.
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

    /// What the host is now.
    pub(super) fn current(&self, host: usize) -> HostId {
        let machine = &self.hosts[host];
        machine.all[machine.restarts]
    }

    /// What the host was, is and may be.
    pub(super) fn all(&self, host: usize) -> &[HostId] {
        &self.hosts[host].all
    }

    /// How often it has come back.
    pub(super) fn restarts(&self, host: usize) -> usize {
        self.hosts[host].restarts
    }

    pub(super) fn is_down(&self, host: usize) -> bool {
        self.hosts[host].down.is_some()
    }

    pub(super) fn comes_back(&self, host: usize) -> bool {
        matches!(self.hosts[host].down, Some(Down::Until(_)))
    }

    /// Stops a host, which comes back at `back`, if ever. One that is down and was to come back does not any more when
    /// it is stopped for ever; of another restart it takes no notice.
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

    /// Hosts that come back by now.
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
