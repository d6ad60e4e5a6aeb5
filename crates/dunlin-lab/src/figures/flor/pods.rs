//! Flor Fig. 8: full meshes within a pod and between two.
//!
//! Declared before the first run. A pod is one switch, a quarter of the testbed's hosts: 25 of 100 in the first and 4
//! of 16 in the second, all like those of cluster A; within a pod those of the first are measured. Pods are joined by a
//! spine, to which each has a link of half the rate of its hosts (the paper does not say). XRDMA is `go_back_n`, the
//! same messages by RC without chunks, with seven retries and DCQCN; switches of pods pause, the spine does not. Flor
//! is over UC, within a pod on the lossless queue with DCQCN, between pods on the lossy one without (§7.4). Requests
//! land in memory that a thread's connections share. Throughput of a pod is that of its clients' answered requests, in
//! each of ten windows of 10 ms, in which each connection completes about one request; the paper's are of seconds.

use dunlin_flor::connection::Deployment;
use dunlin_sim::{Cluster, ClusterBuilder};

use super::cluster_a::{self, LINE_GBIT_S};
use super::share;
use crate::figure::{Effort, Figure, Findings};
use crate::load::{mesh, Flor, Window};
use crate::parallel;

/// The figure.
pub(in crate::figures) const FIGURE: Figure = Figure {
    name: "flor-pods",
    title: "Flor Fig. 8: full mesh within a pod and between two, 512 KB, depth 8, 4 threads",
    says: "within a pod both make about 35 Gb/s; between pods XRDMA shakes and Flor is stable",
    run,
};

const BYTES: u32 = 512 << 10;
const THREADS: usize = 4;
/// Number of hosts in the two pods.
const PODS: [usize; 2] = [25, 4];
/// The same for a quick run.
const QUICK: [usize; 2] = [3, 2];
/// Factor by which a quick run is shorter.
const SHORTER: u64 = 20;
/// Share of the hosts' rate that a pod's link to the spine has.
const UPLINK: f64 = 0.5;
/// Number of windows, and the length of each.
const WINDOWS: usize = 10;
const WINDOW_NS: u64 = 10_000_000;
const STARTING_NS: u64 = 5_000_000;
const WARM_NS: u64 = 30_000_000;
/// The paper's values for XRDMA in two pods, in Gb/s.
const SHAKES: [(f64, f64); 2] = [(20.0, 35.0), (35.0, 45.0)];

#[derive(Clone, Copy, Debug, PartialEq)]
enum System {
    Xrdma,
    Flor,
}

const SYSTEMS: [System; 2] = [System::Xrdma, System::Flor];

impl System {
    fn name(self) -> &'static str {
        match self {
            Self::Xrdma => "XRDMA",
            Self::Flor => "Flor over UC",
        }
    }

    fn plan(self, between: bool, effort: Effort) -> Flor {
        let deployment = match (self, between) {
            (Self::Xrdma, _) => Deployment::IntraPodLossless,
            (Self::Flor, false) => Deployment::IntraPodUnreliable,
            (Self::Flor, true) => Deployment::CrossPod,
        };
        let bytes = if effort.quick { BYTES / 4 } else { BYTES };
        Flor {
            threads: THREADS,
            receives: 32,
            paths: 1,
            retries: 7,
            one_landing: true,
            starting_ns: STARTING_NS / share(SHORTER, effort),
            ..cluster_a::plan(deployment, bytes)
        }
    }
}

/// One pod, or two with a spine.
fn cluster(system: System, pods: &[usize], effort: Effort) -> Cluster {
    let between = pods.len() > 1;
    let lossless = !between || system == System::Xrdma;
    let mut builder = ClusterBuilder::new(effort.seed);
    let mut switches = Vec::new();
    for &hosts in pods {
        let switch = builder.switch(cluster_a::switch(lossless, effort));
        for _ in 0..hosts {
            let nic = cluster_a::nic(lossless, effort);
            builder.host(cluster_a::host(effort), nic, switch);
        }
        switches.push((switch, hosts as f64 * LINE_GBIT_S * UPLINK));
    }
    if between {
        let spine = builder.switch(cluster_a::switch(false, effort));
        for (switch, gbit_s) in switches {
            builder.link(switch, spine, gbit_s);
        }
    }
    builder.build()
}

