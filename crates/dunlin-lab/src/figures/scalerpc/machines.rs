//! ScaleRPC Fig. 8 (right): 40 client threads on one to five machines.

use dunlin::Preset;

use super::{crowd, run as point, PRESETS};
use crate::figure::{Effort, Figure, Findings};
use crate::figures::auto::against_best;
use crate::figures::system::{of_users, System};
use crate::load::Crowd;
use crate::parallel;

/// The figure.
pub(in crate::figures) const FIGURE: Figure = Figure {
    name: "scalerpc-machines",
    title: "ScaleRPC Fig. 8 (right): RPC of 40 client threads on one to five machines",
    says: "FaSST needs at least four machines to saturate with a batch of one, ScaleRPC and RawWrite at most two",
    run,
};

fn run(effort: Effort) -> Findings {
    let machines: &[usize] = if effort.quick {
        &[1, 4]
    } else {
        &[1, 2, 3, 4, 5]
    };
    let mut points = Vec::new();
    for system in System::all_of(&PRESETS) {
        points.extend(machines.iter().map(|&machines| (system, machines)));
    }
    let found = parallel::map(effort.threads, &points, |&(system, machines)| {
        // Each client is a thread of its own.
        let plan = Crowd {
            threads: 40,
            ..crowd(system, 40, 1)
        };
        point(&plan, machines, effort).mops
    });
    let rate = |system: System, machines: usize| {
        let place = points.iter().position(|&point| point == (system, machines));
        found[place.expect("a point")]
    };
    let of = |preset, machines| rate(System::published(preset), machines);
    let mut findings = Findings::new("client machines", "M RPC/s, batch 1", false);
    for system in System::all_of(&PRESETS) {
        let line = machines.iter().map(|&n| (n as f64, rate(system, n)));
        findings.line(&system.to_string(), line.collect());
    }
    let rates = |&n: &usize| {
        let rates = of_users(&PRESETS, |system| rate(system, n));
        (format!("{n} machines"), rates)
    };
    let compared: Vec<_> = machines.iter().map(rates).collect();
    if effort.quick {
        return findings;
    }
    against_best(&mut findings, "auto, scalerpc-machines", &compared);
    let saturated = |preset| {
        let best = machines.iter().map(|&n| of(preset, n)).fold(0.0, f64::max);
        let first = machines.iter().find(|&&n| of(preset, n) >= 0.95 * best);
        first.map_or(0.0, |&n| n as f64)
    };
    let why = "fewest machines with 95 % of the best rate";
    for (id, preset) in [
        ("SR-024 FaSST", Preset::Fasst),
        ("SR-024 HERD", Preset::Herd),
    ] {
        findings.answer(id, "at least 4", saturated(preset), (3.0, 5.0), why);
    }
    for (id, preset) in [
        ("SR-025 ScaleRPC", Preset::ScaleRpc),
        ("SR-025 RawWrite", Preset::RawWrite),
    ] {
        findings.answer(id, "at most 2", saturated(preset), (1.0, 2.0), why);
    }
    findings
}
