//! ScaleRPC Fig. 9: latency of batches of one and of eight, with 120 clients.

use dunlin::Preset;

use super::{crowd, run as point, CLIENT_MACHINES, PRESETS};
use crate::figure::{Effort, Figure, Findings};
use crate::figures::auto::against_best;
use crate::figures::system::{of_users, System};
use crate::load::CrowdResult;
use crate::parallel;

/// The figure.
pub(in crate::figures) const FIGURE: Figure = Figure {
    name: "scalerpc-latency",
    title: "ScaleRPC Fig. 9: latency of batches of one and of eight, 120 clients",
    says: "ScaleRPC mostly around 4 and 15 us, with a second mode; RawWrite, HERD and FaSST 19, 10 and 11 us in the middle, batch 1",
    run,
};

fn run(effort: Effort) -> Findings {
    let points: Vec<(System, usize)> = System::all_of(&PRESETS)
        .into_iter()
        .flat_map(|system| [(system, 1), (system, 8)])
        .collect();
    let found = parallel::map(effort.threads, &points, |&(system, batch)| {
        point(&crowd(system, 120, batch), CLIENT_MACHINES, effort)
    });
    let result = |system: System, batch: usize| -> &CrowdResult {
        let place = points.iter().position(|&point| point == (system, batch));
        &found[place.expect("a point")]
    };
    let of = |preset, batch| result(System::published(preset), batch);
    let mut findings = Findings::new("latency of a batch, us", "percent of batches", true);
    for (&(system, batch), result) in points.iter().zip(&found) {
        let at = |percent: usize| (result.latency_us(percent as f64 / 100.0), percent as f64);
        findings.line(
            &format!("{system}, batch {batch}"),
            (1..100).map(at).collect(),
        );
    }
    let rates = |&batch: &usize| {
        let rates = of_users(&PRESETS, |system| result(system, batch).mops);
        (format!("batch {batch}"), rates)
    };
    let compared: Vec<_> = [1, 8].iter().map(rates).collect();
    if effort.quick {
        return findings;
    }
    against_best(&mut findings, "auto, scalerpc-latency", &compared);
    let scale = |batch| of(Preset::ScaleRpc, batch);
    let why = "the most frequent latency, us";
    findings.answer("SR-026", "~4us", scale(1).mode_us(), (3.0, 6.0), why);
    findings.answer("SR-027", "~15us", scale(8).mode_us(), (10.0, 20.0), why);
    let why = "median, us, batch 1";
    let median = |preset| of(preset, 1).latency_us(0.5);
    findings.answer(
        "SR-028",
        "19us",
        median(Preset::RawWrite),
        (14.0, 25.0),
        why,
    );
    findings.answer("SR-030", "11us", median(Preset::Fasst), (8.0, 15.0), why);
    findings.answer("SR-029", "10us", median(Preset::Herd), (7.0, 14.0), why);
    let spread = of(Preset::Fasst, 8);
    let within = |low: f64, high: f64| {
        let all = &spread.latencies_us;
        let count = all.iter().filter(|&&us| (low..=high).contains(&us)).count();
        count as f64 / all.len().max(1) as f64
    };
    let why = "share of FaSST's batches of eight between 20 and 200 us";
    findings.answer("SR-031", "20-200us", within(20.0, 200.0), (0.8, 1.0), why);
    // Between the mode of the clients that are served and that of those that wait there is next to none.
    let gap = |result: &CrowdResult| {
        let mode = result.mode_us();
        let all = &result.latencies_us;
        let slow = all.iter().filter(|&&us| us > 4.0 * mode);
        let far = all.iter().filter(|&&us| us > 100.0);
        far.count() as f64 / slow.count().max(1) as f64
    };
    let why = "of the batches beyond four times the mode, the share that waited for a slice (over 100 us), batch 1";
    findings.answer("SR-032", "bimodal", gap(scale(1)), (0.5, 1.0), why);
    let longest = |preset, batch| of(preset, batch).latency_us(1.0);
    let others = |batch| longest(Preset::RawWrite, batch).max(longest(Preset::Fasst, batch));
    let why = "longest of ScaleRPC over the longest of its rivals";
    let ratio = |batch| longest(Preset::ScaleRpc, batch) / others(batch);
    findings.answer("SR-033", "much higher", ratio(1), (1.5, f64::MAX), why);
    findings.answer("SR-034", "close or smaller", ratio(8), (0.0, 1.2), why);
    let why = "longest of FaSST, us, the batch with the longer";
    let tail = longest(Preset::Fasst, 1).max(longest(Preset::Fasst, 8));
    findings.answer("SR-035", ">200us", tail, (150.0, f64::MAX), why);
    let mean = |preset| {
        let all = &of(preset, 1).latencies_us;
        all.iter().sum::<f64>() / all.len().max(1) as f64
    };
    let raw = of(Preset::RawWrite, 1);
    let why = "ScaleRPC over RawWrite, 120 clients, batch 1";
    findings.answer(
        "SR-073 throughput",
        "higher",
        scale(1).mops / raw.mops,
        (1.0, f64::MAX),
        why,
    );
    let ratio = mean(Preset::ScaleRpc) / mean(Preset::RawWrite);
    findings.answer("SR-073 mean latency", "shorter", ratio, (0.0, 1.0), why);
    let ratio = longest(Preset::ScaleRpc, 1) / longest(Preset::RawWrite, 1);
    findings.answer("SR-073 longest", "longer", ratio, (1.0, f64::MAX), why);
    findings
}
