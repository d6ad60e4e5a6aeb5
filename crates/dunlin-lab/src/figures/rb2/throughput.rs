//! RB² Exp#1, Fig. 5: throughput by message size, all designs and raw WRITE.

use dunlin_ring::Design;

use super::{extremes, gbit_s, raw_writes, streamed, RIVALS};
use crate::figure::{Effort, Figure, Findings};
use crate::parallel;

pub(in crate::figures) const FIGURE: Figure = Figure {
    name: "rb2-throughput",
    title: "RB² Exp#1, Fig. 5: throughput by message size",
    says: "RB² has 2.5 to 7.5 times the throughput of other rings with 64 B and 1.8 to 8.5 times with 1 MB, more than twice that of raw WRITE with small messages and the same, near 90 Gb/s, with large ones; L5 stays at 10 Gb/s",
    run,
};

const SMALL: usize = 64;
const LARGE: usize = 1 << 20;
const SIZES: [usize; 8] = [SMALL, 256, 1024, 4096, 16_384, 65_536, 262_144, LARGE];
const DESIGNS: [Design; 4] = [Design::RB2, RIVALS[0], RIVALS[1], RIVALS[2]];

fn run(effort: Effort) -> Findings {
    // In a short window long messages arrive in bursts as long as the window: they give no rate.
    let sizes: &[usize] = if effort.quick { &[SMALL, 4096] } else { &SIZES };
    // Large rings take most memory: they come first, so that few of them overlap at the end.
    let points: Vec<(Option<Design>, usize)> = sizes
        .iter()
        .rev()
        .flat_map(|&bytes| {
            let designs = DESIGNS.iter().map(move |&design| (Some(design), bytes));
            designs.chain([(None, bytes)])
        })
        .collect();
    let found = parallel::map(effort.threads, &points, |&(design, bytes)| match design {
        Some(design) => {
            let streamed = streamed(design, bytes, 1, effort);
            (streamed.mops, streamed.what_limits())
        }
        None => (raw_writes(bytes, effort), String::new()),
    });
    let place = |design: Option<Design>, bytes: usize| {
        let place = points.iter().position(|point| *point == (design, bytes));
        &found[place.expect("a point of this figure")]
    };
    let at = |design: Option<Design>, bytes: usize| place(design, bytes).0;
    let mut findings = Findings::new("bytes of a message", "Gb/s", true);
    for design in DESIGNS.map(Some).into_iter().chain([None]) {
        let line = sizes
            .iter()
            .map(|&bytes| (bytes as f64, gbit_s(at(design, bytes), bytes)));
        let name = design.map_or("raw WRITE", |design| design.name);
        findings.line(name, line.collect());
    }
    let [rb2, farm, socks, l5] = DESIGNS.map(Some);
    let over = |bytes| extremes([farm, socks, l5].map(|d| at(rb2, bytes) / at(d, bytes)));
    let rates = |bytes| {
        let each = DESIGNS.map(|design| {
            let (mops, limits) = place(Some(design), bytes);
            format!("{} {:.1} ({limits})", design.name, gbit_s(*mops, bytes))
        });
        let raw = gbit_s(at(None, bytes), bytes);
        format!("Gb/s: {}, raw WRITE {raw:.1}", each.join(", "))
    };
    let (low, high) = over(SMALL);
    findings.answer("RB-001 least", "2.5x", low, (2.0, 3.2), &rates(SMALL));
    findings.answer("RB-001 most", "7.5x", high, (5.5, 9.5), &rates(SMALL));
    findings.answer(
        "RB-009",
        ">2x",
        at(rb2, SMALL) / at(None, SMALL),
        (1.6, f64::MAX),
        "64 B, RB² over raw WRITE without batching",
    );
    findings.answer(
        "RB-011",
        "similar",
        at(socks, SMALL) / at(None, SMALL),
        (0.75, 1.25),
        "64 B, SocksDirect over raw WRITE",
    );
    let slowest = extremes([rb2, socks, None].map(|d| at(d, SMALL))).0;
    let (_, fastest) = extremes([l5, farm].map(|d| at(d, SMALL)));
    findings.answer(
        "RB-013",
        "lowest",
        fastest / slowest,
        (0.0, 1.0),
        "64 B, the faster of L5 and FaRM over the slowest of the others",
    );
    if effort.quick {
        return findings;
    }
    let (low, high) = over(LARGE);
    findings.answer("RB-002 least", "1.8x", low, (1.4, 2.3), &rates(LARGE));
    findings.answer("RB-002 most", "8.5x", high, (6.0, 11.0), &rates(LARGE));
    findings.answer(
        "RB-010 ring",
        "close to 90 Gbps",
        gbit_s(at(rb2, LARGE), LARGE),
        (85.0, 95.0),
        "Gb/s, RB² with messages of 1 MB",
    );
    findings.answer(
        "RB-012",
        "a bottleneck",
        at(socks, LARGE) / at(None, LARGE),
        (0.0, 0.7),
        "1 MB, SocksDirect over raw WRITE",
    );
    findings.answer(
        "RB-014",
        "~10 Gbps",
        gbit_s(at(l5, LARGE), LARGE),
        (7.0, 14.0),
        "Gb/s, L5 with messages of 1 MB",
    );
    findings
}
