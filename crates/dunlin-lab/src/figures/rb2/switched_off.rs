//! RB² Exp#4, Table II: one optimisation switched off at a time, with small and large messages.

use dunlin_ring::{Batching, Design, Optimisation};

use super::{messages, streamed, testbed_of, window};
use crate::figure::{Effort, Figure, Findings};
use crate::load::{stream, Hosts, Streamed};
use crate::parallel;

pub(in crate::figures) const FIGURE: Figure = Figure {
    name: "rb2-breakdown",
    title: "RB² Exp#4, Table II: one optimisation less",
    says: "512 B: without batching 67 % less, of single batching policies the elastic threshold counts most, without cache lines 8 % less; 1 MB: without zero copy much less, without cache lines 29 % less; huge pages do not show; the right NUMA node helps small messages",
    run,
};

const SMALL: usize = 512;
const LARGE: usize = 1 << 20;

/// The optimisation switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    Full,
    Without(Optimisation),
    /// M8: memory in pages of 4 KB.
    SmallPages,
    /// M9: threads and rings on the socket that the NIC is not attached to.
    WrongSocket,
}

const VERSIONS: [(&str, Version); 9] = [
    ("M1", Version::Full),
    ("M2", Version::Without(Optimisation::Batching)),
    ("M3", Version::Without(Optimisation::SyncAhead)),
    ("M4", Version::Without(Optimisation::Elastic)),
    ("M5", Version::Without(Optimisation::LazyPush)),
    ("M6", Version::Without(Optimisation::ZeroCopy)),
    ("M7", Version::Without(Optimisation::CacheLines)),
    ("M8", Version::SmallPages),
    ("M9", Version::WrongSocket),
];

/// Additional time of each access of the NIC or a core across sockets: 60 to 100 ns a line and 100 ns a DMA read
/// (nic-model §2 and §6).
const CROSSING_NS: u64 = 100;

/// The testbed with both ends on the wrong socket: doorbells and DMA cross, and DDIO does not reach that socket's
/// cache, so a core that polls arrived data reads it from memory across sockets.
fn across(mut hosts: Hosts) -> Hosts {
    let more = CROSSING_NS * 1_000;
    hosts.nic.mmio += more;
    hosts.nic.dma_read += more;
    hosts.nic.dma_write += more;
    hosts.host.ddio = 0.0;
    hosts.host.detect += more;
    hosts
}

fn point(version: Version, bytes: usize, effort: Effort) -> Streamed {
    let on = |hosts: &Hosts| {
        let config = super::records(Design::RB2, bytes);
        let window = window(bytes, effort);
        let compute = messages(&Design::RB2, bytes);
        stream(hosts, &config, bytes, 1, compute, window)
    };
    match version {
        Version::Full => streamed(Design::RB2, bytes, 1, effort),
        Version::Without(one) => streamed(Design::RB2.without(one), bytes, 1, effort),
        Version::SmallPages => {
            let mut hosts = testbed_of(&Design::RB2, effort);
            hosts.host.page_bytes = 4096.0;
            on(&hosts)
        }
        Version::WrongSocket => on(&across(testbed_of(&Design::RB2, effort))),
    }
}

