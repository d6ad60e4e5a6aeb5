//! Many machines with requesters: each to all others, or one to many, or many to one.

use dunlin_sim::{Cluster, HostId, HostParameters, NicParameters, SimDevice, SwitchParameters};
use dunlin_verbs::{Access, Device, Region, Transport};

use super::{connect, rate, Cable, End, Hosts, Plan, Requester, Window};

/// Every machine requests of every other (rdma_bench's rc-swarm).
#[derive(Clone, Copy, Debug)]
pub struct Swarm {
    /// Machines.
    pub machines: usize,
    /// Threads of each.
    pub threads: usize,
    /// Queue pairs of a thread to each other machine.
    pub virtual_machines: usize,
    /// RC or UC.
    pub transport: Transport,
    /// What the threads do.
    pub plan: Plan,
}

/// Which side of a fan requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// One server requests of many clients.
    Outbound,
    /// Many clients request of one server.
    Inbound,
}

/// One server and many clients.
#[derive(Clone, Copy, Debug)]
pub struct Fan {
    /// Who requests.
    pub direction: Direction,
    /// Client machines.
    pub machines: usize,
    /// Queue pairs over all client machines.
    pub queue_pairs: usize,
    /// Threads of the side that requests: of the server, or of each client machine.
    pub threads: usize,
    /// RC or UC.
    pub transport: Transport,
    /// Bytes of the server's memory for each queue pair (inbound).
    pub zone_bytes: u64,
    /// What the threads do.
    pub plan: Plan,
}

const REGION_BYTES: usize = 1 << 20;

fn cable(transport: Transport, plan: Plan) -> Cable {
    let inline_bytes = if plan.inline { plan.bytes } else { 0 };
    Cable {
        transport,
        sends: 2 * plan.window.max(64),
        receives: 1,
        inline_bytes,
    }
}

struct Machine {
    device: SimDevice,
    domain: dunlin_sim::SimProtectionDomain,
    region: dunlin_sim::SimRegion,
}

fn machines(cluster: &Cluster, bytes: &[usize]) -> Vec<Machine> {
    let hosts = cluster.hosts();
    let make = |(&host, &bytes): (&HostId, &usize)| {
        let device = cluster.device(host);
        let domain = device.create_protection_domain().expect("a domain");
        let region = device
            .allocate_region(&domain, bytes, Access::all())
            .expect("a region");
        Machine {
            device,
            domain,
            region,
        }
    };
    hosts.iter().zip(bytes).map(make).collect()
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

/// Puts a swarm, whose threads begin at the cluster's next time, on the hosts of a cluster: as many machines.
///
/// # Panics
/// When a device refuses, or has too few cores.
pub fn swarm_on(cluster: &Cluster, seed: u64, swarm: Swarm) {
    let hosts = cluster.hosts();
    let machines = machines(cluster, &vec![REGION_BYTES; hosts.len()]);
    let queue = |machine: &Machine| {
        machine
            .device
            .create_completion_queue(1024, None)
            .expect("a queue")
    };
    for thread in 0..swarm.threads {
        let queues: Vec<_> = machines.iter().map(queue).collect();
        let mut pairs: Vec<Vec<_>> = machines.iter().map(|_| Vec::new()).collect();
        let end = |number: usize| End {
            device: &machines[number].device,
            domain: &machines[number].domain,
            completions: &queues[number],
        };
        for _ in 0..swarm.virtual_machines {
            for one in 0..hosts.len() {
                for other in 0..one {
                    let (a, b) =
                        connect(&end(one), &end(other), cable(swarm.transport, swarm.plan));
                    pairs[one].push((a, machines[other].region.remote()));
                    pairs[other].push((b, machines[one].region.remote()));
                }
            }
        }
        for (number, ((queue, pairs), &host)) in
            queues.into_iter().zip(pairs).zip(&hosts).enumerate()
        {
            let plan = Plan {
                seed: seed ^ ((thread as u64) << 32 | (number as u64 + 1)),
                ..swarm.plan
            };
            let local = machines[number].region.clone();
            cluster.spawn(host, thread, Requester::new(plan, pairs, queue, local));
        }
    }
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
    let outbound = fan.direction == Direction::Outbound;
    let mut builder = dunlin_sim::ClusterBuilder::new(seed);
    let star = builder.switch(switch.clone());
    for machine in 0..=fan.machines {
        let mut host = hosts[usize::from(machine > 0)].clone();
        host.cores = host.cores.max(fan.threads as f64);
        builder.host(host, nic.clone(), star);
    }
    let cluster = builder.build();
    let mut bytes = vec![REGION_BYTES; fan.machines + 1];
    bytes[0] = bytes[0].max((fan.zone_bytes * fan.queue_pairs as u64) as usize);
    let machines = machines(&cluster, &bytes);
    // Threads of the requesting side, by machine.
    let sides = if outbound { 0..1 } else { 1..fan.machines + 1 };
    let mut sets: Vec<Vec<Vec<_>>> = Vec::new();
    let mut queues: Vec<Vec<_>> = Vec::new();
    for machine in &machines {
        sets.push((0..fan.threads).map(|_| Vec::new()).collect());
        let queue = |_| {
            machine
                .device
                .create_completion_queue(4096, None)
                .expect("a queue")
        };
        queues.push((0..fan.threads).map(queue).collect());
    }
    for number in 0..fan.queue_pairs {
        let client = 1 + number % fan.machines;
        let thread = if outbound {
            number % fan.threads
        } else {
            number / fan.machines % fan.threads
        };
        let end = |machine: usize| End {
            device: &machines[machine].device,
            domain: &machines[machine].domain,
            completions: &queues[machine][thread],
        };
        let (server_pair, client_pair) =
            connect(&end(0), &end(client), cable(fan.transport, fan.plan));
        let zone = machines[0]
            .region
            .remote()
            .plus(fan.zone_bytes * number as u64);
        let (keep, other) = if outbound { (0, client) } else { (client, 0) };
        sets[0][thread].push((server_pair, machines[client].region.remote()));
        sets[client][thread].push((client_pair, zone));
        debug_assert!(keep != other, "a fan has two sides");
    }
    for (number, (sets, queues)) in sets.into_iter().zip(queues).enumerate() {
        let requests = sides.contains(&number);
        for (thread, (pairs, queue)) in sets.into_iter().zip(queues).enumerate() {
            if pairs.is_empty() {
                continue;
            }
            let seed = seed ^ ((thread as u64) << 32 | (number as u64 + 1));
            let requester = Requester::new(
                Plan { seed, ..fan.plan },
                pairs,
                queue,
                machines[number].region.clone(),
            );
            let host = cluster.hosts()[number];
            if requests {
                cluster.spawn(host, thread, requester);
            } else {
                // Holds the queue pairs. It has initialised its memory and looks at it as a server does: what comes is
                // warm.
                let region = machines[number].region.clone();
                if outbound || thread == 0 {
                    region.warm(0, region.memory().len());
                }
                cluster.spawn(host, thread, move |_now| {
                    let (_, _) = (&requester, region.memory());
                    dunlin_sim::Next::Block
                });
            }
        }
    }
    cluster
}

/// Millions of requests a second that one thread carries out by one queue pair, always at the same place of the other
/// host.
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
