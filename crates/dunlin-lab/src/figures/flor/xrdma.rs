//! Flor §7.2 and Table 3: one thread's bandwidth by XRDMA and by Flor.
//!
//! XRDMA is the preset `xrdma`, calls of the RPC with requests of one size and answers of 64 bytes; Flor is that of
//! `flor-thread`, messages with its price of a chunk. Declared before the first run: eight requests outstanding, one
//! thread of the client and one of the server, requests up to 1 MB as in the paper (§7.2: from 4 KB); 200 Gb/s is a
//! ConnectX-6 Dx whose link has twice the rate, and nothing else; the sizes of Table 3 are not given, so the best of
//! all counts.

use dunlin_flor::connection::Deployment;
use dunlin_sim::{Cluster, NicParameters};

use super::{flor, two, window, xrdma_mops};
use crate::figure::{Effort, Figure, Findings};
use crate::parallel::Sweep;

/// The figure.
pub(in crate::figures) const FIGURE: Figure = Figure {
    name: "flor-xrdma",
    title: "Flor §7.2, Table 3: one thread, eight requests out, XRDMA and Flor at 100 and 200 Gb/s",
    says: "XRDMA is a little lower with large requests, by its READs; at their best both make what the link allows",
    run,
};

/// Sizes of requests in KB.
const KILOBYTES: [u32; 6] = [4, 16, 32, 64, 256, 1024];
/// Link rates, relative to that of the parameter file.
const LINKS: [f64; 2] = [1.0, 2.0];

#[derive(Clone, Copy, Debug, PartialEq)]
enum System {
    Xrdma,
    Unreliable,
    Reliable,
}

const SYSTEMS: [System; 3] = [System::Xrdma, System::Unreliable, System::Reliable];

impl System {
    fn name(self) -> &'static str {
        match self {
            Self::Xrdma => "XRDMA",
            Self::Unreliable => "Flor over UC",
            Self::Reliable => "Flor over RC",
        }
    }
}

type Point = (System, f64, u32);

fn cluster(link: f64, effort: Effort) -> Cluster {
    let mut nic = NicParameters::connectx_6_dx();
    nic.link_gbit_s *= link;
    two(nic, effort)
}

/// Gigabits per second of requests' payload.
fn point((system, link, kilobytes): Point, effort: Effort) -> f64 {
    let (bytes, cluster) = (kilobytes << 10, cluster(link, effort));
    let window = window(4, effort);
    let deployment = match system {
        System::Unreliable => Deployment::IntraPodUnreliable,
        System::Reliable => Deployment::IntraPodReliable,
        System::Xrdma => {
            let mops = xrdma_mops(cluster, (1, 8), bytes, window);
            return mops * f64::from(bytes) * 8.0 / 1e3;
        }
    };
    flor(deployment, bytes).run(&cluster, window).gbit_s
}

fn run(effort: Effort) -> Findings {
    let sizes: &[u32] = if effort.quick { &[4, 64] } else { &KILOBYTES };
    let links: &[f64] = if effort.quick { &LINKS[..1] } else { &LINKS };
    let mut points: Vec<Point> = Vec::new();
    for &link in links {
        for system in SYSTEMS {
            points.extend(sizes.iter().map(|&size| (system, link, size)));
        }
    }
    let sweep = Sweep::new(effort.threads, points, |&one| point(one, effort));
    let of = |point: Point| *sweep.of(&point);
    let mut findings = Findings::new("KB of a request", "Gb/s", true);
    for &link in links {
        for system in SYSTEMS {
            let name = format!("{}, {} Gb/s", system.name(), 100.0 * link);
            let line = sizes.iter();
            let line = line.map(|&size| (f64::from(size), of((system, link, size))));
            findings.line(&name, line.collect());
        }
    }
    if effort.quick {
        return findings;
    }
    let large = of((System::Xrdma, 1.0, 1024)) / of((System::Unreliable, 1.0, 1024));
    let why = "XRDMA over Flor over UC, requests of 1 MB, 100 Gb/s";
    findings.answer("FR-020", "lower", large, (0.0, 1.0), why);
    let best = |system, link| {
        let rates = sizes.iter().map(|&size| of((system, link, size)));
        rates.fold(0.0, f64::max)
    };
    for (id, link) in [("FR-023 (100 Gb/s)", 1.0), ("FR-023 (200 Gb/s)", 2.0)] {
        let flor = best(System::Unreliable, link).max(best(System::Reliable, link));
        let why = "Flor over XRDMA, each with its best size";
        let ratio = flor / best(System::Xrdma, link);
        findings.answer(id, "same", ratio, (0.95, 1.05), why);
    }
    findings
}
