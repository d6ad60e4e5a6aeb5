//! Flor Fig. 7: packets that the receiving NIC drops.

use dunlin_flor::connection::Deployment;

use super::{flor, go_back_n, lossy, product_bytes};
use crate::figure::{Effort, Figure, Findings};
use crate::load::{Flor, FlorResult};
use crate::parallel;

/// The figure.
pub(in crate::figures) const FIGURE: Figure = Figure {
    name: "flor-loss",
    title: "Flor Fig. 7: packets that the receiving NIC drops, ConnectX-5, no congestion control",
    says: "Flor is ahead of RC at all ratios and keeps its rate at low ones",
    run,
};

const KILOBYTES: [u32; 5] = [4, 16, 64, 256, 1024];
/// One packet in this many is lost; zero for none.
const RATIOS: [u32; 4] = [0, 16_384, 4_096, 256];

fn run(effort: Effort) -> Findings {
    let (sizes, ratios): (&[u32], &[u32]) = match effort.quick {
        true => (&[64], &[0, 256]),
        false => (&KILOBYTES, &RATIOS),
    };
    let uc = |bytes| Flor {
        window_bytes: Some(product_bytes()),
        ..flor(Deployment::CrossPod, bytes)
    };
    let mut points: Vec<(usize, u32, u32)> = Vec::new();
    for maker in 0..2 {
        for &size in sizes {
            points.extend(ratios.iter().map(|&ratio| (maker, size, ratio)));
        }
    }
    let found = parallel::map(effort.threads, &points, |&(maker, size, ratio)| {
        let plan = match maker {
            0 => uc(size << 10),
            _ => go_back_n(size << 10),
        };
        lossy(plan, ratio, effort)
    });
    let of = |maker: usize, size: u32, ratio: u32| -> &FlorResult {
        let same = |&point: &(usize, u32, u32)| point == (maker, size, ratio);
        &found[points.iter().position(same).expect("a point")]
    };
    let mut findings = Findings::new("KB of a request", "Gb/s", true);
    for (maker, name) in ["Flor over UC", "RC, go-back-N"].iter().enumerate() {
        for &ratio in ratios {
            let point = |&size: &u32| (f64::from(size), of(maker, size, ratio).gbit_s);
            let label = match ratio {
                0 => format!("{name}, nothing lost"),
                ratio => format!("{name}, 1/{ratio}"),
            };
            findings.line(&label, sizes.iter().map(point).collect());
        }
    }
    if effort.quick {
        return findings;
    }
    let least = |of: &dyn Fn(u32, u32) -> f64, ratios: &[u32]| {
        let ratios = ratios.iter();
        let all = ratios.flat_map(|&ratio| sizes.iter().map(move |&size| of(size, ratio)));
        all.fold(f64::INFINITY, f64::min)
    };
    let losses = &ratios[1..];
    let ahead = |size, ratio| of(0, size, ratio).gbit_s / of(1, size, ratio).gbit_s;
    let why = "Flor over UC over RC by go-back-N, the least of five sizes and three ratios; no NIC here has lossy acceleration";
    let ours = least(&ahead, losses);
    findings.answer("FR-024", "outperforms", ours, (1.0, f64::INFINITY), why);
    let kept = |size, ratio| of(0, size, ratio).gbit_s / of(0, size, 0).gbit_s;
    let why = "share of its rate without loss that Flor keeps at 1/4096 and 1/16384, the least of five sizes";
    let ours = least(&kept, &losses[..2]);
    findings.answer("FR-025", "close", ours, (0.9, f64::INFINITY), why);
    findings
}
