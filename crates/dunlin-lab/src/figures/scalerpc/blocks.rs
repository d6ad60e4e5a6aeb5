//! ScaleRPC Fig. 3(b): inbound WRITEs of 32 bytes into 20 blocks for each of 400 clients, with blocks of growing size.

use super::writes::writes;
use crate::figure::{Effort, Figure, Findings};
use crate::load::{Direction, Window};
use crate::parallel;

/// The figure.
pub(in crate::figures) const FIGURE: Figure = Figure {
    name: "scalerpc-3b",
    title: "ScaleRPC Fig. 3(b): inbound WRITE and the last-level cache",
    says: "beyond blocks of 2 KB the throughput drops sharply from 35 to less than 10 M/s, and the L3 miss rate rises accordingly",
    run,
};

fn point(block: u64, effort: Effort) -> (f64, f64) {
    // Long enough to bring every block into the cache several times.
    let time = if effort.quick { 1_500_000 } else { 3_000_000 };
    let window = Window {
        warm_ns: time,
        measured_ns: time / 3,
    };
    let blocks = (block, 20 * block);
    let server = writes(Direction::Inbound, (400, 20), blocks, window, effort);
    let misses = server.mops(|c| c.allocating_writes);
    (
        server.mops(|c| c.messages_received),
        misses / (misses + server.mops(|c| c.updating_writes)),
    )
}

fn run(effort: Effort) -> Findings {
    let blocks = [64u64, 256, 512, 1024, 2048, 4096, 8192, 16384];
    let blocks: &[u64] = if effort.quick { &blocks[4..] } else { &blocks };
    let found = parallel::map(effort.threads, blocks, |&block| point(block, effort));
    let at = |block: u64| {
        blocks
            .iter()
            .position(|&b| b == block)
            .map_or((f64::NAN, f64::NAN), |place| found[place])
    };
    let mut findings = Findings::new("bytes of a block", "M WRITE/s; miss rate in percent", true);
    findings.answer(
        "SR-011 at 2 KB",
        "35 Mops",
        at(2048).0,
        (30.0, 40.0),
        "M/s with blocks of 2 KB",
    );
    findings.answer(
        "SR-011 at 16 KB",
        "<10 Mops",
        at(16384).0,
        (3.0, 10.0),
        "M/s with blocks of 16 KB",
    );
    findings.answer(
        "SR-012",
        "drop starts beyond 2 KB",
        at(4096).0 / at(2048).0,
        (0.3, 0.95),
        "rate at 4 KB over rate at 2 KB",
    );
    let rising = found.windows(2).all(|pair| pair[1].1 >= pair[0].1 - 0.01);
    findings.answer(
        "SR-013",
        "monotone",
        f64::from(u8::from(rising)),
        (1.0, 1.0),
        "whether the miss rate never falls as blocks grow",
    );
    findings.line(
        "WRITE",
        blocks
            .iter()
            .zip(&found)
            .map(|(&b, point)| (b as f64, point.0))
            .collect(),
    );
    findings.line(
        "L3 misses, %",
        blocks
            .iter()
            .zip(&found)
            .map(|(&b, point)| (b as f64, point.1 * 100.0))
            .collect(),
    );
    findings
}
