//! One host with queue pairs to many, as in raw benchmarks of the papers.

use dunlin_sim::{Cluster, ClusterBuilder, HostParameters, NicParameters, SwitchParameters};
use dunlin_verbs::Transport;

use super::{rate, Hosts, Plan, Posting, Window};

/// The requesting side of a fan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// One server sends requests to many clients.
    Outbound,
    /// Many clients send requests to one server.
    Inbound,
}

/// One server and many clients.
#[derive(Clone, Copy, Debug)]
pub struct Fan {
    /// The requesting side.
    pub direction: Direction,
    /// Number of client machines.
    pub machines: usize,
    /// Number of queue pairs over all client machines.
    pub queue_pairs: usize,
    /// Threads of the requesting side: of the server, or of each client machine.
    pub threads: usize,
    /// RC or UC.
    pub transport: Transport,
    /// Bytes of the server's memory for each queue pair (inbound).
    pub zone_bytes: u64,
    /// The plan of the threads.
    pub plan: Plan,
}

/// Builds a fan; host 0 is the server.
///
/// # Panics
/// When a device refuses.
pub fn fan(
    seed: u64,
    fan: Fan,
    hosts: [&HostParameters; 2],
    nic: &NicParameters,
    switch: &SwitchParameters,
) -> Cluster {
    let mut builder = ClusterBuilder::new(seed);
    let star = builder.switch(switch.clone());
    for machine in 0..=fan.machines {
        let mut host = hosts[usize::from(machine > 0)].clone();
        host.cores = host.cores.max(fan.threads as f64);
        builder.host(host, nic.clone(), star);
    }
    let cluster = builder.build();
    let (server, clients) = (vec![0], (1..=fan.machines).collect());
    let (requesters, targets, zone_bytes) = match fan.direction {
        Direction::Outbound => (server, clients, None),
        Direction::Inbound => (clients, server, Some(fan.zone_bytes)),
    };
    let posting = Posting {
        requesters,
        targets,
        queue_pairs: fan.queue_pairs,
        threads: fan.threads,
        receivers: fan.threads,
        receives: 0,
        transport: fan.transport,
        destinations: 1,
        zone_bytes,
        own_completions: false,
        plan: fan.plan,
    };
    posting.spawn(&cluster, seed, None);
    cluster
}

/// Millions of requests per second that one thread carries out over one queue pair, always at the same place of the
/// other host.
///
/// # Panics
/// When a device refuses.
pub fn one_requester(hosts: &Hosts, plan: Plan, window: Window) -> f64 {
    let Hosts {
        seed,
        host,
        nic,
        switch,
    } = hosts;
    let load = Fan {
        direction: Direction::Outbound,
        machines: 1,
        queue_pairs: 1,
        threads: 1,
        transport: Transport::ReliableConnection,
        zone_bytes: 4096,
        plan: Plan {
            places: (64, 1),
            ..plan
        },
    };
    let cluster = fan(*seed, load, [host, host], nic, switch);
    rate(&cluster, &cluster.hosts()[..1], window)[0].mops(|c| c.requests_started)
}
