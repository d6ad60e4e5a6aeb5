//! How fast this machine simulates.

use std::time::{Duration, Instant};

use dunlin_sim::{HostParameters, NicParameters, SwitchParameters};
use dunlin_verbs::Transport;

use crate::load::{swarm, Plan, Swarm};

/// Events of a virtual millisecond, and the real time that they took on one core. Symmetric READs of six machines: the load with
/// the most kinds of events.
pub fn speed() -> (u64, Duration) {
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
