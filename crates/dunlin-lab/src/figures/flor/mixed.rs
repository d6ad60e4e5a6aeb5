//! Flor §7.5, Fig. 9: NICs of two generations and of three vendors in one network, under Flor.
//!
//! NICs and switches are those of `flor-vendors`, whose rows set what is not known about them; the rows here set
//! nothing. Declared before the first run, since the paper is silent:
//!
//! - in the mesh of two generations requests are those of §7.4, 512 KB with answers of 128 B, eight outstanding, by
//!   four threads to each other host; XRDMA is `go_back_n`, the same messages by RC without chunks, with seven retries.
//!   PFC and DCQCN are on for both (§7.5). Flor is judged over UC, and shown over RC;
//! - between vendors each of the three calls both others at once, over 512 connections each (eight threads), with
//!   requests of 64 KB, four outstanding as in `flor-vendors`. Flor is over RC there: the paper's first two
//!   configurations have the NICs' own congestion control, which those of Intel and Broadcom have only for RC in the
//!   model; without PFC their switch drops packets without room (`dynamic_th` 3, as in `flor-incast`);
//! - a fixed window is a bandwidth-delay product for each connection;
//! - the minimum chunk is 1 KB (§7.1); messages land in memory that a thread's connections share; there are no backups,
//!   so a connection that exhausts its retries is lost, and there are seven.

use dunlin_flor::connection::Deployment;
use dunlin_sim::{Cluster, NicParameters};

use super::vendors::{self, MESH_GBIT_S, OF_EACH, VENDORS_GBIT_S};
use super::{cluster_a, flor, product_bytes, share};
use crate::figure::{Effort, Figure, Findings};
use crate::load::{mesh, Flor, Window};
use crate::parallel::Sweep;

/// The figure.
pub(in crate::figures) const FIGURE: Figure = Figure {
    name: "flor-mixed",
    title: "Flor §7.5, Fig. 9: NICs of two generations and of three vendors under Flor",
    says: "by XRDMA 33.2 and 41.3 Gb/s of ConnectX-4 and 5, by Flor 37.1 and 36.6; between vendors Flor is fair but \
           for Intel and Mellanox to Broadcom, 19 and 56 Gb/s, which a fixed window makes less uneven",
    run,
};

/// Request size of a client thread in the mesh of generations.
const LARGE_BYTES: u32 = 512 << 10;
/// Request size between vendors.
const BYTES: u32 = 64 << 10;
const UNIT_BYTES: u32 = 1 << 10;
/// Connections of one NIC to another between vendors, by threads.
const CONNECTIONS: (usize, usize) = (8, 64);
/// Milliseconds before windows begin, and their length: a connection of the first mesh completes one or two rounds of
/// its eight requests in them.
const WARM_MS: u64 = 60;
const MEASURED_MS: u64 = 80;
/// Time in which the threads begin.
const STARTING_NS: u64 = 5_000_000;
/// Factor by which a quick run is shorter.
const QUICK: u64 = 20;

/// Systems in the mesh of two generations.
const GENERATIONS: [(Deployment, &str); 3] = [
    (Deployment::IntraPodLossless, "XRDMA"),
    (Deployment::HybridUnreliable, "Flor over UC"),
    (Deployment::HybridReliable, "Flor over RC"),
];

/// Fig. 9's configurations: whether the switch pauses, whether NICs have congestion control of their own, whether
/// Flor's window is fixed.
const CONFIGURATIONS: [(bool, bool, bool); 4] = [
    (true, true, false),
    (false, true, false),
    (false, false, false),
    (false, false, true),
];
/// Configurations, as indices of [`CONFIGURATIONS`].
const FLOR: usize = 2;
const FIXED: usize = 3;

/// NICs between vendors, by their indices in the cluster.
const MELLANOX: usize = 0;
const BROADCOM: usize = 1;
const INTEL: usize = 2;
const VENDORS: [&str; 3] = ["BlueField-2", "P2100G", "E810"];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Point {
    Generations(Deployment),
    /// By its index in [`CONFIGURATIONS`].
    Vendors(usize),
}

/// Gigabits per second of each pair of hosts, in the order of [`mesh`], and the number of failures.
#[derive(Clone, Debug)]
struct Rates {
    gbit_s: Vec<f64>,
    failed: u64,
}

