//! How fast this machine simulates.

use std::time::{Duration, Instant};

use dunlin::Preset;
use dunlin_sim::{Cluster, HostParameters, NicParameters, SwitchParameters};
use dunlin_verbs::Transport;

use crate::load::{swarm, Plan, RpcBench, RpcPlan, Swarm};

/// Events, and the real time that they took on one core.
pub type Speed = (u64, Duration);

/// A virtual millisecond of symmetric READs of six machines: the load with the most kinds of events.
pub fn verbs() -> Speed {
    let load = Swarm {
        machines: 6,
        threads: 14,
        virtual_machines: 1,
        transport: Transport::ReliableConnection,
        plan: Plan::reads(32, 24),
    };
    let (host, nic) = (HostParameters::xeon_e5_v4(), NicParameters::connect_ib());
    let cluster = swarm(1, load, &host, &nic, &SwitchParameters::sx6036());
    let began = Instant::now();
    cluster.run_for(1_000_000);
    (cluster.events(), began.elapsed())
}

/// Half a virtual millisecond of calls: 23 clients of 8 threads, all with stacks of their own, that share queue pairs
/// as FLOCK does.
pub fn calls() -> Speed {
    let mut nic = NicParameters::connectx_5();
    nic.in_order_placement = 1.0;
    let (host, switch) = (HostParameters::epyc_7452(), SwitchParameters::z9264f());
    let cluster = Cluster::star(1, 24, &host, &nic, &switch);
    let bench = RpcBench::new(cluster, RpcPlan::flock(Preset::Flock, 8, 8));
    let (before, began) = (bench.cluster().events(), Instant::now());
    bench.measure(0, 100_000, 400_000);
    (bench.cluster().events() - before, began.elapsed())
}