/// Gigabits per second of a client, the mean of each pod in each window, and the number of failed requests.
fn throughput(system: System, pods: &[usize], effort: Effort) -> (Vec<Vec<f64>>, u64) {
    let cluster = cluster(system, pods, effort);
    let plan = system.plan(pods.len() > 1, effort);
    let bench = plan.start(&cluster, &mesh(&cluster.hosts()));
    cluster.run_for(WARM_NS / share(SHORTER, effort));
    let mut windows = vec![Vec::new(); pods.len()];
    let window = Window {
        warm_ns: 0,
        measured_ns: WINDOW_NS / share(SHORTER, effort),
    };
    for _ in 0..WINDOWS {
        let before = bench.answered();
        bench.measure(window);
        let mut each = bench.answered().into_iter().zip(before);
        for (pod, &hosts) in pods.iter().enumerate() {
            let calls: u64 = each
                .by_ref()
                .take(hosts)
                .map(|(after, before)| after - before)
                .sum();
            let bits = calls as f64 * f64::from(plan.bytes) * 8.0;
            windows[pod].push(bits / window.measured_ns as f64 / hosts as f64);
        }
    }
    (windows, bench.stop())
}

fn least(windows: &[f64]) -> f64 {
    windows.iter().copied().fold(f64::INFINITY, f64::min)
}

fn most(windows: &[f64]) -> f64 {
    windows.iter().copied().fold(0.0, f64::max)
}

fn mean(windows: &[f64]) -> f64 {
    windows.iter().sum::<f64>() / windows.len() as f64
}

fn run(effort: Effort) -> Findings {
    let pods: &[usize] = if effort.quick { &QUICK } else { &PODS };
    let mut points: Vec<(System, &[usize])> = Vec::new();
    for system in SYSTEMS {
        points.extend([(system, &pods[..1]), (system, pods)]);
    }
    let found = parallel::map(effort.threads, &points, |&(system, pods)| {
        throughput(system, pods, effort)
    });
    let mut findings = Findings::new("ms", "Gb/s of a client", false);
    for (&(system, pods), (windows, failed)) in points.iter().zip(&found) {
        for (pod, windows) in windows.iter().enumerate() {
            let place = match pods.len() {
                1 => "within a pod".to_owned(),
                _ => format!("between pods, pod {}", pod + 1),
            };
            let name = format!("{}, {place} ({failed} failed)", system.name());
            let points = windows.iter().enumerate();
            let ms = WINDOW_NS as f64 / share(SHORTER, effort) as f64 / 1e6;
            let points = points.map(|(window, &rate)| ((window + 1) as f64 * ms, rate));
            findings.line(&name, points.collect());
        }
    }
    if effort.quick {
        return findings;
    }
    // In the order of `points`.
    let [xrdma_within, xrdma_between, flor_within, flor_between] = &found[..] else {
        return findings;
    };
    let within = (mean(&xrdma_within.0[0]), mean(&flor_within.0[0]));
    let why = "Flor over UC over XRDMA within a pod, means of 100 ms";
    findings.answer(
        "FR-028",
        "comparable",
        within.1 / within.0,
        (0.95, 1.05),
        why,
    );
    let why = "Gb/s of a client by XRDMA within a pod";
    findings.answer("FR-028 (XRDMA)", "~35 Gbps", within.0, (30.0, 40.0), why);
    for (pod, &(low, high)) in SHAKES.iter().enumerate() {
        let windows = &xrdma_between.0[pod];
        let common = most(windows).min(high) - least(windows).max(low);
        let why = format!(
            "Gb/s that the range of XRDMA's windows in pod {} ({:.1} to {:.1}) and the paper's have in common",
            pod + 1,
            least(windows),
            most(windows)
        );
        let id = format!("FR-029 (pod {})", pod + 1);
        let paper = format!("{low} to {high} Gbps");
        findings.answer(&id, &paper, common, (0.0, f64::INFINITY), &why);
    }
    let shakes = |pods: &[Vec<f64>]| {
        let spread = |windows: &Vec<f64>| (most(windows) - least(windows)) / mean(windows);
        pods.iter().map(spread).fold(0.0, f64::max)
    };
    let why = "range of Flor's windows over the same of XRDMA's, as parts of the mean, in the pod where it is most";
    let ours = shakes(&flor_between.0) / shakes(&xrdma_between.0);
    findings.answer("FR-029 (Flor)", "stable", ours, (0.0, 0.5), why);
    findings
}