fn rates(cluster: &Cluster, plan: Flor, effort: Effort) -> Rates {
    let share = share(QUICK, effort);
    let bench = plan.start(cluster, &mesh(&cluster.hosts()));
    cluster.run_for(WARM_MS * 1_000_000 / share);
    let window = Window {
        warm_ns: 0,
        measured_ns: MEASURED_MS * 1_000_000 / share,
    };
    let before = bench.answered_in_pairs();
    bench.measure(window);
    let bits = f64::from(plan.bytes) * 8.0;
    let rate = |(after, before): (u64, u64)| (after - before) as f64 * bits;
    let of_pairs = bench.answered_in_pairs().into_iter().zip(before);
    let gbit_s = of_pairs.map(|both| rate(both) / window.measured_ns as f64);
    Rates {
        gbit_s: gbit_s.collect(),
        failed: bench.stop(),
    }
}

fn common(deployment: Deployment, bytes: u32, gbit_s: f64, effort: Effort) -> Flor {
    Flor {
        unit_bytes: UNIT_BYTES,
        answer_bytes: 128,
        receives: 32,
        fragment_bytes: 4 << 10,
        paths: 1,
        retries: 7,
        line_gbit_s: gbit_s as u64,
        one_landing: true,
        starting_ns: STARTING_NS / share(QUICK, effort),
        ..flor(deployment, bytes)
    }
}

/// In a quick run, which is not an experiment of the paper, NICs and sizes differ.
fn generations(deployment: Deployment, effort: Effort) -> Rates {
    let at_rate = |nic| NicParameters {
        link_gbit_s: MESH_GBIT_S,
        ..nic
    };
    let (one, other, of_each, bytes, threads) = match effort.quick {
        true => (
            at_rate(NicParameters::connectx_5()),
            at_rate(NicParameters::connectx_6_dx()),
            2,
            LARGE_BYTES / 4,
            1,
        ),
        false => (vendors::older(), vendors::newer(), OF_EACH, LARGE_BYTES, 4),
    };
    let mut nics = vec![one; of_each];
    nics.resize(2 * of_each, other);
    let switch = vendors::switch(MESH_GBIT_S, effort);
    let plan = Flor {
        threads,
        ..common(deployment, bytes, MESH_GBIT_S, effort)
    };
    rates(&vendors::cluster(&nics, switch, effort), plan, effort)
}

fn between_vendors(configuration: usize, effort: Effort) -> Rates {
    let (pauses, hardware, fixed) = CONFIGURATIONS[configuration];
    let (mut nics, bytes, connections) = match effort.quick {
        true => (
            [
                NicParameters::connectx_5(),
                NicParameters::connectx_6_dx(),
                NicParameters::connectx_5(),
            ],
            BYTES * 3 / 4,
            (2, 4),
        ),
        false => (
            [
                NicParameters::bluefield_2(),
                NicParameters::p2100g(),
                NicParameters::e810(),
            ],
            BYTES,
            CONNECTIONS,
        ),
    };
    if !hardware {
        for nic in &mut nics {
            nic.congestion_control = 0.0;
        }
    }
    let mut switch = vendors::switch(VENDORS_GBIT_S, effort);
    if !pauses {
        cluster_a::drops(&mut switch);
    }
    let plan = Flor {
        threads: connections.0,
        connections: connections.1,
        depth: 4,
        receives: 16,
        window_bytes: fixed.then(product_bytes),
        ..common(Deployment::HybridReliable, bytes, VENDORS_GBIT_S, effort)
    };
    rates(&vendors::cluster(&nics, switch, effort), plan, effort)
}

fn measure(point: Point, effort: Effort) -> Rates {
    match point {
        Point::Generations(deployment) => generations(deployment, effort),
        Point::Vendors(configuration) => between_vendors(configuration, effort),
    }
}

/// Mean sending rates of the NICs of each generation.
fn of_generations(rates: &Rates) -> [f64; 2] {
    let half = rates.gbit_s.len() / 2;
    // Each of n hosts has n - 1 pairs.
    let hosts = (1..).find(|hosts| hosts * (hosts - 1) >= rates.gbit_s.len());
    let of_each = hosts.unwrap_or(2) as f64 / 2.0;
    let sum = |rates: &[f64]| rates.iter().sum::<f64>() / of_each;
    [sum(&rates.gbit_s[..half]), sum(&rates.gbit_s[half..])]
}

/// The rate from one of three to another.
fn sends(rates: &Rates, from: usize, to: usize) -> f64 {
    let before = usize::from(to > from);
    rates.gbit_s[from * 2 + to - before]
}

fn uneven(one: f64, other: f64) -> f64 {
    one.max(other) / one.min(other) - 1.0
}

