//! Flor Fig. 12, §7.7: clients change from XRDMA to Flor while they call, and from the lossless priority to another.
//!
//! Declared before the first run, since the paper states neither the calls nor their rate: hosts and NICs are those of
//! cluster C (Table 2); eight client hosts of sixteen threads call one server, which polls with ten threads for XRDMA
//! and ten for Flor on its 24 cores, with requests of 16 KB and answers of 64 B. Each thread calls once in 250 us and
//! waits for the answer, so the server's port is two thirds full, as the load of a service is not determined by the
//! network. Presets are those that users have, `xrdma` and `flor`, changed by `Client::change_preset` and
//! `Client::change_traffic_class`: all clients at one instant, because connecting takes no virtual time. Flor's price
//! of a chunk is charged before a chunk is posted, though it also covers the chunk's acknowledgement.
//!
//! One priority has pauses and marks, all others neither; XRDMA and Flor begin on it, the last change leaves it. NICs
//! run DCQCN, which has no effect where nothing is marked. The device reports that the network loses packets, since
//! that priority is not the default one; so Flor is over UC under its own congestion control (Table 1). Phases have
//! windows of 5 ms; the paper's are minutes.
//!
//! Changed after the first run: threads call at fixed times, as was declared. In that run each waited for 250 us after
//! its answer, so that calls per second fell by as much as answers took longer.

use dunlin::Preset;
use dunlin_sim::{Cluster, NicParameters, SwitchParameters};

use super::{cluster_a, share, MTU_BYTES};
use crate::figure::{Effort, Figure, Findings};
use crate::load::{RpcBench, RpcPlan, RpcResult};

/// The figure.
pub(in crate::figures) const FIGURE: Figure = Figure {
    name: "flor-upgrade",
    title: "Flor Fig. 12: from XRDMA to Flor under load, and from the lossless priority to one that drops",
    says: "throughput moves by less than 2 %, latency rises by 10 % for a short time, and falls by 3 % without PFC and \
           DCQCN",
    run,
};

const CLIENTS: usize = 8;
const THREADS: usize = 16;
const POLLERS: usize = 10;
const BYTES: usize = 16 << 10;
/// Traffic classes of the priority that is paused and marked, and of one that is not.
const LOSSLESS: u8 = 3 << 5;
const LOSSY: u8 = 1 << 5;
/// The lossless priority, as a bit.
const LOSSLESS_PRIORITY: f64 = (1 << (LOSSLESS >> 5)) as f64;
/// Number and length of the windows of each phase.
const WINDOWS: usize = 8;
const WINDOW_NS: u64 = 5_000_000;
/// Time before the first window.
const WARM_NS: u64 = 10_000_000;
/// A latency is still raised if it exceeds the earlier one by more than this share.
const RAISED: f64 = 0.05;

fn cluster(clients: usize, effort: Effort) -> Cluster {
    let nic = match effort.quick {
        true => NicParameters::connectx_6_dx(),
        false => NicParameters::connectx_5(),
    };
    let mut nic = effort.nic(nic);
    nic.mtu_bytes = MTU_BYTES;
    let mut switch = SwitchParameters::z9264f();
    switch.pfc_priorities = LOSSLESS_PRIORITY;
    switch.ecn_priorities = LOSSLESS_PRIORITY;
    let switch = effort.switch(switch);
    let host = cluster_a::host(effort);
    Cluster::star(effort.seed, clients + 1, &host, &nic, &switch)
}

/// The windows of the three phases, and the number of calls that failed or had wrong answers.
fn phases(effort: Effort) -> ([Vec<RpcResult>; 3], u64) {
    let (clients, threads, bytes) = match effort.quick {
        true => (2, 4, BYTES / 2),
        false => (CLIENTS, THREADS, BYTES),
    };
    let plan = RpcPlan {
        bytes,
        pollers: POLLERS,
        pinned: false,
        traffic_class: LOSSLESS,
        keeps_time: true,
        ..RpcPlan::flock(Preset::Xrdma, threads, 1)
    };
    let bench = RpcBench::new(cluster(clients, effort), plan);
    let share = share(5, effort);
    bench.cluster().run_for(WARM_NS / share);
    let phase = || -> Vec<RpcResult> {
        let windows = 0..WINDOWS;
        let window = |_| bench.window(WINDOW_NS / share);
        windows.map(window).collect()
    };
    let before = phase();
    for client in bench.clients() {
        client.change_preset(Preset::Flor).expect("a way by Flor");
    }
    let flor = phase();
    for client in bench.clients() {
        let changed = client.change_traffic_class(LOSSY);
        changed.expect("a way by that class");
    }
    let lossy = phase();
    let (failed, wrong) = bench.stop();
    ([before, flor, lossy], failed + wrong)
}

fn mean(windows: &[RpcResult], of: fn(&RpcResult) -> f64) -> f64 {
    windows.iter().map(of).sum::<f64>() / windows.len() as f64
}

fn run(effort: Effort) -> Findings {
    let (phases, failed) = phases(effort);
    let mut findings = Findings::new("ms", "M/s; us", false);
    let all: Vec<&RpcResult> = phases.iter().flatten().collect();
    let lines: [(&str, fn(&RpcResult) -> f64); 3] = [
        ("M calls/s", |window| window.mops),
        ("mean, us", |window| window.mean_us),
        ("99th percentile, us", |window| window.p99_us),
    ];
    for (name, of) in lines {
        let ms = (WINDOW_NS / share(5, effort)) as f64 / 1e6;
        let windows = all.iter().enumerate();
        let points = windows.map(|(number, window)| ((number + 1) as f64 * ms, of(window)));
        findings.line(name, points.collect());
    }
    findings.line("failed", vec![(0.0, failed as f64)]);
    if effort.quick {
        return findings;
    }
    let [before, flor, lossy] = &phases;
    let rate = mean(before, |window| window.mops);
    let away = |window: &RpcResult| (window.mops / rate - 1.0).abs();
    let jitter = flor.iter().map(away).fold(0.0, f64::max);
    let why = "calls a second behind the change: the window furthest from the mean before it, as a part of that";
    findings.answer("FR-042", "<2%", jitter, (0.0, 0.05), why);
    let latency = mean(before, |window| window.mean_us);
    let rise = flor[0].mean_us / latency - 1.0;
    let why = "mean latency in the first 5 ms behind the change over the mean before it, less one";
    findings.answer("FR-043 (rise)", "+10%", rise, (0.0, 0.2), why);
    let raised = |window: &&RpcResult| window.mean_us > latency * (1.0 + RAISED);
    let lasts = flor.iter().filter(raised).count();
    let why = "of eight windows behind the change, in how many latency was raised by more than 5 %: not in all";
    let bounds = (0.0, (WINDOWS - 1) as f64);
    findings.answer("FR-043 (lasts)", "<30s", lasts as f64, bounds, why);
    let with = mean(&flor[WINDOWS / 2..], |window| window.mean_us);
    let without = mean(&lossy[WINDOWS / 2..], |window| window.mean_us);
    let why = "mean latency of Flor without pauses and marks over that with them, less one, the later half of both";
    findings.answer("FR-044", "-3%", without / with - 1.0, (-0.06, 0.0), why);
    findings
}
