//! FaSST's READ sweeps: symmetric READs of 32 bytes over increasing numbers of queue pairs, and of increasing size.
//! Calibration.

use dunlin_sim::NicParameters;

use crate::calibration::{points, root_mean_square, run, Compared, Point};
use crate::figure::{Effort, Figure, Findings};

/// On ConnectX-3.
pub(in crate::figures) const CONNECTX_3: Figure = Figure {
    name: "fasst-reads-cx3",
    title: "FaSST, rdma_bench: symmetric READs on ConnectX-3",
    says: "READ throughput falls from 11.1 to 1.2 M/s and machine between 48 and 792 queue pairs; 1.65 M/s at 440",
    run: |effort| sweep(effort, "ConnectX-3", &effort.nic(NicParameters::connectx_3())),
};

/// On Connect-IB.
pub(in crate::figures) const CONNECT_IB: Figure = Figure {
    name: "fasst-reads-cib",
    title: "FaSST, rdma_bench: symmetric READs on Connect-IB",
    says: "READ throughput falls from 50 to 30 M/s and machine between 84 and 1386 queue pairs: more gently than on ConnectX-3",
    run: |effort| sweep(effort, "Connect-IB", &effort.nic(NicParameters::connect_ib())),
};

fn sweep(effort: Effort, name: &str, nic: &NicParameters) -> Findings {
    let step = if effort.quick { 8 } else { 1 };
    let points: Vec<Point> = points()
        .into_iter()
        .filter(|point| point.nic == name)
        .step_by(step)
        .collect();
    let rows = run(
        effort.seed,
        &points,
        nic,
        if effort.quick { 1_000 } else { 4_000 },
        effort.threads,
    );
    let mut findings = Findings::new("queue pairs a machine", "M READ/s a machine", true);
    let mut ours = best(&points, &rows, |row| row.ours);
    let mut paper = best(&points, &rows, |row| row.paper);
    ours.sort_by(|a, b| a.0.total_cmp(&b.0));
    paper.sort_by(|a, b| a.0.total_cmp(&b.0));
    findings.line("measured", paper);
    findings.line("model", ours.clone());
    let error = root_mean_square(&rows) * 100.0;
    let id = if name == "ConnectX-3" {
        "calibration.csv ConnectX-3"
    } else {
        "calibration.csv Connect-IB"
    };
    let why = format!("root mean square error in percent over {} rows", rows.len());
    findings.answer(id, "0", error, (0.0, 10.0), &why);
    if effort.quick {
        // With so few rows, most numbers of queue pairs that claims are about are missing.
        return findings;
    }
    let (most, least) = (
        ours.iter().map(|p| p.1).fold(0.0, f64::max),
        ours.iter().map(|p| p.1).fold(f64::MAX, f64::min),
    );
    if name == "ConnectX-3" {
        findings.answer(
            "FS-009",
            ">=4x drop by 440 QPs",
            most / at(&ours, 440.0),
            (4.0, 20.0),
            "peak over rate at 440 queue pairs",
        );
    } else {
        findings.answer(
            "FS-010",
            "50 -> ~30 M/s by 1400 QPs",
            least,
            (25.0, 35.0),
            "least rate of the sweep, M/s",
        );
    }
    findings
}

/// The rate at the point nearest to `x`.
fn at(points: &[(f64, f64)], x: f64) -> f64 {
    let near = points
        .iter()
        .min_by(|a, b| (a.0 - x).abs().total_cmp(&(b.0 - x).abs()));
    near.map_or(f64::NAN, |point| point.1)
}

/// For each number of queue pairs the best rate over windows, 32-byte READs.
fn best(points: &[Point], rows: &[Compared], value: impl Fn(&Compared) -> f64) -> Vec<(f64, f64)> {
    let mut best: Vec<(f64, f64)> = Vec::new();
    for (point, row) in points
        .iter()
        .zip(rows)
        .filter(|(point, _)| point.bytes <= 32)
    {
        let pairs = (point.machines * point.threads * point.virtual_machines) as f64;
        match best.iter_mut().find(|entry| entry.0 == pairs) {
            Some(entry) => entry.1 = entry.1.max(value(row)),
            None => best.push((pairs, value(row))),
        }
    }
    best
}
