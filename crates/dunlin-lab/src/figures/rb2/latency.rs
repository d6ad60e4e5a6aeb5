//! RB² Exp#2, Fig. 6: round trips of a ping-pong by message size, mean and 99.9th percentile.

use dunlin_ring::Design;

use super::{extremes, ping_pong, testbed, unbatched, RIVALS};
use crate::figure::{Effort, Figure, Findings};
use crate::load::Hosts;
use crate::parallel;

pub(in crate::figures) const FIGURE: Figure = Figure {
    name: "rb2-latency",
    title: "RB² Exp#2, Fig. 6: round trip of a ping-pong by message size",
    says: "RB² about 4 us with small messages, near SocksDirect, and its tail 6 us lower; L5 2.5 us with 64 B; with 1 MB RB² is near raw WRITE and its tail 6 to 23 % of the others', L5's 4 ms",
    run,
};

const SMALL: usize = 64;
const LARGE: usize = 1 << 20;
const SIZES: [usize; 6] = [SMALL, 512, 4096, 32_768, 262_144, LARGE];

fn run(effort: Effort) -> Findings {
    let sizes: &[usize] = if effort.quick {
        &[SMALL, LARGE]
    } else {
        &SIZES
    };
    let designs = [Design::RB2, RIVALS[0], RIVALS[1], RIVALS[2]].map(unbatched);
    let points: Vec<(Design, usize)> = sizes
        .iter()
        .rev()
        .flat_map(|&bytes| designs.map(|design| (design, bytes)))
        .collect();
    let found = parallel::map(effort.threads, &points, |&(design, bytes)| {
        let answered = ping_pong(design, bytes, 1, effort);
        (answered.mean_us(), answered.p999_us())
    });
    let at = |design: Design, bytes: usize| {
        let place = points.iter().position(|point| *point == (design, bytes));
        place.map_or((f64::NAN, f64::NAN), |place| found[place])
    };
    let mut findings = Findings::new("bytes of a message", "us", true);
    for design in designs {
        let tail = if effort.quick { "longest" } else { "p99.9" };
        for (what, value) in [("mean", 0), (tail, 1)] {
            let line = sizes.iter().map(|&bytes| {
                let (mean, tail) = at(design, bytes);
                (bytes as f64, [mean, tail][value])
            });
            findings.line(&format!("{} {what}", design.name), line.collect());
        }
    }
    let [rb2, farm, socks, l5] = designs;
    findings.answer(
        "RB-015",
        "~4us",
        at(rb2, SMALL).0,
        (3.0, 5.0),
        "us, mean round trip of 64 B",
    );
    findings.answer(
        "RB-017 L5",
        "2.5us",
        at(l5, SMALL).0,
        (2.0, 3.2),
        "us, mean round trip of 64 B over L5",
    );
    findings.answer(
        "RB-019",
        "comparable",
        at(rb2, LARGE).0 / raw_round_trip_us(LARGE, effort),
        (0.75, 1.25),
        "1 MB, mean round trip of RB² over that of raw WRITEs",
    );
    if effort.quick {
        // Too few round trips for a 99.9th percentile.
        return findings;
    }
    findings.answer(
        "RB-016",
        "6us lower",
        at(socks, SMALL).1 - at(rb2, SMALL).1,
        (3.0, 9.0),
        "us, p99.9 of 64 B, SocksDirect less RB²",
    );
    let (least, most) =
        extremes([farm, socks, l5].map(|design| at(rb2, LARGE).1 / at(design, LARGE).1));
    let tails = designs.map(|design| format!("{} {:.0}", design.name, at(design, LARGE).1));
    let tails = format!("p99.9 of 1 MB in us: {}", tails.join(", "));
    findings.answer("RB-003 least", "6%", least, (0.03, 0.35), &tails);
    findings.answer("RB-003 most", "23%", most, (0.03, 0.35), &tails);
    findings.answer("RB-018", "4ms", at(l5, LARGE).1 / 1_000.0, (2.0, 8.0), "ms");
    findings
}

/// A ping-pong of raw WRITEs.
fn raw_round_trip_us(bytes: usize, effort: Effort) -> f64 {
    let Hosts {
        host, nic, switch, ..
    } = testbed(effort);
    crate::load::ping_pong(effort.seed, bytes, &host, &nic, &switch) / 1_000.0
}
