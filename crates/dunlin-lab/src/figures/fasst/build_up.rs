//! FaSST's single-core build-up: the rate of a core as batches are added, one after the other.

use dunlin::DatagramBatches;

use super::{fasst, machines, System, Testbed, PRESETS};
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

/// Requests of a coroutine that are sent together: the maximum for eleven machines without two to the same one.
const BATCH: usize = 10;

/// The steps: requests of a batch, and the batching of requests and of responses.
fn steps() -> [(usize, [DatagramBatches; 2]); 4] {
    let all = fasst().batches();
    let sends = DatagramBatches { receives: 1, ..all };
    let alone = DatagramBatches { sends: 1, ..sends };
    [
        // Request batching, response batching, cheap RECEIVE posting, one after the other.
        (1, [alone, alone]),
        (BATCH, [sends, alone]),
        (BATCH, [sends, sends]),
        (BATCH, [all, all]),
    ]
}

fn run(effort: Effort) -> Findings {
    let load = |system: System| AllToAll {
        pollers: 1,
        ..Testbed::Cib.load(system, effort)
    };
    let mut points: Vec<AllToAll> = Vec::new();
    for (batch, batches) in steps() {
        points.push(AllToAll {
            batch,
            batches,
            ..load(fasst())
        });
    }
    // The cost of a call without any batching.
    points.push(AllToAll {
        workers: 1,
        ..load(fasst())
    });
    for preset in PRESETS {
        points.push(AllToAll {
            batch: BATCH,
            ..load(System::of_users(preset))
        });
    }
    let found = parallel::map(effort.threads, &points, |plan| {
        Testbed::Cib.rpc(machines(effort), plan, effort)
    });
    let (fasst, others) = found.split_at(steps().len());
    let (alone, of_users) = others.split_at(1);
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
    for (preset, result) in PRESETS.iter().zip(of_users) {
        let place = (steps().len() - 1) as f64;
        let name = format!("{preset}, as users get it");
        findings.line(&name, vec![(place, result.mops_of_core())]);
    }
    findings.line("fasst, doorbells", line(&|r| r.doorbells, fasst));
    findings.line("fasst, verbs", line(&|r| r.verbs, fasst));
    let why = "M RPC/s of the preset fasst over the time that cores were busy, where nothing goes together";
    let none = fasst[0].mops_of_core();
    findings.answer("FS-016", "2.6 Mrps", none, (2.2, 3.0), why);
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
    let rates = PRESETS.iter().zip(of_users);
    let rates = rates.map(|(&preset, result)| (preset, result.mops_of_core()));
    if !effort.quick {
        let point = ("all optimizations".to_owned(), rates.collect());
        against_best(&mut findings, "auto, fasst-build-up", &[point]);
    }
    findings
}
