//! RB² Exp#3, Fig. 7: one to eight threads with a ring each, 64 B.

use dunlin_ring::Design;

use super::{gbit_s, ping_pong, streamed};
use crate::figure::{Effort, Figure, Findings};
use crate::parallel;

pub(in crate::figures) const FIGURE: Figure = Figure {
    name: "rb2-threads",
    title: "RB² Exp#3, Fig. 7: threads with a ring each, 64 B",
    says: "the throughput increases almost linearly with one to eight threads, and the tail latency stays below 7 us",
    run,
};

const BYTES: usize = 64;

fn run(effort: Effort) -> Findings {
    let threads: &[usize] = if effort.quick { &[1, 8] } else { &[1, 2, 4, 8] };
    let found = parallel::map(effort.threads, threads, |&threads| {
        let rate = streamed(Design::RB2, BYTES, threads, effort);
        let tail = ping_pong(Design::RB2_LATENCY, BYTES, threads, effort).p999_us();
        (rate, tail)
    });
    let mut findings = Findings::new("threads", "M/s; us", false);
    let line = |value: &dyn Fn(usize) -> f64| {
        let points = threads.iter().enumerate();
        points.map(|(n, &t)| (t as f64, value(n))).collect()
    };
    findings.line("messages", line(&|n| found[n].0.mops));
    findings.line("p99.9 of a ping-pong", line(&|n| found[n].1));
    let (one, eight) = (&found[0], &found[found.len() - 1]);
    let wire = eight.0.sender.gbit_s(|c| c.wire_bytes);
    findings.answer(
        "RB-020",
        "almost linear",
        eight.0.mops / one.0.mops,
        (7.0, f64::MAX),
        &format!(
            "8 threads over 1: {:.1} and {:.1} M/s; with 8 the messages alone are {:.0} Gb/s and the port sends {wire:.0}",
            eight.0.mops,
            one.0.mops,
            gbit_s(eight.0.mops, BYTES)
        ),
    );
    findings.answer(
        "RB-021",
        "<7us",
        eight.1,
        (0.0, 10.0),
        "us, p99.9 of a ping-pong, 8 threads",
    );
    findings
}