fn run(effort: Effort) -> Findings {
    let configurations = 0..CONFIGURATIONS.len();
    let mut points: Vec<Point> = configurations.clone().map(Point::Vendors).collect();
    points.extend(GENERATIONS.map(|(deployment, _)| Point::Generations(deployment)));
    let sweep = Sweep::new(effort.threads, points, |&point| measure(point, effort));
    let mut findings = Findings::new("configuration", "Gb/s", false);
    let vendors = |configuration: usize| sweep.of(&Point::Vendors(configuration));
    let line = |of: &dyn Fn(&Rates) -> f64| -> Vec<(f64, f64)> {
        let point = |configuration: usize| (configuration as f64 + 1.0, of(vendors(configuration)));
        configurations.clone().map(point).collect()
    };
    for (to, receiver) in VENDORS.iter().enumerate() {
        for (from, sender) in VENDORS.iter().enumerate() {
            if from != to {
                let points = line(&|rates| sends(rates, from, to));
                findings.line(&format!("{sender} to {receiver}"), points);
            }
        }
    }
    findings.line("failed between vendors", line(&|rates| rates.failed as f64));
    for (deployment, name) in GENERATIONS {
        let rates = sweep.of(&Point::Generations(deployment));
        let [older, newer] = of_generations(rates);
        for (nic, rate) in [("ConnectX-4", older), ("ConnectX-5", newer)] {
            let name = format!("{nic} by {name} ({} failed)", rates.failed);
            findings.line(&name, vec![(1.0, rate)]);
        }
    }
    if effort.quick {
        return findings;
    }
    let [older, newer] = of_generations(sweep.of(&Point::Generations(GENERATIONS[0].0)));
    let why = "what a ConnectX-5 sends over what a ConnectX-4 does, less one, by XRDMA";
    let ours = newer / older - 1.0;
    findings.answer("FR-030", "24.3%", ours, (0.15, 0.35), why);
    let [older, newer] = of_generations(sweep.of(&Point::Generations(GENERATIONS[1].0)));
    let why = "the more over the less of what a ConnectX-4 and a ConnectX-5 send, less one, by Flor over UC";
    findings.answer("FR-031", "1.3%", uneven(older, newer), (0.0, 0.04), why);
    let beside_intel = (0..=FLOR).flat_map(|configuration| {
        let rates = vendors(configuration);
        [MELLANOX, BROADCOM].map(|to| sends(rates, INTEL, to))
    });
    let (least, most) = beside_intel.fold((f64::MAX, f64::MIN), |(least, most), rate| {
        (least.min(rate), most.max(rate))
    });
    for (id, ours) in [("FR-032 (least)", least), ("FR-032 (most)", most)] {
        let why = "Gb/s of Intel's to Mellanox and to Broadcom, of the first three configurations";
        findings.answer(id, "18 Gbps", ours, (14.0, 22.0), why);
    }
    let to_intel = |configuration| {
        let rates = vendors(configuration);
        uneven(sends(rates, MELLANOX, INTEL), sends(rates, BROADCOM, INTEL))
    };
    let most = configurations.clone().map(to_intel).fold(0.0, f64::max);
    let why = "the more over the less of what Mellanox and Broadcom send to Intel, less one, the most of all \
               configurations";
    findings.answer("FR-033", "same", most, (0.0, 0.05), why);
    let ratio = |configuration| {
        let rates = vendors(configuration);
        sends(rates, MELLANOX, BROADCOM) / sends(rates, INTEL, BROADCOM)
    };
    let why = "what Mellanox sends to Broadcom over what Intel does, less one, by Flor alone";
    let (paper, bounds) = ("19 / 56 Gbps (194%)", (1.0, f64::INFINITY));
    findings.answer("FR-034", paper, ratio(FLOR) - 1.0, bounds, why);
    let skew = |configuration| ratio(configuration).max(1.0 / ratio(configuration));
    let why = "the more over the less of the same two with a fixed window, over that without";
    let ours = skew(FIXED) / skew(FLOR);
    findings.answer("FR-035", "less skewed", ours, (0.0, 1.0 - 1e-9), why);
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_found_in_the_order_of_a_mesh() {
        let rates = Rates {
            gbit_s: vec![1.0, 2.0, 10.0, 12.0, 20.0, 21.0],
            failed: 0,
        };
        assert_eq!(sends(&rates, MELLANOX, BROADCOM), 1.0);
        assert_eq!(sends(&rates, BROADCOM, MELLANOX), 10.0);
        assert_eq!(sends(&rates, BROADCOM, INTEL), 12.0);
        assert_eq!(sends(&rates, INTEL, BROADCOM), 21.0);
        let rates = Rates {
            gbit_s: vec![1.0; 12],
            failed: 0,
        };
        assert_eq!(of_generations(&rates), [3.0, 3.0]);
    }
}
