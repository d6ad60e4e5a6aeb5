//! Flor Fig. 11: the shuffle of a sort, in which every host sends to every other.
//!
//! Declared before the first run: 16 of cluster C's 48 hosts on one lossless switch, ConnectX-5 at 100 Gb/s under
//! DCQCN; 1 TB over a thousand mappers and reducers makes pieces of 1 MB; four threads of a host, eight pieces of each
//! outstanding to each host. XRDMA is `go_back_n`, the same messages by RC without chunks; Flor is over UC. The time is
//! that of moving the same bytes, the inverse of the rate.
//!
//! The running time of a mapper (FR-040), declared before its own first run and after that of FR-041: the paper does
//! not say how long a mapper computes. Here it is the time of one of ours for the paper's 1 GB and 1000 reducers, 0.9
//! s: one thread reads, counts and checks 10^7 records in memory and copies each to the block of its partition (`cargo
//! run --release -p dunlin-shuffle --example map -- 10000000 1000 9 /dev/shm`: 0.88 and 0.90 s, medians of two series
//! of nine turns, 0.84 to 0.94; one of two virtual cores of an AMD EPYC at 2.6 GHz, other programs stopped, 2026-11-27;
//! the hosts of the figure have another processor). 1000 mappers on 48 hosts are 21 on each of 24 cores: all run at
//! once, each on a core of its own, and then send together the data for the 47 other hosts. A mapper's time is the sum
//! of both: its computation and its shuffle do not overlap, as the paper reports a time of each. (In `dunlin-shuffle`
//! they do overlap, and its mapper takes about as long as the longer of them.) Not counted: reading the input, and
//! contention of cores for memory bandwidth.

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
    says: "Flor takes 16 % less time than XRDMA, and a mapper with it 10 %",
    run,
};

/// Size of a piece, in KB.
const KILOBYTES: u32 = 1024;
const HOSTS: usize = 16;
const THREADS: usize = 4;
/// The paper's job: number of mappers and of hosts, and bytes of each mapper.
const MAPPERS: f64 = 1000.0;
const CLUSTER_HOSTS: f64 = 48.0;
const MAPPER_BYTES: f64 = 1e9;
/// Computing time of a mapper, without its shuffle.
const MAPPING_S: f64 = 0.9;

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

/// Gigabits per second of a host.
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

/// Running time in seconds of a mapper when a host sends at this rate.
fn mapper_s(gbit_s: f64) -> f64 {
    let to_others = MAPPERS / CLUSTER_HOSTS * MAPPER_BYTES * (1.0 - 1.0 / CLUSTER_HOSTS);
    MAPPING_S + to_others * 8.0 / (gbit_s * 1e9)
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
    let why = "mean running time of a mapper, Flor over UC over XRDMA, less one";
    let ours = mapper_s(found[1]) / mapper_s(found[0]) - 1.0;
    findings.answer("FR-040", "-10%", ours, (-0.16, -0.04), why);
    findings
}
