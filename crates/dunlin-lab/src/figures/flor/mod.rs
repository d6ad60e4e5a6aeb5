//! Flor's figures: requests as messages of logical connections, with short answers, between two hosts that poll.
//!
//! Declared, since the paper is silent: hosts are the Xeon Gold 5118 of RB²'s testbed; answers have 64 bytes; a
//! connection's window is the deployment's, except one bandwidth-delay product where the paper switches congestion
//! control off (§7.3); XRDMA is not public, and is represented where RC is compared by the same messages by RC without
//! chunks.

mod acks;
mod calibration;
mod clock;
mod cluster_a;
mod incast;
mod loss;
mod mixed;
mod pods;
mod rules;
mod shared_acks;
mod shuffle;
mod storage;
mod switching;
mod thread;
mod upgrade;
mod vendors;
mod xrdma;

pub(super) use acks::FIGURE as ACKS;
pub(super) use calibration::FIGURE as CALIBRATION;
pub(super) use clock::FIGURE as CLOCK;
pub(super) use incast::FIGURE as INCAST;
pub(super) use loss::FIGURE as LOSS;
pub(super) use mixed::FIGURE as MIXED;
pub(super) use pods::FIGURE as PODS;
pub(super) use rules::FIGURE as RULES;
pub(super) use shared_acks::FIGURE as SHARED_ACKS;
pub(super) use shuffle::FIGURE as SHUFFLE;
pub(super) use storage::FIGURE as STORAGE;
pub(super) use switching::FIGURE as SWITCHING;
pub(super) use thread::FIGURE as THREAD;
pub(super) use upgrade::FIGURE as UPGRADE;
pub(super) use vendors::FIGURE as VENDORS;
pub(super) use xrdma::FIGURE as XRDMA;

use dunlin::Preset;
use dunlin_flor::connection::{Deployment, Network};
use dunlin_flor::effort::CHUNK_NS;
use dunlin_sim::{Cluster, HostParameters, NicParameters, SwitchParameters};

use crate::figure::Effort;
use crate::load::{Flor, FlorResult, RpcBench, RpcPlan, Window};

/// MTU of RoCEv2 packets (§7.2).
const MTU_BYTES: f64 = 1024.0;

/// Two hosts with these NICs.
fn two(nic: NicParameters, effort: Effort) -> Cluster {
    let mut nic = effort.nic(nic);
    nic.mtu_bytes = MTU_BYTES;
    let host = effort.host(HostParameters::xeon_gold_5118());
    let switch = effort.switch(SwitchParameters::z9264f());
    Cluster::star(effort.seed, 2, &host, &nic, &switch)
}

/// Flor over UC or RC with requests of this size.
fn flor(deployment: Deployment, bytes: u32) -> Flor {
    Flor {
        chunk_ns: CHUNK_NS,
        ..Flor::new(deployment, bytes)
    }
}

/// The same messages by RC, whose NIC retransmits by go-back-N; no chunks.
fn go_back_n(bytes: u32) -> Flor {
    flor(Deployment::IntraPodLossless, bytes)
}

/// Millions of calls per second by the preset `xrdma`, between two hosts with as many threads each, with requests of
/// this size; checks that every one is answered correctly.
fn xrdma_mops(
    cluster: Cluster,
    (threads, depth): (usize, usize),
    bytes: u32,
    window: Window,
) -> f64 {
    let plan = RpcPlan {
        bytes: bytes as usize,
        pollers: threads,
        ..RpcPlan::flock(Preset::Xrdma, threads, depth)
    };
    let bench = RpcBench::new(cluster, plan);
    let result = bench.measure(0, window.warm_ns, window.measured_ns);
    assert_eq!(
        bench.stop(),
        (0, 0),
        "calls that failed or were answered otherwise"
    );
    result.mops
}

/// One bandwidth-delay product.
fn product_bytes() -> u64 {
    Network::DEFAULT.product_bytes()
}

/// Factor by which times are shorter: `of_quick` in a quick run, 1 otherwise.
fn share(of_quick: u64, effort: Effort) -> u64 {
    if effort.quick {
        of_quick
    } else {
        1
    }
}

/// A window of this many milliseconds, after half of that.
fn window(milliseconds: u64, effort: Effort) -> Window {
    let share = share(10, effort);
    Window {
        warm_ns: milliseconds * 500_000 / share,
        measured_ns: milliseconds * 1_000_000 / share,
    }
}

/// Runs the plan between two ConnectX-5, where that of the server drops one packet in `ratio` (zero for none), without
/// congestion control (§7.3). The window is long compared with the 17 ms after which RC here repeats a last packet.
fn lossy(plan: Flor, ratio: u32, effort: Effort) -> FlorResult {
    let lost = match ratio {
        0 => 0.0,
        ratio => 1.0 / f64::from(ratio),
    };
    let mut nic = NicParameters::connectx_5();
    nic.congestion_control = 0.0;
    Flor { lost, ..plan }.run(&two(nic, effort), window(100, effort))
}
