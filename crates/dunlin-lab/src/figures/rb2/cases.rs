//! RB²'s three cases: a network function, a database that only reads, an HTTP server.

use dunlin_ring::{Design, RingConfig};

use super::{extremes, making_ns, testbed_of, unbatched, window, RIVALS};
use crate::figure::{Effort, Figure, Findings};
use crate::load::{dialogue, stream, Answered, Compute, Dialogue};
use crate::parallel;

pub(in crate::figures) const NETWORK_FUNCTION: Figure = Figure {
    name: "rb2-nf",
    title: "RB² Fig. 8: a network function counts 30 M packets (by the rate of a short window)",
    says: "RB² takes 4.1 s, half the time of L5 and SocksDirect and a fifth of FaRM's",
    run: network_function,
};
pub(in crate::figures) const DATABASE: Figure = Figure {
    name: "rb2-ycsb",
    title: "RB² Fig. 9: YCSB-C, 3 M requests of 16 B, responses of 128 B",
    says: "RB² takes 1 s, half the time of L5 and SocksDirect and a quarter of FaRM's",
    run: database,
};
pub(in crate::figures) const HTTP: Figure = Figure {
    name: "rb2-http",
    title: "RB² Fig. 10: GETs of a file of 1 KB, one after the other",
    says: "RB² 138 K and SocksDirect 137 K a second; RB²'s tail is 7 us and 1.3 us lower than SocksDirect's",
    run: http,
};

/// A record: flow key, timestamp, sequence, size.
const RECORD: usize = 40;
/// One access to memory that misses all caches: a flow's counter among a hundred thousand. Declared.
const MISS_NS: u64 = 90;
/// Such accesses of a GET: the node of the index, then the value. L5's YCSB, which reads 16 B as well, is a chained
/// hash table of 100,000 values of 1,000 B (`util/ycsb.h` of its source); MICA counts two, too.
const LOOKUPS: u64 = 2;
/// Drawing the next key from a skewed distribution. Declared.
const DRAW_NS: u64 = 20;
/// Parsing and creating the headers of an HTTP message. Declared.
const HTTP_NS: u64 = 500;

fn designs() -> [Design; 4] {
    [Design::RB2, RIVALS[0], RIVALS[1], RIVALS[2]]
}

