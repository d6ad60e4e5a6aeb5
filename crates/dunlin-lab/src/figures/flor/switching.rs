//! Flor §6 and A.1: the time to a backup queue pair, and the length of a message.

use dunlin_flor::connection::{Config, Deployment};
use dunlin_sim::NicParameters;

use super::{flor, two};
use crate::figure::{Effort, Figure, Findings};
use crate::load::time_to_switch;
use crate::parallel;

/// The figure.
pub(in crate::figures) const FIGURE: Figure = Figure {
    name: "flor-switching",
    title: "Flor §6: a queue pair that fails under load, ConnectX-5",
    says: "about 60 us to the backup, where connecting again takes 5 ms",
    run,
};

/// Sizes in KB of the requests outstanding at the failure.
const KILOBYTES: [u32; 3] = [4, 32, 64];
/// The size that the claim is answered with.
const TYPICAL: u32 = 64;

fn run(effort: Effort) -> Findings {
    let deployments = [Deployment::IntraPodReliable, Deployment::IntraPodUnreliable];
    let sizes: &[u32] = if effort.quick { &[TYPICAL] } else { &KILOBYTES };
    let mut points: Vec<(Deployment, u32)> = Vec::new();
    for deployment in deployments {
        points.extend(sizes.iter().map(|&size| (deployment, size)));
    }
    let found = parallel::map(effort.threads, &points, |&(deployment, size)| {
        let cluster = two(NicParameters::connectx_5(), effort);
        time_to_switch(&flor(deployment, size << 10), &cluster) / 1_000.0
    });
    let of = |deployment: Deployment, size: u32| -> f64 {
        let place = points.iter().position(|&point| point == (deployment, size));
        found[place.expect("a point")]
    };
    let mut findings = Findings::new("KB of a request", "us", true);
    for (deployment, name) in deployments.iter().zip(["RC", "UC"]) {
        let point = |&size: &u32| (f64::from(size), of(*deployment, size));
        findings.line(name, sizes.iter().map(point).collect());
    }
    let why = "us from the error of the queue pair in use, over RC with eight requests of 64 KB out, to the next answer over the backup; how long the NIC takes to find its peer silent is not in it";
    let ours = of(Deployment::IntraPodReliable, TYPICAL);
    findings.answer("FR-014", "~60us", ours, (30.0, 120.0), why);
    let reach = Config::DEFAULT.max_message_bytes(4 << 10) as f64 / (1 << 20) as f64;
    let why = "MB of the longest message with units of 4 KB";
    findings.answer("FR-052", "4MB", reach, (4.0, 4.0), why);
    findings
}