fn run(effort: Effort) -> Findings {
    // In a short window long messages arrive in bursts as long as the window: they give no rate.
    let sizes: &[(&str, usize)] = if effort.quick {
        &[("512 B", SMALL)]
    } else {
        &[("512 B", SMALL), ("1 MB", LARGE)]
    };
    let points: Vec<(Version, usize)> = sizes
        .iter()
        .rev()
        .flat_map(|&(_, bytes)| VERSIONS.map(|(_, version)| (version, bytes)))
        .collect();
    let found = parallel::map(effort.threads, &points, |&(version, bytes)| {
        point(version, bytes, effort)
    });
    let at = |number: usize, bytes: usize| {
        let wanted = (VERSIONS[number - 1].1, bytes);
        let place = points.iter().position(|point| *point == wanted);
        &found[place.expect("a point of this figure")]
    };
    let lost = |number: usize, bytes: usize| 1.0 - at(number, bytes).mops / at(1, bytes).mops;
    let mut findings = Findings::new("version: M1 is everything", "share of M1", false);
    for &(name, bytes) in sizes {
        let line = (1..=9).map(|number| (number as f64, 1.0 - lost(number, bytes)));
        findings.line(name, line.collect());
    }
    let small = at(1, SMALL);
    findings.answer(
        "RB-022",
        "-67%",
        lost(2, SMALL),
        (0.5, 0.8),
        &format!("512 B without batching; M1 has {:.1} M/s", small.mops),
    );
    let single = [3, 4, 5].map(|number| lost(number, SMALL));
    findings.answer(
        "RB-023",
        "elastic threshold (M4)",
        single[1] - single[0].max(single[2]),
        (1e-3, 1.0),
        &format!(
            "loss by M4 less the greater of M3 and M5; M3 {:.3}, M4 {:.3}, M5 {:.3}",
            single[0], single[1], single[2]
        ),
    );
    let allocated = |number: usize, bytes: usize| {
        let streamed = at(number, bytes);
        let lines = streamed.receiver.mops(|c| c.allocating_writes);
        lines / streamed.mops
    };
    findings.answer(
        "RB-025",
        "-8%",
        lost(7, SMALL),
        (0.03, 0.15),
        &format!(
            "512 B without cache lines; lines that miss the cache for a message: {:.2}, and {:.2} with",
            allocated(7, SMALL),
            allocated(1, SMALL)
        ),
    );
    if effort.quick {
        return findings;
    }
    findings.answer(
        "RB-024",
        "expensive",
        lost(6, LARGE),
        (0.3, 1.0),
        "1 MB without zero copy",
    );
    findings.answer(
        "RB-026",
        "-29%",
        lost(7, LARGE),
        (0.15, 0.4),
        &format!(
            "1 MB without cache lines; lines that miss the cache for a message: {:.0}, and {:.0} with",
            allocated(7, LARGE),
            allocated(1, LARGE)
        ),
    );
    let pages = lost(8, SMALL).abs().max(lost(8, LARGE).abs());
    findings.answer(
        "RB-027",
        "not evident",
        pages,
        (0.0, 0.05),
        &format!(
            "pages of 4 KB; translations that miss for a message of 1 MB: {:.1}",
            at(8, LARGE).receiver.mops(|c| c.translation_misses) / at(8, LARGE).mops
        ),
    );
    findings.answer(
        "RB-028 small",
        "helps small messages",
        lost(9, SMALL),
        (1e-3, 1.0),
        "512 B on the wrong socket",
    );
    findings.answer(
        "RB-028 large",
        "~0 large",
        lost(9, LARGE),
        (-0.05, 0.05),
        "1 MB on the wrong socket",
    );
    let copies = lost(6, LARGE).min(lost(7, LARGE));
    let rest = [2, 3, 4, 5, 8, 9].map(|number| lost(number, LARGE));
    let rest = rest.into_iter().fold(0.0, f64::max);
    findings.answer(
        "RB-029",
        "message copying (M6,M7)",
        copies - rest,
        (0.01, 1.0),
        "1 MB, the smaller loss of M6 and M7 less the greatest of the others",
    );
    exact(&mut findings, effort);
    findings
}

/// Rows that follow from definitions, of the class `exact`.
fn exact(findings: &mut Findings, effort: Effort) {
    let placed = |design: Design| {
        let design = Design {
            batching: Batching::Off,
            ..design
        };
        let streamed = streamed(design, 128, 1, effort);
        let lines = |c: &dunlin_sim::Counters| c.partial_line_writes + c.whole_line_writes;
        // One line is the tail's.
        streamed.receiver.mops(lines) / streamed.mops - 1.0
    };
    let unaligned = placed(Design::RB2.without(Optimisation::CacheLines));
    findings.answer(
        "RB-041",
        "3",
        (unaligned * 100.0).round() / 100.0,
        (2.95, 3.05),
        &format!(
            "lines written for an unaligned message of 128 B; {:.2} for an aligned one",
            placed(Design::RB2)
        ),
    );
}
