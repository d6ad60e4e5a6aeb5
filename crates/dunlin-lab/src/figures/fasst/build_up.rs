//! FaSST's single-core build-up: what a core can do as batches are added, one after the other.

use dunlin::{DatagramBatches, Preset};

use super::{machines, Testbed, PRESETS};
use crate::figure::{Effort, Figure, Findings};
use crate::figures::auto::against_best;
use crate::load::{AllToAll, AllToAllResult};
use crate::parallel;

/// The figure.
pub(in crate::figures) const FIGURE: Figure = Figure {
    name: "fasst-build-up",
    title: "FaSST: RPC of one core on Connect-IB as its optimizations are added",
    says: "2.6 M/s before, 4.3 M/s with all: 17.2 million verbs a second",
    run,
};

/// Requests of a coroutine that go together: the most that eleven machines allow without two for one of them.
const BATCH: usize = 10;

/// The steps: what they are called, requests of a batch, what goes together at threads that ask and at pollers.
fn steps() -> [(&'static str, usize, [DatagramBatches; 2]); 4] {
    let alone = DatagramBatches {
        sends: 1,
        receives: 1,
        ..DatagramBatches::default()
    };
    let sends = DatagramBatches {
        receives: 1,
        ..DatagramBatches::default()
    };
    let all = DatagramBatches::default();
    [
        ("baseline", 1, [alone, alone]),
        ("+ request batching", BATCH, [sends, alone]),
        ("+ response batching", BATCH, [sends, sends]),
        ("+ cheap RECEIVE posting", BATCH, [all, all]),
    ]
}

fn run(effort: Effort) -> Findings {
    let mut points: Vec<AllToAll> = Vec::new();
    for preset in PRESETS {
        for (_, batch, batches) in steps() {
            points.push(AllToAll {
                batch,
                batches,

                ..AllToAll::new(preset, 1, 1)
            });
        }
    }
    // What a call takes that nothing goes together with.
    points.push(AllToAll {
        workers: 1,
        ..AllToAll::new(Preset::Fasst, 1, 1)
    });
    let found = parallel::map(effort.threads, &points, |plan| {
        Testbed::Cib.rpc(machines(effort), plan, effort)
    });
    let (fasst, others) = found.split_at(steps().len());
    let (auto, alone) = others.split_at(steps().len());
    let mut findings = Findings::new(
        "optimizations: none, request batching, response batching, RECEIVE posting",
        "M RPC/s of a core; doorbells and verbs for each",
        false,
    );
    let line = |value: &dyn Fn(&AllToAllResult) -> f64, of: &[AllToAllResult]| -> Vec<(f64, f64)> {
        let point = |(step, result)| (step as f64, value(result));
        of.iter().enumerate().map(point).collect()
    };
    findings.line("fasst", line(&AllToAllResult::mops_of_core, fasst));
    findings.line("auto", line(&AllToAllResult::mops_of_core, auto));
    findings.line("fasst, doorbells", line(&|r| r.doorbells, fasst));
    findings.line("fasst, verbs", line(&|r| r.verbs, fasst));
    let all = &fasst[steps().len() - 1];
    let why =
        "M RPC/s of the preset fasst over the time that cores were busy, with all optimizations";
    findings.answer("FS-017", "4.3 Mrps", all.mops_of_core(), (3.7, 4.9), why);
    let why = "verbs for each RPC that travels alone: SEND and RECEIVE of request and of response";
    findings.answer(
        "FS-018",
        "17.2M = 4 x 4.3",
        alone[0].verbs,
        (3.95, 4.05),
        why,
    );
    let of_all = |results: &[AllToAllResult]| results[steps().len() - 1].mops_of_core();
    let rates = vec![(Preset::Fasst, of_all(fasst)), (Preset::Auto, of_all(auto))];
    if !effort.quick {
        let point = ("all optimizations".to_owned(), rates);
        against_best(&mut findings, "auto, fasst-build-up", &[point]);
    }
    findings
}
