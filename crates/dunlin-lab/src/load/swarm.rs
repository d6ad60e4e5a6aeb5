//! Many machines with requesters, each sending to all others.

use dunlin_sim::{Cluster, HostParameters, NicParameters, SwitchParameters};
use dunlin_verbs::{Region, Transport};

use super::posting::{cable, Machine, REGION_BYTES};
use super::{connect, End, Plan, Requester, Way};

/// Every machine sends requests to every other (rdma_bench's rc-swarm).
#[derive(Clone, Copy, Debug)]
pub struct Swarm {
    /// Number of machines.
    pub machines: usize,
    /// Threads of each.
    pub threads: usize,
    /// Queue pairs of a thread to each other machine.
    pub virtual_machines: usize,
    /// RC or UC.
    pub transport: Transport,
    /// The plan of the threads.
    pub plan: Plan,
}

/// Builds a swarm whose threads begin at time zero.
///
/// # Panics
/// When a device refuses.
pub fn swarm(
    seed: u64,
    swarm: Swarm,
    host: &HostParameters,
    nic: &NicParameters,
    switch: &SwitchParameters,
) -> Cluster {
    let mut host = host.clone();
    host.cores = swarm.threads as f64;
    let cluster = Cluster::star(seed, swarm.machines, &host, nic, switch);
    swarm_on(&cluster, seed, swarm);
    cluster
}

/// Puts a swarm on the hosts of a cluster, as many as it has machines; its threads begin when the cluster's time next
/// advances.
///
/// # Panics
/// When a device refuses, or has too few cores.
pub fn swarm_on(cluster: &Cluster, seed: u64, swarm: Swarm) {
    let hosts = cluster.hosts();
    let machine = |&host| Machine::new(cluster, host, REGION_BYTES);
    let machines: Vec<Machine> = hosts.iter().map(machine).collect();
    let queue = |machine: &Machine| machine.queue(1024);
    for thread in 0..swarm.threads {
        let mut pairs: Vec<Vec<_>> = machines.iter().map(|_| Vec::new()).collect();
        let mut queues: Vec<Vec<_>> = machines.iter().map(|_| Vec::new()).collect();
        for _ in 0..swarm.virtual_machines {
            for one in 0..hosts.len() {
                for other in 0..one {
                    let new = [one, other].map(|number| queue(&machines[number]));
                    let end = |number: usize, completions| End {
                        device: &machines[number].device,
                        domain: &machines[number].domain,
                        completions,
                    };
                    let cable = cable(swarm.transport, swarm.plan);
                    let (a, b) = connect(&end(one, &new[0]), &end(other, &new[1]), cable);
                    for ((pair, completions), (from, to)) in [a, b]
                        .into_iter()
                        .zip(new)
                        .zip([(one, other), (other, one)])
                    {
                        pairs[from].push(Way {
                            pair,
                            number: 0,
                            remote: machines[to].region.remote(),
                            to: Vec::new(),
                            queue: queues[from].len(),
                        });
                        queues[from].push(completions);
                    }
                }
            }
        }
        for (number, ((queues, pairs), &host)) in
            queues.into_iter().zip(pairs).zip(&hosts).enumerate()
        {
            let plan = Plan {
                seed: seed ^ ((thread as u64) << 32 | (number as u64 + 1)),
                ..swarm.plan
            };
            let local = machines[number].region.clone();
            cluster.spawn(host, thread, Requester::new(plan, pairs, queues, local));
        }
    }
}
