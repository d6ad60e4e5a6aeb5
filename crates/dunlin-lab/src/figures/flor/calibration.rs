//! The rows that set the price of Flor's chunks, and what go-back-N must show before Flor is compared with it.

use dunlin_flor::connection::Deployment;
use dunlin_sim::NicParameters;

use super::{flor, go_back_n, lossy, two, window};
use crate::figure::{Effort, Figure, Findings};
use crate::load::Flor;
use crate::parallel;

/// The figure.
pub(in crate::figures) const FIGURE: Figure = Figure {
    name: "flor-calibration",
    title: "Flor: chunks of one thread, and RC that loses packets",
    says: "over 770 thousand chunks of 4 KB a second; RC falls dramatically above 1/4096",
    run,
};

const KILOBYTES: [u32; 5] = [4, 16, 64, 256, 1024];
/// One packet in this many is lost.
const HIGH: u32 = 256;

fn run(effort: Effort) -> Findings {
    let sizes: &[u32] = if effort.quick { &[64] } else { &KILOBYTES };
    let small = Flor {
        most_chunk_bytes: Some(4 << 10),
        ..flor(Deployment::IntraPodUnreliable, 1 << 20)
    };
    let cluster = two(NicParameters::connectx_6_dx(), effort);
    let chunks = small.run(&cluster, window(4, effort)).chunks;
    let mut points: Vec<(u32, u32)> = Vec::new();
    for &size in sizes {
        points.extend([(size, 0), (size, HIGH)]);
    }
    let found = parallel::map(effort.threads, &points, |&(size, ratio)| {
        lossy(go_back_n(size << 10), ratio, effort).gbit_s
    });
    let mut findings = Findings::new("KB of a request", "Gb/s", true);
    for (name, place) in [("RC, nothing lost", 0), ("RC, 1/256", 1)] {
        let rates = found.chunks(2).map(|pair| pair[place]);
        let sizes = sizes.iter().map(|&size| f64::from(size));
        findings.line(name, sizes.zip(rates).collect());
    }
    if effort.quick {
        return findings;
    }
    let why =
        "thousands of chunks of 4 KB a second, one thread, requests of 1 MB over UC, ConnectX-6 Dx";
    findings.answer(
        "FR-021",
        "over 770K/s",
        chunks * 1_000.0,
        (700.0, 900.0),
        why,
    );
    let kept = found.chunks(2).map(|pair| pair[1] / pair[0]);
    let most = kept.fold(0.0, f64::max);
    let why = "share of its rate without loss that RC by go-back-N keeps at 1/256, the most of five sizes";
    findings.answer("FR-027", "dramatic decrease", most, (0.0, 0.6), why);
    findings
}
