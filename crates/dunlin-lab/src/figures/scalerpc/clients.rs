//! ScaleRPC Fig. 8 (left) and 10: throughput and the server's PCIe counters with 40 to 400 clients.

use dunlin::Preset;

use super::{crowd, run as point, CLIENT_MACHINES, PRESETS};
use crate::figure::{Effort, Figure, Findings};
use crate::figures::auto::against_best;
use crate::figures::system::{of_users, System};
use crate::load::CrowdResult;
use crate::parallel;

/// The figure.
pub(in crate::figures) const FIGURE: Figure = Figure {
    name: "scalerpc-clients",
    title: "ScaleRPC Fig. 8 (left) and 10: RPC of 32 B with 40 to 400 clients, ConnectX-3",
    says: "ScaleRPC and FaSST keep their rate, RawWrite drops by half and more; RawWrite's PCIe reads run ahead of its rate, ScaleRPC's keep pace",
    run,
};

fn run(effort: Effort) -> Findings {
    let clients: &[usize] = match effort.quick {
        true => &[40, 120],
        false => &[40, 80, 120, 150, 200, 300, 400],
    };
    let batches: &[usize] = if effort.quick { &[1] } else { &[1, 8] };
    let mut points = Vec::new();
    for system in System::all_of(&PRESETS) {
        for &batch in batches {
            points.extend(
                clients
                    .iter()
                    .rev()
                    .map(|&clients| (system, batch, clients)),
            );
        }
    }
    let found = parallel::map(effort.threads, &points, |&(system, batch, clients)| {
        point(&crowd(system, clients, batch), CLIENT_MACHINES, effort)
    });
    let result = |system: System, batch: usize, clients: usize| -> &CrowdResult {
        let place = points.iter().position(|&p| p == (system, batch, clients));
        &found[place.expect("a point")]
    };
    let of = |preset, batch, clients| result(System::published(preset), batch, clients);
    let reads = |result: &CrowdResult| result.server.mops(|c| c.pcie_read_lines);
    let allocating = |result: &CrowdResult| result.server.mops(|c| c.allocating_writes);
    let mut findings = Findings::new("clients", "M RPC/s; M/s of the server's counters", false);
    for system in System::all_of(&PRESETS) {
        for &batch in batches {
            let line = |value: &dyn Fn(&CrowdResult) -> f64| -> Vec<(f64, f64)> {
                let point = |&n: &usize| (n as f64, value(result(system, batch, n)));
                clients.iter().map(point).collect()
            };
            findings.line(&format!("{system}, batch {batch}"), line(&|r| r.mops));
            if batch == 1 && [Preset::ScaleRpc, Preset::RawWrite].contains(&system.preset) {
                findings.line(&format!("{system}, PCIeRdCur"), line(&reads));
                findings.line(&format!("{system}, PCIeItoM"), line(&allocating));
            }
        }
    }
    let rates = |&batch: &usize, &n: &usize| {
        let rates = of_users(&PRESETS, |system| result(system, batch, n).mops);
        (format!("{n} clients, batch {batch}"), rates)
    };
    let compared = batches
        .iter()
        .flat_map(|batch| clients.iter().map(move |n| rates(batch, n)));
    if effort.quick {
        return findings;
    }
    against_best(
        &mut findings,
        "auto, scalerpc-clients",
        &compared.collect::<Vec<_>>(),
    );
    // The largest deviation from 40 clients.
    let variation = |preset: Preset, batch: usize| {
        let base = of(preset, batch, 40).mops;
        let off = |&n: &usize| of(preset, batch, n).mops / base - 1.0;
        let all = clients.iter().map(off);
        all.fold(
            0.0f64,
            |most, off| if off.abs() > most.abs() { off } else { most },
        )
    };
    let why = "the furthest of any number of clients from 40 clients, less one";
    for (id, preset, batch) in [
        ("SR-019 batch 1", Preset::ScaleRpc, 1),
        ("SR-019 batch 8", Preset::ScaleRpc, 8),
        ("SR-023 batch 1", Preset::Fasst, 1),
        ("SR-023 batch 8", Preset::Fasst, 8),
    ] {
        let paper = if preset == Preset::Fasst {
            "stable"
        } else {
            "almost constant"
        };
        findings.answer(id, paper, variation(preset, batch), (-0.1, 0.1), why);
    }
    let kept = |preset, batch| of(preset, batch, 400).mops / of(preset, batch, 40).mops;
    let why =
        "what ScaleRPC keeps of its rate from 40 to 400 clients over what FaSST keeps, batch 1";
    let ratio = kept(Preset::ScaleRpc, 1) / kept(Preset::Fasst, 1);
    findings.answer("SR-020", "comparable", ratio, (0.85, 1.3), why);
    let kept_by_herd = kept(Preset::Herd, 1);
    let why = "what HERD keeps of its rate from 40 to 400 clients, batch 1, less what it keeps with batch 8";
    let ordering = kept_by_herd - kept(Preset::Herd, 8);
    findings.answer(
        "SR-022 batch",
        "worst at small batch",
        ordering,
        (-1.0, 0.0),
        why,
    );
    let why = "what HERD keeps of its rate from 40 to 400 clients, batch 1";
    findings.answer("SR-022", "drops", kept_by_herd, (0.0, 0.95), why);
    let lost = 1.0 - kept(Preset::RawWrite, 1);
    let why = "share of its rate that RawWrite loses from 40 to 400 clients, batch 1";
    findings.answer("SR-021", "significant drop", lost, (0.5, 1.0), why);
    let beyond = clients.iter().filter(|&&n| n > 40);
    let most = beyond.map(|&n| reads(of(Preset::RawWrite, 1, n)));
    let most = most.fold(0.0f64, f64::max);
    let why = "most lines a second that RawWrite's server reads over PCIe, M/s";
    findings.answer("SR-036", ">20M/s", most, (15.0, 30.0), why);
    let per_call = |preset, n| reads(of(preset, 1, n)) / of(preset, 1, n).mops;
    let pace: Vec<f64> = clients
        .iter()
        .map(|&n| per_call(Preset::ScaleRpc, n))
        .collect();
    let (least, most) = pace.iter().fold((f64::MAX, 0.0f64), |(least, most), &one| {
        (least.min(one), most.max(one))
    });
    let why = "spread of lines read over PCIe for each call of ScaleRPC";
    findings.answer("SR-038", "keeps pace", most / least - 1.0, (0.0, 0.2), why);
    let later = reads(of(Preset::RawWrite, 1, 150))
        / most_of(clients, |n| reads(of(Preset::RawWrite, 1, n)));
    let why = "RawWrite's PCIe reads at 150 clients over their most";
    findings.answer("SR-037", "drops again", later, (0.0, 0.95), why);
    let told = of(Preset::ScaleRpc, 1, 400);
    let why = "WRITEs that only told of a turn for each answer, 400 clients, batch 1";
    let words = told.turn_words as f64 / told.answered.max(1) as f64;
    findings.answer("SR-018", "<0.01 %", words, (0.0, 0.001), why);
    let growth = allocating(of(Preset::RawWrite, 1, 400))
        / allocating(of(Preset::RawWrite, 1, 40)).max(0.01);
    let why = "RawWrite's allocating writes at 400 clients over those at 40 (at least 0.01 M/s)";
    findings.answer("SR-039", "increases", growth, (1.05, f64::MAX), why);
    let of_all = most_of(clients, |n| {
        allocating(of(Preset::ScaleRpc, 1, n)) / of(Preset::ScaleRpc, 1, n).mops
    });
    let why = "most allocating writes for each call of ScaleRPC";
    findings.answer("SR-040", "stable, low", of_all, (0.0, 0.1), why);
    findings
}

fn most_of(clients: &[usize], value: impl Fn(usize) -> f64) -> f64 {
    clients.iter().map(|&n| value(n)).fold(0.0, f64::max)
}
