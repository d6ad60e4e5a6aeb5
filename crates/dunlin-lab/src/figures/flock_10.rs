//! FLOCK Fig. 10: what coalescing brings, 23 clients with 32 threads each, one, four and eight calls out.

use dunlin::Preset;

use super::auto::against_best;
use super::flock_rpc::point;
use crate::figure::{Effort, Figure, Findings};
use crate::load::RpcPlan;
use crate::parallel;

/// The figure.
pub(super) const FIGURE: Figure = Figure {
    name: "flock-10",
    title: "FLOCK Fig. 10: with and without coalescing; 23 clients of 32 threads, 64 B",
    says: "1.4, 1.7 and 1.7 times the rate with one, four and eight calls out; 1.56, 1.7 and 2 requests a message",
    run,
};

const WAYS: [Preset; 3] = [Preset::Flock, Preset::FlockNoCoalescing, Preset::Auto];

fn run(effort: Effort) -> Findings {
    let outstanding: &[usize] = if effort.quick { &[1] } else { &[1, 4, 8] };
    // The claims are about 32 threads; half as many show the same figure sooner.
    let threads = if effort.quick { 16 } else { 32 };
    let points: Vec<(Preset, usize)> = outstanding
        .iter()
        .rev()
        .flat_map(|&out| WAYS.map(|way| (way, out)))
        .collect();
    let found = parallel::map(effort.threads, &points, |&(way, out)| {
        point(RpcPlan::flock(way, threads, out), effort)
    });
    let of = |way: Preset, out: usize| {
        let place = points.iter().position(|&point| point == (way, out));
        &found[place.expect("a point of the sweep")]
    };
    let mut findings = Findings::new("calls out", "M RPC/s", false);
    for (name, way) in [
        ("with coalescing", Preset::Flock),
        ("without", Preset::FlockNoCoalescing),
        ("auto", Preset::Auto),
    ] {
        let line = outstanding
            .iter()
            .map(|&out| (out as f64, of(way, out).mops));
        findings.line(name, line.collect());
    }
    let rates = |&out: &usize| {
        let rates = WAYS.map(|way| (way, of(way, out).mops));
        (format!("{out} calls out"), rates.to_vec())
    };
    let compared: Vec<_> = outstanding.iter().map(rates).collect();
    let degrees = outstanding
        .iter()
        .map(|&out| (out as f64, of(Preset::Flock, out).degree));
    findings.line("requests a message", degrees.collect());
    if effort.quick {
        return findings;
    }
    against_best(&mut findings, "auto, flock-10", &compared);
    let gain = |out| of(Preset::Flock, out).mops / of(Preset::FlockNoCoalescing, out).mops;
    let degree = |out| of(Preset::Flock, out).degree;
    let (ratio, mean) = ("rate with over rate without", "mean requests of a message");
    findings.answer("FL-037", "1.4x", gain(1), (1.25, 1.6), ratio);
    findings.answer("FL-038", "1.56", degree(1), (1.3, 1.9), mean);
    findings.answer("FL-040 (4)", "1.7x", gain(4), (1.45, 2.0), ratio);
    findings.answer("FL-040 (8)", "1.7x", gain(8), (1.45, 2.0), ratio);
    findings.answer("FL-041 (4)", "1.7", degree(4), (1.4, 2.0), mean);
    findings.answer("FL-041 (8)", "2", degree(8), (1.7, 2.4), mean);
    findings
}
