//! Flor Fig. 6: one thread with eight outstanding requests.

use dunlin_flor::connection::Deployment;
use dunlin_sim::NicParameters;

use super::{flor, go_back_n, two, window};
use crate::figure::{Effort, Figure, Findings};
use crate::load::{Flor, FlorResult};
use crate::parallel;

/// The figure.
pub(in crate::figures) const FIGURE: Figure = Figure {
    name: "flor-thread",
    title: "Flor Fig. 6: one thread, eight requests out, ConnectX-6 Dx",
    says: "about 88 Gb/s with large requests, less at 64 KB where the address is asked for first, under 0.3 cores at 1 MB",
    run,
};

/// Sizes of requests in KB.
const KILOBYTES: [u32; 9] = [4, 8, 16, 32, 64, 128, 256, 1024, 4096];

fn run(effort: Effort) -> Findings {
    let sizes: &[u32] = match effort.quick {
        true => &[4, 32, 64, 1024],
        false => &KILOBYTES,
    };
    let makers: [(&str, fn(u32) -> Flor); 3] = [
        ("Flor over UC", |bytes| {
            flor(Deployment::IntraPodUnreliable, bytes)
        }),
        ("Flor over RC", |bytes| {
            flor(Deployment::IntraPodReliable, bytes)
        }),
        ("RC, whole messages", go_back_n),
    ];
    let mut points: Vec<Flor> = Vec::new();
    for (_, make) in makers {
        points.extend(sizes.iter().map(|size| make(size << 10)));
    }
    let found = parallel::map(effort.threads, &points, |plan| {
        plan.run(
            &two(NicParameters::connectx_6_dx(), effort),
            window(4, effort),
        )
    });
    let of = |maker: usize, kilobytes: u32| -> &FlorResult {
        let place = sizes.iter().position(|&size| size == kilobytes);
        &found[maker * sizes.len() + place.expect("a size")]
    };
    let mut findings = Findings::new("KB of a request", "Gb/s; cores", true);
    for (maker, (name, _)) in makers.iter().enumerate() {
        let line = |value: &dyn Fn(&FlorResult) -> f64| -> Vec<(f64, f64)> {
            let point = |&size: &u32| (f64::from(size), value(of(maker, size)));
            sizes.iter().map(point).collect()
        };
        findings.line(&format!("{name}, Gb/s"), line(&|result| result.gbit_s));
        findings.line(&format!("{name}, cores"), line(&|result| result.cores));
    }
    if effort.quick {
        return findings;
    }
    let why = "Gb/s of requests of 1 MB, one thread, over UC";
    findings.answer("FR-016", "~88 Gbps", of(0, 1024).gbit_s, (83.0, 92.0), why);
    // The rate of 64 KB is below those of 32 KB and 1 MB: the smaller of the two differences, relative to the rate of
    // 32 KB.
    let dips = |maker: usize| {
        let [before, at, after] = [32, 64, 1024].map(|size| of(maker, size).gbit_s);
        (before - at).min(after - at) / before
    };
    let why = "how far 64 KB is below 32 KB and below 1 MB, the less of both, as a share; the less of UC and RC";
    findings.answer(
        "FR-019",
        "degradation at 64KB",
        dips(0).min(dips(1)),
        (0.01, 1.0),
        why,
    );
    let why = "cores of the client with requests of 1 MB, polls in vain not counted";
    findings.answer("FR-022", "<0.3", of(0, 1024).cores, (0.0, 0.35), why);
    findings
}
