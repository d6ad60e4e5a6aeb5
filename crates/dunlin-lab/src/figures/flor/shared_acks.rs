//! Flor Fig. 16: round trips measured by acknowledgements that share the queue pair of the data.
//!
//! As Fig. 5, with ConnectX-4 Lx, 8 threads, 64 queue pairs, but with requests of 1 MB (A.2.2). Declared before the
//! first run: answers are as long as requests, as they are in Fig. 5 (§5), so that there are data in the direction of
//! acknowledgements; everything has its default, including congestion control; the paper's accuracy is taken as the
//! measured length of the round trips of the tail. Everything has one priority.
//!
//! Changed after the first run, whose verdict stands: 512 MB are outstanding in each direction, a sixth of a second of
//! the NIC, and not one request completed in the window of 20 ms. Since then it has 400 ms, after 200.

use dunlin_flor::connection::Deployment;
use dunlin_sim::NicParameters;

use super::{flor, two, window};
use crate::figure::{Effort, Figure, Findings};
use crate::load::{Flor, FlorResult};
use crate::parallel;

/// The figure.
pub(in crate::figures) const FIGURE: Figure = Figure {
    name: "flor-shared-acks",
    title:
        "Flor Fig. 16: acknowledgements on a queue pair of their own and on that of the data, 1 MB",
    says: "a tenth of the round trips' tail with a queue pair of their own",
    run,
};

fn run(effort: Effort) -> Findings {
    let (nic, bytes, threads, ms) = match effort.quick {
        true => (NicParameters::connectx_5(), 256 << 10, 2, 20),
        false => (NicParameters::connectx_4_lx(), 1 << 20, 8, 400),
    };
    let points = [false, true];
    let found = parallel::map(effort.threads, &points, |&shares_acks| {
        let plan = Flor {
            answer_bytes: bytes,
            threads,
            connections: threads,
            shares_acks,
            ..flor(Deployment::IntraPodUnreliable, bytes)
        };
        plan.run(&two(nic.clone(), effort), window(ms, effort))
    });
    let mut findings = Findings::new("share of round trips", "us", false);
    let names = ["queue pair of their own", "shared queue pair"];
    for (name, result) in names.iter().zip(&found) {
        let FlorResult {
            rtt_us,
            rtt_tail_us,
            ..
        } = *result;
        findings.line(name, vec![(0.99, rtt_us), (0.999, rtt_tail_us)]);
        findings.line(&format!("{name}, Gb/s"), vec![(0.99, result.gbit_s)]);
    }
    if effort.quick {
        return findings;
    }
    let [own, shared] = &found[..] else {
        return findings;
    };
    for (id, which, of) in [
        ("FR-010 (99th)", "99th", (shared.rtt_us, own.rtt_us)),
        (
            "FR-010 (99.9th)",
            "99.9th",
            (shared.rtt_tail_us, own.rtt_tail_us),
        ),
    ] {
        let why =
            format!("{which} percentile of round trips, shared queue pair over one of their own");
        findings.answer(id, "10x", of.0 / of.1, (5.0, 20.0), &why);
    }
    findings
}
