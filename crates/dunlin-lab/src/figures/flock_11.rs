//! FLOCK Fig. 11: what the thread scheduler brings, when one thread in ten sends large requests.

use dunlin::Preset;

use super::auto::against_best;
use super::flock_rpc::{point, settled_point};
use crate::figure::{Effort, Figure, Findings};
use crate::load::RpcPlan;
use crate::parallel;

/// The figure.
pub(super) const FIGURE: Figure = Figure {
    name: "flock-11",
    title:
        "FLOCK Fig. 11: thread scheduling; 23 clients of 32 threads, one in ten with large requests",
    says: "up to 1.5 times the rate of two threads on each queue pair, at similar latency",
    run,
};

fn run(effort: Effort) -> Findings {
    let sizes: &[usize] = if effort.quick {
        &[1024]
    } else {
        // The sizes that the claim's row names; requests of more than 4 KiB are fetched.
        &[512, 2048, 4096, 8192, 16_384]
    };
    // The claim is about 32 threads; half as many show the same figure sooner.
    let threads = if effort.quick { 16 } else { 32 };
    let ways = [Preset::Flock, Preset::FlockNoScheduling, Preset::Auto];
    let points: Vec<(Preset, usize)> = sizes
        .iter()
        .rev()
        .flat_map(|&bytes| ways.map(|way| (way, bytes)))
        .collect();
    let found = parallel::map(effort.threads, &points, |&(way, bytes)| {
        let plan = RpcPlan {
            large: Some((10, bytes)),
            // Without scheduling nobody takes a queue pair away either.
            most_active: if way == Preset::FlockNoScheduling {
                1 << 16
            } else {
                256
            },
            ..RpcPlan::flock(way, threads, 8)
        };
        if effort.quick {
            point(plan, effort)
        } else {
            settled_point(plan, effort)
        }
    });
    let of = |way: Preset, bytes: usize| {
        let place = points.iter().position(|&point| point == (way, bytes));
        &found[place.expect("a point of the sweep")]
    };
    let mut findings = Findings::new("bytes of a large request", "M RPC/s", true);
    for (name, way) in [
        ("scheduled", ways[0]),
        ("two threads a queue pair", ways[1]),
        ("auto", ways[2]),
    ] {
        let line = sizes
            .iter()
            .map(|&bytes| (bytes as f64, of(way, bytes).mops));
        findings.line(name, line.collect());
    }
    let rates = |&bytes: &usize| {
        let rates = ways.map(|way| (way, of(way, bytes).mops));
        (format!("{bytes} B"), rates.to_vec())
    };
    let compared: Vec<_> = sizes.iter().map(rates).collect();
    if effort.quick {
        return findings;
    }
    against_best(&mut findings, "auto, flock-11", &compared);
    let gain = |&bytes: &usize| of(ways[0], bytes).mops / of(ways[1], bytes).mops;
    let best = sizes.iter().map(gain).fold(0.0, f64::max);
    findings.answer(
        "FL-042",
        "up to 1.5x",
        best,
        (1.2, 1.8),
        "rate with the scheduler over rate without, the best of the sizes",
    );
    findings
}
