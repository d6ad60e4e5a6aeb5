//! FaSST's coroutines: rate and latency as more of them share a core.

use super::{fasst, machines, Testbed, PRESETS};
use crate::figure::{Effort, Figure, Findings};
use crate::figures::auto::against_best;
use crate::figures::system::{of_users, System};
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
    let workers: &[usize] = match effort.quick {
        true => &[2, 20],
        false => &[1, 4, 8, 12, 16, 20, 32],
    };
    let mut points: Vec<(System, usize)> = Vec::new();
    for system in System::all_of(&PRESETS) {
        points.extend(workers.iter().map(|&workers| (system, workers)));
    }
    let found = parallel::map(effort.threads, &points, |&(system, workers)| {
        let plan = AllToAll {
            workers,
            ..Testbed::Cib.load(system, effort)
        };
        Testbed::Cib.rpc(machines(effort), &plan, effort)
    });
    let of = |system: System, workers: usize| -> &AllToAllResult {
        let place = points.iter().position(|&point| point == (system, workers));
        &found[place.expect("a point")]
    };
    let mut findings = Findings::new("coroutines of a core", "M RPC/s a machine; us", false);
    for system in System::all_of(&PRESETS) {
        let line = |value: &dyn Fn(&AllToAllResult) -> f64| -> Vec<(f64, f64)> {
            let point = |&workers: &usize| (workers as f64, value(of(system, workers)));
            workers.iter().map(point).collect()
        };
        findings.line(&format!("{system}, M/s"), line(&|r| r.mops));
        findings.line(&format!("{system}, median, us"), line(&|r| r.median_us));
        findings.line(
            &format!("{system}, 99th percentile, us"),
            line(&|r| r.p99_us),
        );
    }
    if effort.quick {
        return findings;
    }
    let rate = |workers: &usize| of(fasst(), *workers).mops;
    let best = workers.iter().map(rate).fold(0.0, f64::max);
    let enough = workers.iter().find(|workers| rate(workers) >= 0.95 * best);
    let ours = enough.map_or(f64::NAN, |&workers| workers as f64);
    let why = "fewest coroutines of a core with 95 % of the best rate, one request each";
    findings.answer("FS-013", "~20", ours, (15.0, 25.0), why);
    let rates = workers.iter().map(|&workers| {
        let rates = of_users(&PRESETS, |system| of(system, workers).mops);
        (format!("{workers} coroutines of a thread"), rates)
    });
    against_best(
        &mut findings,
        "auto, fasst-coroutines",
        &rates.collect::<Vec<_>>(),
    );
    findings
}