/// Claims on times shared by two cases: RB² compared with L5 and SocksDirect, and with FaRM.
fn compare(
    findings: &mut Findings,
    [all, half, part]: [&'static str; 3],
    [seconds, tolerance]: [f64; 2],
    (share, bounds): (&str, (f64, f64)),
    times: [f64; 4],
) {
    let [rb2, farm, socks, l5] = times;
    findings.answer(
        all,
        &format!("{seconds} s"),
        rb2,
        (seconds * (1.0 - tolerance), seconds * (1.0 + tolerance)),
        &format!("s; FaRM {farm:.2}, SocksDirect {socks:.2}, L5 {l5:.2}"),
    );
    let (least, most) = extremes([rb2 / l5, rb2 / socks]);
    for (id, share) in half.split('|').zip([least, most]) {
        let why = "of the time of L5 and SocksDirect: least and greatest share";
        findings.answer(id, "half", share, (0.35, 0.65), why);
    }
    findings.answer(part, share, rb2 / farm, bounds, "of the time of FaRM");
}

fn network_function(effort: Effort) -> Findings {
    const PACKETS: f64 = 30e6;
    let designs = designs();
    let times = parallel::map(effort.threads, &designs, |&design| {
        let config = super::records(design, RECORD);
        let compute = Compute {
            first_ns: making_ns(&design, RECORD),
            second_ns: MISS_NS,
            served_bytes: 0,
        };
        let window = window(RECORD, effort);
        let streamed = stream(
            &testbed_of(&design, effort),
            &config,
            RECORD,
            1,
            compute,
            window,
        );
        PACKETS / streamed.mops / 1e6
    });
    let times = [times[0], times[1], times[2], times[3]];
    let mut findings = bars(&designs, &times);
    compare(
        &mut findings,
        ["RB-030", "RB-031 least|RB-031 most", "RB-032"],
        [4.1, 0.35],
        ("one-fifth", (0.12, 0.3)),
        times,
    );
    findings
}

fn database(effort: Effort) -> Findings {
    const REQUESTS: f64 = 3e6;
    let designs = designs();
    let times = parallel::map(effort.threads, &designs, |&design| {
        let plan = Dialogue {
            there: super::records(design, 16),
            back: super::records(design, 128),
            bytes: (16, 128),
            // As many as fit in a ring of 128 slots.
            outstanding: 127,
            requests: if effort.quick { 3_000 } else { 20_000 },
            threads: 1,
            compute: Compute {
                first_ns: making_ns(&design, 16) + DRAW_NS,
                second_ns: making_ns(&design, 128) + LOOKUPS * MISS_NS,
                served_bytes: 128,
            },
        };
        REQUESTS / dialogue(&testbed_of(&design, effort), plan).mops / 1e6
    });
    let times = [times[0], times[1], times[2], times[3]];
    let mut findings = bars(&designs, &times);
    compare(
        &mut findings,
        ["RB-033", "RB-034 least|RB-034 most", "RB-035"],
        [1.0, 0.35],
        ("quarter", (0.17, 0.35)),
        times,
    );
    findings
}

fn http(effort: Effort) -> Findings {
    // The header of a GET and of its response, and the file.
    const ASK: usize = 96;
    const FILE: usize = 1024;
    const ANSWER: usize = 128 + FILE;
    let mut designs = designs().map(unbatched);
    // "The socket-level zero copy of SocksDirect improves its QPS" (§V-C, Case#3).
    designs[2].zero_copy = true;
    let found: Vec<Answered> = parallel::map(effort.threads, &designs, |&design| {
        let plan = Dialogue {
            there: RingConfig {
                slots: super::SLOTS,
                ..RingConfig::for_messages(design, ASK)
            },
            back: RingConfig {
                slots: super::SLOTS,
                ..RingConfig::for_messages(design, ANSWER)
            },
            bytes: (ASK, ANSWER),
            outstanding: 1,
            requests: if effort.quick { 1_000 } else { 1_000_000 },
            threads: 1,
            compute: Compute {
                first_ns: making_ns(&design, ASK) + HTTP_NS,
                second_ns: making_ns(&design, ANSWER) + HTTP_NS,
                served_bytes: FILE,
            },
        };
        dialogue(&testbed_of(&design, effort), plan)
    });
    let tails: Vec<f64> = found.iter().map(Answered::p999_us).collect();
    let mut findings = bars(&designs, &tails);
    let tail = if effort.quick {
        "us, longest"
    } else {
        "us, p99.9"
    };
    findings.y = tail.to_owned();
    let (rb2, socks) = (&found[0], &found[2]);
    let rates = format!(
        "RB² {:.0} K a second, SocksDirect {:.0} K",
        rb2.mops * 1e3,
        socks.mops * 1e3
    );
    findings.answer(
        "RB-036 ratio",
        "138K over 137K",
        rb2.mops / socks.mops,
        (0.95, 1.05),
        &rates,
    );
    findings.answer(
        "RB-036 rate",
        "138K",
        rb2.mops * 1e3,
        (138.0 * 0.6, 138.0 * 1.4),
        "K GETs a second over RB²",
    );
    if effort.quick {
        // Too few GETs for a 99.9th percentile.
        return findings;
    }
    findings.answer("RB-037", "7us", tails[0], (5.0, 10.0), "us, p99.9 over RB²");
    findings.answer(
        "RB-038",
        "1.3us lower",
        tails[2] - tails[0],
        (0.5, 2.5),
        "us, p99.9 of SocksDirect less RB²'s",
    );
    findings
}

/// A point for each design.
fn bars(designs: &[Design], values: &[f64]) -> Findings {
    let mut findings = Findings::new("designs, in the order of the lines", "s", false);
    for (number, (design, &value)) in designs.iter().zip(values).enumerate() {
        findings.line(design.name, vec![(number as f64, value)]);
    }
    findings
}
