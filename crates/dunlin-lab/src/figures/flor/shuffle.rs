//! Flor Fig. 11: the shuffle of a sort, in which every host sends to every other.
//!
//! Declared before the first run: 16 of cluster C's 48 hosts on one lossless switch, ConnectX-5 at 100 Gb/s under
//! DCQCN; 1 TB over a thousand mappers and reducers makes pieces of 1 MB; four threads of a host, eight pieces out of
//! each to each host. XRDMA is what `go_back_n` has, the same messages by RC without chunks; Flor is over UC. Time is
//! what moving the same bytes takes, the inverse of the rate: the mappers' own work, which is in FR-040, is not told.

use dunlin_flor::connection::Deployment;
use dunlin_sim::{Cluster, HostParameters, NicParameters, SwitchParameters};

use super::{flor, share, MTU_BYTES};
use crate::figure::{Effort, Figure, Findings};
use crate::load::{mesh, Flor, Window};
use crate::parallel;

/// The figure.
pub(in crate::figures) const FIGURE: Figure = Figure {
    name: "flor-shuffle",
    title:
        "Flor Fig. 11: the shuffle of a sort, pieces of 1 MB between all hosts, lossless network",
    says: "Flor takes 16 % less time than XRDMA",
    run,
};

/// Of a piece, in KB.
const KILOBYTES: u32 = 1024;
const HOSTS: usize = 16;
const THREADS: usize = 4;

fn cluster(hosts: usize, effort: Effort) -> Cluster {
    let nic = match effort.quick {
        true => NicParameters::connectx_6_dx(),
        false => NicParameters::connectx_5(),
    };
    let mut nic = effort.nic(nic);
    nic.mtu_bytes = MTU_BYTES;
    let host = effort.host(HostParameters::xeon_gold_5118());
    let switch = effort.switch(SwitchParameters::z9264f());
    Cluster::star(effort.seed, hosts, &host, &nic, &switch)
}

/// Gigabits a second of a host.
fn rate(deployment: Deployment, hosts: usize, kilobytes: u32, effort: Effort) -> f64 {
    let cluster = cluster(hosts, effort);
    let share = share(20, effort);
    let plan = Flor {
        threads: THREADS,
        receives: 32,
        paths: 1,
        retries: 7,
        one_landing: true,
        starting_ns: 10_000_000 / share,
        ..flor(deployment, kilobytes << 10)
    };
    let bench = plan.start(&cluster, &mesh(&cluster.hosts()));
    let found = bench.measure(Window {
        warm_ns: 20_000_000 / share,
        measured_ns: 40_000_000 / share,
    });
    assert_eq!(bench.stop(), 0, "pieces that failed");
    found.gbit_s / hosts as f64
}

fn run(effort: Effort) -> Findings {
    let (hosts, kilobytes) = match effort.quick {
        true => (3, KILOBYTES / 8),
        false => (HOSTS, KILOBYTES),
    };
    let systems = [Deployment::IntraPodLossless, Deployment::IntraPodUnreliable];
    let found = parallel::map(effort.threads, &systems, |&deployment| {
        rate(deployment, hosts, kilobytes, effort)
    });
    let mut findings = Findings::new("KB of a piece", "Gb/s of a host", false);
    for (name, &rate) in ["XRDMA", "Flor over UC"].iter().zip(&found) {
        findings.line(name, vec![(f64::from(kilobytes), rate)]);
    }
    if effort.quick {
        return findings;
    }
    let why = "time of the shuffle, Flor over UC over XRDMA, less one";
    let ours = found[0] / found[1] - 1.0;
    findings.answer("FR-041", "-16%", ours, (-0.25, -0.08), why);
    findings
}
