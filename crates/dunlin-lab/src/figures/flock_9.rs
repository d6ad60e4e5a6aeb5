//! FLOCK Fig. 9: ways to share queue pairs, 23 clients with more and more threads, eight calls out for each.

use dunlin::Preset;

use super::auto::against_best;
use super::flock_rpc::point;
use crate::figure::{Effort, Figure, Findings};
use crate::load::{RpcPlan, RpcResult};
use crate::parallel;

/// The figure.
pub(super) const FIGURE: Figure = Figure {
    name: "flock-9",
    title: "FLOCK Fig. 9: FLOCK, no sharing and spinlocks; 23 clients, 64 B, eight calls out",
    says: "equal up to 8 threads; at 32 and 48 threads FLOCK is ahead by 62 and 133 %, its 99th percentile 27 and 49 % lower",
    run,
};

const OUTSTANDING: usize = 8;
const WAYS: [Preset; 4] = [
    Preset::Flock,
    Preset::QpPerThread,
    Preset::Spinlock2,
    Preset::Spinlock4,
];

fn run(effort: Effort) -> Findings {
    let threads: &[usize] = if effort.quick {
        &[2, 8]
    } else {
        &[1, 2, 4, 8, 16, 32, 48]
    };
    // The points that take longest first.
    let points: Vec<(Preset, usize)> = threads
        .iter()
        .rev()
        .flat_map(|&threads| WAYS.map(|way| (way, threads)))
        .chain(threads.iter().map(|&threads| (Preset::Auto, threads)))
        .collect();
    let found = parallel::map(effort.threads, &points, |&(way, threads)| {
        point(RpcPlan::flock(way, threads, OUTSTANDING), effort)
    });
    let of = |way: Preset, threads: usize| -> &RpcResult {
        let place = points.iter().position(|&point| point == (way, threads));
        &found[place.expect("a point of the sweep")]
    };
    let mut findings = Findings::new("threads a client", "M RPC/s", true);
    for way in WAYS {
        let line = threads.iter().map(|&n| (n as f64, of(way, n).mops));
        findings.line(way.name(), line.collect());
    }
    let auto = threads
        .iter()
        .map(|&n| (n as f64, of(Preset::Auto, n).mops));
    findings.line("auto", auto.collect());
    let rates = |&n: &usize| {
        let others = WAYS.map(|way| (way, of(way, n).mops));
        let mut rates = others.to_vec();
        rates.push((Preset::Auto, of(Preset::Auto, n).mops));
        (format!("{n} threads"), rates)
    };
    let compared: Vec<_> = threads.iter().map(rates).collect();
    let degrees = threads
        .iter()
        .map(|&n| (n as f64, of(Preset::Flock, n).degree));
    findings.line("requests a message of FLOCK", degrees.collect());
    let best_other = |threads| {
        let others = WAYS[1..].iter().map(|&way| of(way, threads).mops);
        others.fold(0.0, f64::max)
    };
    let gain = |threads| of(Preset::Flock, threads).mops / best_other(threads) - 1.0;
    let low = threads.iter().filter(|&&n| n <= 8);
    let furthest = low
        .clone()
        .map(|&n| of(Preset::Flock, n).mops / of(Preset::QpPerThread, n).mops - 1.0)
        .fold(
            0.0,
            |worst: f64, off| if off.abs() > worst.abs() { off } else { worst },
        );
    findings.answer(
        "FL-029",
        "similar",
        furthest,
        (-0.05, 0.05),
        "FLOCK over no sharing less one, the furthest of up to 8 threads",
    );
    let degree = low
        .map(|&n| of(Preset::Flock, n).degree)
        .fold(0.0, f64::max);
    findings.answer(
        "FL-029 (degree)",
        "no coalescing takes place",
        degree,
        (1.0, 1.02),
        "requests a message up to 8 threads",
    );
    if effort.quick {
        return findings;
    }
    against_best(&mut findings, "auto, flock-9", &compared);
    let why = "FLOCK over the best other, less one";
    findings.answer("FL-030", "slightly better", gain(16), (0.0, 0.2), why);
    findings.answer("FL-032", ">=+62%", gain(32), (0.4, 0.9), why);
    findings.answer("FL-033", ">=+133%", gain(48), (0.95, 1.75), why);
    let spinlocks = [Preset::Spinlock2, Preset::Spinlock4];
    for (id, paper, threads, bounds) in [
        ("FL-034", "-27%", 32, (-0.40, -0.15)),
        ("FL-035", "-49%", 48, (-0.60, -0.35)),
    ] {
        let ours = of(Preset::Flock, threads).p99_us / of(Preset::QpPerThread, threads).p99_us;
        let why = "99th percentile of FLOCK over that of no sharing, less one";
        findings.answer(id, paper, ours - 1.0, bounds, why);
    }
    let furthest = [32, 48]
        .into_iter()
        .flat_map(|n| spinlocks.map(|way| of(way, n).mops / of(Preset::QpPerThread, n).mops - 1.0))
        .fold(
            0.0,
            |worst: f64, off| if off.abs() > worst.abs() { off } else { worst },
        );
    findings.answer(
        "FL-036",
        "similar",
        furthest,
        (-0.15, 0.15),
        "spinlocks over no sharing, less one, the furthest of 32 and 48 threads",
    );
    findings
}
