//! Common parts of FLOCK's figures of RPC (§8.1): 24 nodes, one of them the server, which polls on all its cores.

use dunlin_sim::{Cluster, HostParameters, NicParameters, SwitchParameters};

use crate::figure::Effort;

/// Time by which both schedulers have run once: each runs every 10 ms.
pub(super) const SCHEDULED_NS: u64 = 10_500_000;

/// Time by which a server has examined its load three times, which it does each millisecond with `auto`.
pub(super) const SEEN_NS: u64 = 3_200_000;

/// Hardware threads of a node: an EPYC 7452 runs two on each of its 32 cores, so 48 threads of a client, or 32 and 16
/// dispatchers, all run at once. The server polls on one of each core (§8.2: all physical cores). Contention between
/// the two threads of a core is not modelled.
const HARDWARE_THREADS: usize = 64;

/// Bandwidth of a PCIe 4.0 link of 16 lanes in GB/s, as in the model's ConnectX-6 Dx. The cards of the paper's testbed,
/// CloudLab's d6515, are listed with PCIe 4.0 (ConnectX-5 Ex); the model's ConnectX-5 has PCIe 3.0, as the rows of
/// other papers require.
fn pcie_4_gbyte_s() -> f64 {
    let newer = NicParameters::connectx_6_dx();
    newer.get("pcie_gbyte_s").expect("a parameter")
}

/// The paper's cluster, with four things declared. Nodes have 64 hardware threads, and cards PCIe 4.0. The paper's own
/// messages end with a canary, so its NICs place WRITEs in order; the model's ConnectX-5 does not by default. And no
/// switch marks packets: the paper does not mention congestion control, and the switch of that testbed marks no packets
/// unless configured to.
pub(super) fn cluster(machines: usize, effort: Effort) -> Cluster {
    let mut nic = effort.nic(NicParameters::connectx_5());
    nic.set("in_order_placement", 1.0).expect("a parameter");
    nic.set("pcie_gbyte_s", pcie_4_gbyte_s())
        .expect("a parameter");
    let mut switch = effort.switch(SwitchParameters::z9264f());
    switch.set("ecn_min_bytes", 0.0).expect("a parameter");
    let mut host = effort.host(HostParameters::epyc_7452());
    host.set("cores", HARDWARE_THREADS as f64)
        .expect("a parameter");
    Cluster::star(effort.seed, machines + 1, &host, &nic, &switch)
}

/// A point is settled when the rates of two consecutive windows differ by less than this share, or after this many
/// windows: which threads send together changes slowly.
const SETTLED: f64 = 0.02;
const WINDOWS_MOST: usize = 8;

/// Repeats the window after the first one until the rate has settled; returns the last.
pub(super) fn settled<R>(first: R, next: impl Fn() -> R, rate: impl Fn(&R) -> f64) -> R {
    let mut last = first;
    for _ in 1..WINDOWS_MOST {
        let next = next();
        let change = rate(&next) / rate(&last) - 1.0;
        last = next;
        if change.abs() < SETTLED {
            break;
        }
    }
    last
}

/// The point where a curve of rates saturates: the first one with nine tenths of the best rate. Windows differ by some
/// percent, and so do points of a plateau.
pub(super) fn saturates_at(curve: impl Iterator<Item = (usize, f64)> + Clone) -> f64 {
    let best = curve.clone().map(|(_, rate)| rate).fold(0.0, f64::max);
    let first = curve.clone().find(|&(_, rate)| rate >= 0.9 * best);
    first.map_or(0.0, |(place, _)| place as f64)
}
