//! ScaleRPC's figures: its RPC compared with its competitors (Fig. 8 to 12), with the presets of `dunlin-rpc`.
//!
//! The testbed is the paper's (§3.6.1): twelve nodes with two Xeon E5-2650 v4 and ConnectX-3 FDR, one of them the
//! server; 32-byte messages, blocks of 4 KB, groups of 40 and slices of 100 µs. What it leaves open is declared here,
//! before any of these figures was run: the server has ten threads, as in §2.2; a client machine has at most twelve,
//! the cores of one socket; a handler takes 20 ns.

mod clients;
mod latency;
mod machines;
mod metadata;
mod priority;
mod slices;
mod transactions;

pub(super) use clients::FIGURE as CLIENTS;
pub(super) use latency::FIGURE as LATENCY;
pub(super) use machines::FIGURE as MACHINES;
pub(super) use metadata::FIGURE as METADATA;
pub(super) use priority::FIGURE as PRIORITY;
pub(super) use slices::FIGURE as SLICES;
pub(super) use transactions::FIGURE as TRANSACTIONS;

use dunlin::{Grouping, Preset};
use dunlin_sim::{Cluster, HostParameters, NicParameters, SwitchParameters};

use super::flock_rpc::SCHEDULED_NS;
use super::system::System;
use crate::figure::Effort;
use crate::load::{Crowd, CrowdResult, RpcBench, Window, DATAGRAMS};

/// The presets of Fig. 8 to 10.
const PRESETS: [Preset; 5] = [
    Preset::ScaleRpc,
    Preset::RawWrite,
    Preset::Herd,
    Preset::Fasst,
    Preset::Auto,
];

/// Hardware threads of a node: two on each of its 24 cores. Contention between the two is not modelled.
const HARDWARE_THREADS: f64 = 48.0;

/// Bytes of a payload that are sent inline: those of a pointer, enough to announce a turn. The paper's NICs read each
/// payload by DMA: "in each write request, the NIC has to read the payload" (§2.3), and its count of PCIe reads keeps
/// pace with the throughput of ScaleRPC (§3.6.3).
const INLINE_BYTES: f64 = 8.0;

/// Client machines.
const CLIENT_MACHINES: usize = 11;

/// A crowd with the paper's settings.
fn crowd(system: System, clients: usize, batch: usize) -> Crowd {
    Crowd {
        preset: system.preset,
        clients,
        threads: 12,
        batch,
        bytes: 32,
        block_bytes: 4 << 10,
        pollers: 10,
        grouping: Grouping {
            // All clients are alike, except in Fig. 12.
            by_priority: false,
            ..Grouping::default()
        },
        datagram_batches: system.batches(),
        handler_ns: 20,
        pauses_ns: Vec::new(),
    }
}

/// `auto` tries alternatives and moves threads: when it has tried all, one whole interval of its schedulers.
const AUTO_WINDOW: Window = Window {
    warm_ns: 8 * SCHEDULED_NS,
    measured_ns: SCHEDULED_NS,
};

/// A window in which every group has several turns.
fn window(plan: &Crowd, effort: Effort) -> Window {
    let groups = plan.clients.div_ceil(plan.grouping.clients.max(1)) as u64;
    let round = match plan.preset {
        Preset::ScaleRpc => groups * plan.grouping.slice.as_nanos() as u64,
        _ => 200_000,
    };
    // Where clients differ, a class of priority changes by one with each turn, and groups are reordered after that.
    let rounds = match plan.pauses_ns.is_empty() {
        _ if effort.quick => 1,
        true => 3,
        false => 12,
    };
    if plan.preset == Preset::Auto && !effort.quick {
        return AUTO_WINDOW;
    }
    Window {
        warm_ns: (rounds * round).max(300_000),
        measured_ns: rounds * round.max(200_000),
    }
}

/// A cluster with this many of the testbed's nodes.
fn cluster(nodes: usize, effort: Effort) -> Cluster {
    let mut host = effort.host(HostParameters::xeon_e5_v4());
    host.set("cores", HARDWARE_THREADS).expect("a parameter");
    let mut nic = effort.nic(NicParameters::connectx_3());
    nic.max_inline_bytes = INLINE_BYTES;
    let switch = effort.switch(SwitchParameters::sx1012());
    Cluster::star(effort.seed, nodes, &host, &nic, &switch)
}

fn run(plan: &Crowd, machines: usize, effort: Effort) -> CrowdResult {
    let bench = RpcBench::crowd(cluster(machines + 1, effort), plan);
    let window = window(plan, effort);
    if DATAGRAMS.contains(&plan.preset) && !effort.quick {
        bench.use_queues(window.warm_ns);
    }
    let found = bench.measure_crowd(window);
    assert_eq!(
        bench.stop(),
        (0, 0),
        "calls that failed or were answered wrongly: {plan:?}"
    );
    found
}
