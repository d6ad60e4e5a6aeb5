//! FaSST's coroutines: rate and latency as more of them share a core.

use dunlin::Preset;

use super::{machines, Testbed, PRESETS};
use crate::figure::{Effort, Figure, Findings};
use crate::figures::auto::against_best;
use crate::load::{AllToAll, AllToAllResult};
use crate::parallel;

/// The figure.
pub(in crate::figures) const FIGURE: Figure = Figure {
    name: "fasst-coroutines",
    title: "FaSST: rate and latency with more and more coroutines, Connect-IB",
    says: "about 20 coroutines of a core are enough to hide a network latency of 10 us",
    run,
};

fn run(effort: Effort) -> Findings {
    // Of a thread that asks. There is a core that answers for each, so those of a core are half as many.
    let workers: &[usize] = match effort.quick {
        true => &[4, 40],
        false => &[2, 8, 16, 24, 32, 40, 64],
    };
    let mut points: Vec<(Preset, usize)> = Vec::new();
    for preset in PRESETS {
        points.extend(workers.iter().map(|&workers| (preset, workers)));
    }
    let found = parallel::map(effort.threads, &points, |&(preset, workers)| {
        let plan = AllToAll {
            workers,
            ..Testbed::Cib.load(preset, effort)
        };
        Testbed::Cib.rpc(machines(effort), &plan, effort)
    });
    let of = |preset: Preset, workers: usize| -> &AllToAllResult {
        let place = points.iter().position(|&point| point == (preset, workers));
        &found[place.expect("a point")]
    };
    let of_core = |workers: usize| workers as f64 / 2.0;
    let mut findings = Findings::new("coroutines of a core", "M RPC/s a machine; us", false);
    for preset in PRESETS {
        let line = |value: &dyn Fn(&AllToAllResult) -> f64| -> Vec<(f64, f64)> {
            let point = |&workers: &usize| (of_core(workers), value(of(preset, workers)));
            workers.iter().map(point).collect()
        };
        findings.line(&format!("{preset}, M/s"), line(&|r| r.mops));
        findings.line(&format!("{preset}, median, us"), line(&|r| r.median_us));
        findings.line(
            &format!("{preset}, 99th percentile, us"),
            line(&|r| r.p99_us),
        );
    }
    if effort.quick {
        return findings;
    }
    let rate = |workers: &usize| of(Preset::Fasst, *workers).mops;
    let best = workers.iter().map(rate).fold(0.0, f64::max);
    let enough = workers.iter().find(|workers| rate(workers) >= 0.95 * best);
    let ours = enough.map_or(f64::NAN, |&workers| of_core(workers));
    let why = "fewest coroutines of a core with 95 % of the best rate, one request each";
    findings.answer("FS-013", "~20", ours, (15.0, 25.0), why);
    let rates = workers.iter().map(|&workers| {
        let rates = PRESETS.map(|preset| (preset, of(preset, workers).mops));
        (format!("{workers} coroutines of a thread"), rates.to_vec())
    });
    against_best(
        &mut findings,
        "auto, fasst-coroutines",
        &rates.collect::<Vec<_>>(),
    );
    findings
}
