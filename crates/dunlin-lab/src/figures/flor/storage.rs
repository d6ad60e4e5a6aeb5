//! Flor Fig. 13: the network's part of a block store's requests of 4 KB.
//!
//! Declared before the first run: cluster C's ConnectX-5 at 100 Gb/s, two hosts, and no time for the store itself,
//! which the paper does not report and which would make every difference smaller. A write is a request of 4 KB with a
//! short answer, a read a short request with an answer of 4 KB. XRDMA is the preset `xrdma` as in `flor-xrdma`, whose
//! load has short answers, so it is compared by writes. One thread with one outstanding request for latencies; 8
//! threads with 8 for the rate. *HW R/C*, *HW R* and *SW* are Table 1's deployments within a pod: lossless, RC, UC.

use dunlin_flor::connection::Deployment;
use dunlin_sim::{Cluster, NicParameters};

use super::{flor, two, window, xrdma_mops};
use crate::figure::{Effort, Figure, Findings};
use crate::load::Flor;
use crate::parallel::Sweep;

/// The figure.
pub(in crate::figures) const FIGURE: Figure = Figure {
    name: "flor-storage",
    title:
        "Flor Fig. 13: reads and writes of 4 KB, XRDMA and Flor with hardware and software modules",
    says: "Flor's latency is 1 to 8 % below XRDMA's, 3 % apart by its modules; rates alike",
    run,
};

const BLOCK_BYTES: u32 = 4 << 10;
const SHORT_BYTES: u32 = 128;
/// Threads, and outstanding requests of each.
const ONE: (usize, usize) = (1, 1);
const MANY: (usize, usize) = (8, 8);

#[derive(Clone, Copy, Debug, PartialEq)]
enum System {
    Xrdma,
    Flor(Deployment),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Write,
    Read,
}

const HARDWARE: System = System::Flor(Deployment::IntraPodLossless);
const RELIABLE: System = System::Flor(Deployment::IntraPodReliable);
const SOFTWARE: System = System::Flor(Deployment::IntraPodUnreliable);
const SYSTEMS: [(System, &str); 4] = [
    (System::Xrdma, "XRDMA"),
    (HARDWARE, "Flor HW R/C"),
    (RELIABLE, "Flor HW R"),
    (SOFTWARE, "Flor SW"),
];

type Point = (System, Kind, (usize, usize));

fn points() -> Vec<Point> {
    let mut points = Vec::new();
    for (system, _) in SYSTEMS {
        for kind in [Kind::Write, Kind::Read] {
            if (system, kind) != (System::Xrdma, Kind::Read) {
                points.extend([(system, kind, ONE), (system, kind, MANY)]);
            }
        }
    }
    points
}

/// Millions of requests per second.
fn rate((system, kind, (threads, depth)): Point, effort: Effort) -> f64 {
    let (nic, block) = match effort.quick {
        true => (NicParameters::connectx_6_dx(), BLOCK_BYTES / 2),
        false => (NicParameters::connectx_5(), BLOCK_BYTES),
    };
    let (cluster, window): (Cluster, _) = (two(nic, effort), window(4, effort));
    let deployment = match system {
        System::Flor(deployment) => deployment,
        System::Xrdma => {
            return xrdma_mops(cluster, (threads, depth), block, window);
        }
    };
    let (bytes, answer_bytes) = match kind {
        Kind::Write => (block, SHORT_BYTES),
        Kind::Read => (SHORT_BYTES, block),
    };
    let plan = Flor {
        threads,
        depth,
        answer_bytes,
        ..flor(deployment, bytes)
    };
    plan.run(&cluster, window).mops
}

fn run(effort: Effort) -> Findings {
    let sweep = Sweep::new(effort.threads, points(), |&point| rate(point, effort));
    let of = |point: Point| *sweep.of(&point);
    // Mean latency in microseconds, as one request is outstanding all the time.
    let latency = |system, kind| 1.0 / of((system, kind, ONE));
    let mut findings = Findings::new("1: write, 2: read", "us; M/s", false);
    for (system, name) in SYSTEMS {
        let mut lines = [Vec::new(), Vec::new()];
        for (place, kind) in [(1.0, Kind::Write), (2.0, Kind::Read)] {
            if (system, kind) != (System::Xrdma, Kind::Read) {
                lines[0].push((place, latency(system, kind)));
                lines[1].push((place, of((system, kind, MANY))));
            }
        }
        let [latencies, rates] = lines;
        findings.line(&format!("{name}, us"), latencies);
        findings.line(&format!("{name}, M/s"), rates);
    }
    if effort.quick {
        return findings;
    }
    let writes = |system| latency(system, Kind::Write) / latency(System::Xrdma, Kind::Write) - 1.0;
    let all = [HARDWARE, RELIABLE, SOFTWARE].map(writes);
    let most = all.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let least = all.iter().copied().fold(f64::INFINITY, f64::min);
    let (paper, bounds) = ("1%-8% lower", (-0.12, 0.0));
    let why = "latency of a write, Flor over XRDMA, less one: the most of three kinds of Flor";
    findings.answer("FR-045 (most)", paper, most, bounds, why);
    let why = "the same, the least of three";
    findings.answer("FR-045 (least)", paper, least, bounds, why);
    let more = |system, kind| latency(system, kind) / latency(HARDWARE, kind) - 1.0;
    let mut higher = f64::NEG_INFINITY;
    for system in [RELIABLE, SOFTWARE] {
        higher = higher
            .max(more(system, Kind::Write))
            .max(more(system, Kind::Read));
    }
    let why = "latency of HW R and SW over HW R/C, less one, the most of reads and writes";
    findings.answer("FR-046", "<3%", higher, (0.0, 0.05), why);
    let ratio = of((SOFTWARE, Kind::Write, MANY)) / of((System::Xrdma, Kind::Write, MANY));
    let why = "writes a second, Flor SW over XRDMA, 8 threads with 8 out";
    findings.answer("FR-047", "comparable", ratio, (0.95, 1.05), why);
    findings
}
