//! The speed of simulation on this machine, and the cost of larger clusters.

use std::time::{Duration, Instant};

use dunlin::Preset;
use dunlin_sim::{Cluster, ClusterBuilder, HostParameters, NicParameters, SwitchParameters};
use dunlin_verbs::Transport;
use serde::Serialize;

use crate::load::{all_to_all, swarm_on, AllToAll, Plan, RpcBench, RpcPlan, Swarm, Window};
use crate::parallel;

/// Events, the real time that they took, and the digest of the run.
pub type Speed = (u64, Duration, u64);

/// A load to simulate, by the number of cores that the run is divided among and the part of its virtual time.
pub type Load = fn(usize, f64) -> Speed;

/// The cost of a cluster of some size.
#[derive(Clone, Debug, Serialize)]
pub struct Scale {
    /// Machines.
    pub machines: usize,
    /// Number of cores that the run was divided among.
    pub cores: usize,
    /// Number of calls answered.
    pub calls: u64,
    /// Number of events, including those of connecting.
    pub events: u64,
    /// Real seconds.
    pub seconds: f64,
    /// Peak memory of this process so far, in bytes: the memory of a cluster if it is the first.
    pub resident_bytes: u64,
    /// Digest of the run: equal everywhere and always.
    pub digest: u64,
}

/// Number of machines that each machine calls, those behind it in a ring: no poller waits for more sessions at once.
const REACH: usize = 15;

/// Equal hosts on one switch, divided among this many cores.
fn star(
    count: usize,
    cores: usize,
    host: &HostParameters,
    nic: &NicParameters,
    switch: SwitchParameters,
) -> Cluster {
    let mut builder = ClusterBuilder::new(1).parts(cores);
    let switch = builder.switch(switch);
    for _ in 0..count {
        builder.host(host.clone(), nic.clone(), switch);
    }
    builder.build()
}

/// FaSST's cluster with `count` machines, on each of which one thread calls 15 others and one answers, by datagrams; 20
/// virtual microseconds after as many to warm up.
pub fn machines(count: usize, cores: usize) -> Scale {
    let (host, nic) = (HostParameters::xeon_e5_v4(), NicParameters::connect_ib());
    let cluster = star(count, cores, &host, &nic, SwitchParameters::sx6036());
    let began = Instant::now();
    let window = Window {
        warm_ns: 20_000,
        measured_ns: 20_000,
    };
    let plan = AllToAll {
        reach: REACH,
        ..AllToAll::new(Preset::Fasst, 1, 1)
    };
    let result = all_to_all(&cluster, &plan, window);
    Scale {
        machines: count,
        cores,
        calls: result.all_calls as u64,
        events: cluster.events(),
        seconds: began.elapsed().as_secs_f64(),
        resident_bytes: most_resident_bytes(),
        digest: cluster.digest(),
    }
}

/// The speedup of two runs at once over two runs one after the other: nearly two where there are two cores.
///
/// # Panics
/// When two runs of the same seed do not have the same digest.
pub fn gain_of_two_runs(run: Load, part: f64) -> f64 {
    let timed = |runs: usize| {
        let began = Instant::now();
        let digests = parallel::map(runs, &vec![(); runs], |()| run(1, part).2);
        (digests, began.elapsed().as_secs_f64())
    };
    let ((alone, seconds), (both, together)) = (timed(1), timed(2));
    assert!(
        both.iter().all(|digest| *digest == alone[0]),
        "digests differ"
    );
    2.0 * seconds / together
}

/// The speedup of one run that is divided among two cores.
///
/// # Panics
/// When it does not have the same digest.
pub fn gain_of_two_cores(run: Load, part: f64) -> f64 {
    let (one, two) = (run(1, part), run(2, part));
    assert_eq!((one.0, one.2), (two.0, two.2), "not the same run");
    one.1.as_secs_f64() / two.1.as_secs_f64()
}

/// `VmHWM` of `/proc/self/status`.
fn most_resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// A virtual millisecond, or a part of it, of symmetric READs of six machines: the load with the most kinds of events.
pub fn verbs(cores: usize, part: f64) -> Speed {
    let load = Swarm {
        machines: 6,
        threads: 14,
        virtual_machines: 1,
        transport: Transport::ReliableConnection,
        plan: Plan::reads(32, 24),
    };
    let (mut host, nic) = (HostParameters::xeon_e5_v4(), NicParameters::connect_ib());
    host.cores = load.threads as f64;
    let cluster = star(
        load.machines,
        cores,
        &host,
        &nic,
        SwitchParameters::sx6036(),
    );
    swarm_on(&cluster, 1, load);
    let began = Instant::now();
    cluster.run_for((1e6 * part) as u64);
    (cluster.events(), began.elapsed(), cluster.digest())
}

/// Half a virtual millisecond of calls, or a part of it: 23 clients of 8 threads, all with stacks of their own, that
/// share queue pairs as FLOCK does.
pub fn calls(cores: usize, part: f64) -> Speed {
    let mut nic = NicParameters::connectx_5();
    nic.in_order_placement = 1.0;
    let (host, switch) = (HostParameters::epyc_7452(), SwitchParameters::z9264f());
    let cluster = star(24, cores, &host, &nic, switch);
    let bench = RpcBench::new(cluster, RpcPlan::flock(Preset::Flock, 8, 8));
    let (before, began) = (bench.cluster().events(), Instant::now());
    bench.measure(0, (1e5 * part) as u64, (4e5 * part) as u64);
    let cluster = bench.cluster();
    (cluster.events() - before, began.elapsed(), cluster.digest())
}
